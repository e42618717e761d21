"""CSV, Parquet and Avro files into documents. Rows that cannot be used are reported by number."""

import csv
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from apache_beam.io.filesystems import FileSystems

from dpngram.pipelines.io.lines import MAX_RECORD_BYTES, RANGE_BYTES, header_line, is_damage, open_file
from dpngram.pipelines.io.parsing import BadRecord, Fields, Parsed, is_utf8, make_block, utf8_of
from dpngram.transforms.messages import Message

__all__ = ["csv_names", "parquet_groups", "parse_records", "read_avro", "read_csv", "read_parquet"]

_BATCH_ROWS = 50_000


def parquet_groups(path: str) -> int:
    """The number of row groups; 0 if the file cannot be read as Parquet."""
    try:
        with FileSystems.open(path, compression_type="uncompressed") as file:
            return int(pyarrow.parquet.ParquetFile(file).num_row_groups)
    except Exception as error:
        if not is_damage(error, ""):
            raise  # else the other groups would be lost
        return 0


def read_parquet(path: str, group: int, fields: Fields) -> Iterator[Parsed]:
    """The documents of one row group. If a column is missing, or the file breaks off, its rows are bad records."""
    with FileSystems.open(path, compression_type="uncompressed") as file:
        parquet = pyarrow.parquet.ParquetFile(file)
        rows = [max(parquet.metadata.row_group(number).num_rows, 0) for number in range(group + 1)]
        first, count = sum(rows[:-1]), rows[-1]
        names = parquet.schema_arrow.names
        users = [name for name in fields.user if name in names]
        contents = [name for name in fields.content if name in names]
        if not users:
            yield _all_bad("missing_user", first, count)
            return
        done = 0
        try:
            for batch in parquet.iter_batches(_BATCH_ROWS, [group], sorted({*users, *contents})):
                yield read_columns(
                    [batch.column(name) for name in users], [batch.column(name) for name in contents], first + done
                )
                done += len(batch)
        except Exception as error:
            if not is_damage(error, ""):
                raise
            yield _all_bad("unreadable", first + done, max(count - done, 1))


def _all_bad(reason: str, first: int, count: int) -> Parsed:
    """`count` rows, from the row `first` on, none of which can be used."""
    return Parsed([], count, [BadRecord(reason, first, 0, count)] if count else [])


def read_columns(users: list[pa.Array], contents: list[pa.Array], first: int) -> Parsed:
    """Documents from the columns of one batch. A row is bad without a user, or if its content is not a text.

    Without a column of contents, or if it cannot hold texts, all rows are bad. Where some columns hold texts and others
    lists of tokens, those of the first column's kind count.

    Privacy: which columns count follows from their types. If it followed from where values are, a value in a column
    that nobody else uses would decide how the rows of others are read, or stop the run.
    """
    count = len(users[0])
    who, what = _coalesce([_strings(column) for column in users]), _coalesce(_of_one_kind(contents))
    if who is None:
        return _all_bad("bad_user", first, count)
    no_user = ~pc.fill_null(pc.greater(pc.binary_length(who), 0), False).to_numpy(zero_copy_only=False)
    if what is None:
        parsed = _all_bad("bad_text" if contents else "missing_text", first, count)
        parsed.bad_users = _values(who, ~no_user & ~_not_utf8(who))
        return parsed
    no_text = pc.is_null(what).to_numpy(zero_copy_only=False)
    tokens = not pa.types.is_large_binary(what.type)
    bad_name = _not_utf8(who)
    broken = bad_name | (_holes(what, _not_utf8(what.flatten())) if tokens else _not_utf8(what))
    bad_text = np.zeros(count, bool)
    if tokens:  # a list with a null in it is not a text
        bad_text = _holes(what, pc.is_null(what.flatten()).to_numpy(zero_copy_only=False))
    masks = {"missing_user": no_user, "missing_text": no_text, "bad_text": bad_text, "bad_utf8": broken}
    bad, unused = [], np.zeros(count, bool)
    for reason, mask in masks.items():  # a record counts once, with its first reason
        bad += [BadRecord(reason, first + int(row), 0) for row in np.flatnonzero(mask & ~unused)]
        unused |= mask
    good = pa.array(np.flatnonzero(~unused))
    block = make_block(who.take(good), what.take(good)) if len(good) else None
    bad_users = _values(who, unused & ~no_user & ~bad_name) if bad else []
    return Parsed([] if block is None else [block], count, bad, bad_users)


def _values(column: pa.Array, marked: Any) -> list[bytes]:
    """The marked values of a column of bytes."""
    values: list[bytes] = column.take(pa.array(np.flatnonzero(marked))).to_pylist()
    return values


def _not_utf8(column: pa.Array) -> Any:
    """Which values are not UTF-8. Arrow checks all at once; if it complains, Python checks one by one."""
    try:
        column.cast(pa.large_string()).validate(full=True)
        return np.zeros(len(column), bool)
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return np.array([value is not None and not is_utf8(value) for value in column.to_pylist()], bool)


def _holes(lists: pa.Array, marked: Any) -> Any:
    """Which lists hold a marked value."""
    found = np.zeros(len(lists), bool)
    found[pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)[marked]] = True
    return found


def _of_one_kind(contents: list[pa.Array]) -> list[pa.Array | None]:
    """The columns that hold what the first one holds, texts or lists; columns of the type null hold nothing."""
    found = [_content(column) for column in contents if not pa.types.is_null(column.type)]
    usable = [column for column in found if column is not None]
    kinds = [pa.types.is_large_binary(column.type) for column in usable]
    same = [column for column, kind in zip(usable, kinds, strict=True) if kind == kinds[0]]
    return same or [_content(column) for column in contents[:1]]


def _coalesce(columns: list[pa.Array | None]) -> pa.Array | None:
    usable = [column for column in columns if column is not None]
    return (usable[0] if len(usable) == 1 else pc.coalesce(*usable)) if usable else None


def _strings(column: pa.Array) -> pa.Array | None:
    """Strings and whole numbers as bytes; None for other kinds. A column without any value has the kind null."""
    kind = column.type
    if pa.types.is_null(kind):
        return column.cast(pa.large_binary())
    if pa.types.is_dictionary(kind):  # decoded, short values may become long columns
        kind = kind.value_type
        values = column.dictionary.cast(pa.large_binary()) if _is_textual(kind) else column.dictionary
        column = values.take(column.indices)
    if pa.types.is_integer(kind):
        return column.cast(pa.string()).cast(pa.large_binary())
    return column.cast(pa.large_binary()) if _is_textual(kind) else None


def _is_textual(kind: pa.DataType) -> bool:
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_large_binary)
    return any(check(kind) for check in checks)


def _content(column: pa.Array) -> pa.Array | None:
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        known = _is_textual(kind.value_type) or pa.types.is_null(kind.value_type)
        return column.cast(pa.large_list(pa.large_binary())) if known else None
    return None if pa.types.is_integer(kind) else _strings(column)


def read_csv(path: str, compression: str, skip_header_lines: int, fields: Fields) -> Iterator[Parsed]:
    """The records of one CSV file (RFC 4180), from beginning to end: a quoted value may hold commas and line ends.

    Privacy: cutting such a value at its line ends would turn one user's text into records of other users. So each file
    is read sequentially. A file with an odd number of quote characters is left out entirely, because records and quoted
    text cannot be told apart in it.
    """
    header = header_line(path, compression, skip_header_lines)
    columns = csv_names(header)
    with open_file(path, compression) as file:
        quotes = lines = 0
        while chunk := file.read(1 << 20):
            quotes += chunk.count(b'"')
            lines += chunk.count(b"\n")
    users = [name for name in fields.user if name in columns]
    contents = [name for name in fields.content if name in columns]
    rows = max(lines - skip_header_lines, 1)
    if quotes % 2 or b"\r" in header or not users:
        reason = "open_quote" if quotes % 2 else "missing_text" if users else "missing_user"
        yield _all_bad(reason, 0, rows)
        return
    with open_file(path, compression) as file:
        for _ in range(skip_header_lines + 1):
            file.readline()
        row = 0
        for records in _whole_records(file.read):
            parsed = Parsed([], 1, [BadRecord("too_long", row, 0)])
            if records is not None:
                parsed = _parse_csv(records, columns, [users[0], *contents[:1]], row)
            yield parsed
            row += parsed.records


def _whole_records(read: Callable[[int], bytes]) -> Iterator[bytes | None]:
    """Pieces of whole records; None for a record that is longer than MAX_RECORD_BYTES, whatever is around it.

    A record ends at the first line end that has an even number of quotes before it.
    """
    held: list[bytes] = []
    size = odd = 0  # of what is held: bytes of a record that goes on, and whether a quote is open
    while chunk := read(RANGE_BYTES):
        data = np.frombuffer(chunk, np.uint8)
        quotes = np.cumsum(data == ord('"'), dtype=np.uint8) + np.uint8(odd)  # mod 256: only the last bit counts
        ends = np.flatnonzero((data == ord("\n")) & (quotes & 1 == 0)) + 1
        odd = int(quotes[-1]) & 1
        first = int(ends[0]) if len(ends) else len(chunk)
        size += first
        if size > MAX_RECORD_BYTES:
            held.clear()
        elif not len(ends):
            held.append(chunk)
        if len(ends):
            if size > MAX_RECORD_BYTES:
                yield None
            else:
                first = 0
            last = int(ends[-1])
            yield b"".join([*held, chunk[first:last]])
            held, size = [chunk[last:]], len(chunk) - last
    if size:
        yield b"".join(held) if size <= MAX_RECORD_BYTES else None


def _parse_csv(records: bytes, columns: list[str], wanted: list[str], first: int) -> Parsed:
    """Documents of some whole records.

    Arrow reports a row with too few or too many values as text. If that text is not UTF-8, Arrow fails on all rows. So
    records that are not UTF-8 are read as Latin-1, in which every byte is a character, and turned back into bytes. (The
    same if the first record begins with a byte order mark, which Arrow would drop.) A carriage return that is not
    followed by a line feed would end a row for Arrow; here it is white space.
    """
    if b"\r" in records:
        records = re.sub(rb"\r(?!\n)", b" ", records)
    if not records.strip():
        return Parsed()
    plain = is_utf8(records) and not records.startswith(BOM_UTF8)
    bad: list[BadRecord] = []

    def skip(row: Any) -> str:
        bad.append(BadRecord("bad_row", first + (row.number or 1) - 1, 0))
        return "skip"

    table = pyarrow.csv.read_csv(
        pa.BufferReader(records),
        read_options=pyarrow.csv.ReadOptions(
            use_threads=False,
            block_size=2 * len(records) + 1,
            column_names=columns,
            encoding="utf8" if plain else "latin1",
        ),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip),
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=wanted,
            column_types=dict.fromkeys(wanted, pa.large_binary()),
            strings_can_be_null=False,
        ),
    )
    who, *what = [column.combine_chunks() for column in table.columns]
    if not plain:
        who, *what = map(_latin1_bytes, [who, *what])
    parsed = read_columns([who], what, first) if len(who) else Parsed()
    return Parsed(parsed.blocks, parsed.records + len(bad), parsed.bad + bad, parsed.bad_users)


def _latin1_bytes(column: pa.Array) -> pa.Array:
    """The bytes of a file, from what Arrow made of them as Latin-1."""
    values = column.cast(pa.large_string()).to_pylist()
    return pa.array([value.encode("latin1") for value in values], pa.large_binary())


def csv_names(header: bytes) -> list[str]:
    """The names of the columns in a header; none if it cannot be read."""
    try:
        return [name.strip() for name in next(csv.reader([header.removeprefix(BOM_UTF8).decode()]), [])]
    except (csv.Error, UnicodeDecodeError):
        return []


class RecursiveSchema(TypeError):
    """An Avro type that contains itself. It is not damage, and no user can cause it: the run fails."""


def read_avro(path: str, fields: Fields) -> Iterator[Parsed]:
    """The documents of one Avro file, some records at a time: there is no columnar reader for Avro.

    Privacy: values are read as they are stored. A date after the year 9999, or a text that is not a UUID, is a legal
    value in the record of one user. Converting it would fail, and the records after it would be lost.
    """
    with FileSystems.open(path, compression_type="uncompressed") as file:
        first = size = 0
        batch: list[Any] = []
        try:
            records = fastavro.reader(file, handle_unicode_errors="surrogateescape")
            as_stored(records.writer_schema)
            for record in records:
                batch.append(record)
                size += _length(record, fields)
                if len(batch) == _BATCH_ROWS or size > MAX_RECORD_BYTES:
                    yield parse_records(batch, fields, first)
                    first, size, batch = first + len(batch), 0, []
            if batch:
                yield parse_records(batch, fields, first)
        except (MemoryError, RecursiveSchema):
            raise
        except Exception:  # a broken block can raise nearly anything; what was read before it stands
            if batch:
                yield parse_records(batch, fields, first)
            yield Parsed([], 1, [BadRecord("unreadable", first + len(batch), 0)])


def as_stored(schema: Any, within: tuple[str, ...] = ()) -> None:
    """Removes the logical types from a parsed schema, in place: values are then read as they were written.

    A type that contains itself is refused: whoever wrote the values decides how deep they go, and reading recurses.
    """
    if isinstance(schema, str) and schema in within:
        raise RecursiveSchema(Message.RECURSIVE_AVRO_SCHEMA.format())
    if isinstance(schema, list):
        for branch in schema:
            as_stored(branch, within)
    if isinstance(schema, dict):
        schema.pop("logicalType", None)
        within = (*within, schema["name"]) if "name" in schema else within
        for part in [schema.get("items"), schema.get("values"), *(field["type"] for field in schema.get("fields", ()))]:
            as_stored(part, within)
        if isinstance(schema.get("type"), (dict, list)):
            as_stored(schema["type"], within)


def _length(record: Any, fields: Fields) -> int:
    """About how many characters the content of a record has. The record may hold anything; nothing here may fail."""
    size = 0
    for name in fields.content if isinstance(record, dict) else ():
        content = record.get(name)
        parts = content if isinstance(content, list) else [content]
        size += sum(len(part) for part in parts if isinstance(part, str))
    return size


def parse_records(records: list[Any], fields: Fields, first: int) -> Parsed:
    """Documents from mappings, one by one. A record is bad without a user, or if its content is not a text."""
    users, contents, bad, bad_users = [], [], [], []
    for row, record in enumerate(records):
        found = record if isinstance(record, dict) else {}
        user = next((found[name] for name in fields.user if found.get(name) is not None), None)
        content = next((found[name] for name in fields.content if found.get(name) is not None), None)
        if isinstance(user, int) and not isinstance(user, bool):
            user = str(user)
        good = isinstance(content, str)
        if fields.tokens:
            good = isinstance(content, list) and all(isinstance(token, str) for token in content)
        reason = ""
        if not isinstance(user, str) or not user:
            reason = "missing_user" if user in (None, "") else "bad_user"
        elif not good:
            reason = "missing_text" if content is None else "bad_text"
        elif not utf8_of("".join([user, *(content if isinstance(content, list) else [str(content)])])):
            reason = "bad_utf8"
        else:
            users.append(user)
            contents.append(content)
        if reason:
            bad.append(BadRecord(reason, first + row, 0))
            bad_users += utf8_of(user) if isinstance(user, str) and user else []
    kind = pa.large_list(pa.large_string()) if fields.tokens else pa.large_string()
    block = make_block(pa.array(users, pa.large_string()), pa.array(contents, kind))
    return Parsed([] if block is None else [block], len(records), bad, bad_users)

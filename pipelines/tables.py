"""Parquet and Avro files into documents: row groups and blocks, with the rows that cannot be used by number."""

from collections.abc import Iterator
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from apache_beam.io.filesystems import FileSystems

from dpngram.pipelines.parsing import BadRecord, Fields, Parsed, make_block

__all__ = ["parquet_groups", "read_avro", "read_parquet"]

_BATCH_ROWS = 50_000


def parquet_groups(path: str) -> int:
    """The number of row groups; 0 if the file cannot be read as Parquet."""
    try:
        with FileSystems.open(path, compression_type="uncompressed") as file:
            return int(pyarrow.parquet.ParquetFile(file).num_row_groups)
    except (pa.ArrowInvalid, OSError):
        return 0


def read_parquet(path: str, group: int, fields: Fields) -> Iterator[Parsed]:
    """The rows of one row group. A file without the columns is one long list of bad rows; so is one that breaks off."""
    with FileSystems.open(path, compression_type="uncompressed") as file:
        parquet = pyarrow.parquet.ParquetFile(file)
        rows = [parquet.metadata.row_group(number).num_rows for number in range(group + 1)]
        first, count = sum(rows[:-1]), rows[-1]
        names = parquet.schema_arrow.names
        users = [name for name in fields.user if name in names]
        contents = [name for name in fields.content if name in names]
        if not users or not contents:
            reason = "missing_text" if users else "missing_user"
            yield Parsed([], count, [BadRecord(reason, first + row, 0) for row in range(count)])
            return
        done = 0
        try:
            for batch in parquet.iter_batches(_BATCH_ROWS, [group], sorted({*users, *contents})):
                yield read_columns(
                    [batch.column(name) for name in users], [batch.column(name) for name in contents], first + done
                )
                done += len(batch)
        except (pa.ArrowInvalid, OSError):
            left = count - done
            yield Parsed([], left, [BadRecord("unreadable", first + done + row, 0) for row in range(left)])


def read_columns(users: list[pa.Array], contents: list[pa.Array], first: int) -> Parsed:
    """Documents from columns of one batch; rows without a user or with a text that is no text are bad."""
    count = len(users[0])
    who, reason = _coalesce([_user_strings(column) for column in users]), "bad_user"
    what = _coalesce([_content(column) for column in contents])
    if who is None or what is None:
        reason = "bad_text" if who is not None else reason
        return Parsed([], count, [BadRecord(reason, first + row, 0) for row in range(count)])
    no_user = ~pc.fill_null(pc.not_equal(who, ""), False).to_numpy(zero_copy_only=False)
    no_text = pc.is_null(what).to_numpy(zero_copy_only=False)
    if not pa.types.is_string(what.type):  # tokens: a list with a null in it is no text
        holes = pc.list_parent_indices(what).filter(pc.is_null(pc.list_flatten(what)))
        no_text[holes.to_numpy(zero_copy_only=False)] = True
    good = pa.array(np.flatnonzero(~(no_user | no_text)))
    bad = [BadRecord("missing_user", first + int(row), 0) for row in np.flatnonzero(no_user)]
    bad += [BadRecord("missing_text", first + int(row), 0) for row in np.flatnonzero(no_text & ~no_user)]
    block = make_block(who.take(good), what.take(good))
    return Parsed([] if block is None else [block], count, bad)


def _coalesce(columns: list[pa.Array | None]) -> pa.Array | None:
    usable = [column for column in columns if column is not None]
    return (usable[0] if len(usable) == 1 else pc.coalesce(*usable)) if usable else None


def _user_strings(column: pa.Array) -> pa.Array | None:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    textual = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return column.cast(pa.string()) if textual or pa.types.is_integer(kind) else None


def _content(column: pa.Array) -> pa.Array | None:
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = kind.value_type
        return (
            column.cast(pa.list_(pa.string())) if pa.types.is_string(inner) or pa.types.is_large_string(inner) else None
        )
    if pa.types.is_integer(kind):
        return None
    return _user_strings(column)


def read_avro(path: str, fields: Fields) -> Iterator[Parsed]:
    """The records of one Avro file, some at a time. There is no columnar reader for Avro; this one is by record."""
    with FileSystems.open(path, compression_type="uncompressed") as file:
        first = 0
        try:
            batch: list[Any] = []
            for record in fastavro.reader(file):
                batch.append(record)
                if len(batch) == _BATCH_ROWS:
                    yield _avro_batch(batch, fields, first)
                    first, batch = first + len(batch), []
            if batch:
                yield _avro_batch(batch, fields, first)
        except Exception:  # a broken block can raise nearly anything; what was read before it stands
            if batch:
                yield _avro_batch(batch, fields, first)
            yield Parsed([], 1, [BadRecord("unreadable", first + len(batch), 0)])


def _avro_batch(records: list[Any], fields: Fields, first: int) -> Parsed:
    users, contents, bad = [], [], []
    for row, record in enumerate(records):
        found = record if isinstance(record, dict) else {}
        user = next((found[name] for name in fields.user if found.get(name) is not None), None)
        content = next((found[name] for name in fields.content if found.get(name) is not None), None)
        if isinstance(user, int) and not isinstance(user, bool):
            user = str(user)
        good = isinstance(content, str)
        if fields.tokens:
            good = isinstance(content, list) and all(isinstance(token, str) for token in content)
        if not isinstance(user, str) or not user:
            bad.append(BadRecord("missing_user" if user in (None, "") else "bad_user", first + row, 0))
        elif not good:
            bad.append(BadRecord("missing_text" if content is None else "bad_text", first + row, 0))
        else:
            users.append(user)
            contents.append(content)
    kind = pa.list_(pa.string()) if fields.tokens else pa.string()
    block = make_block(pa.array(users, pa.string()), pa.array(contents, kind))
    return Parsed([] if block is None else [block], len(records), bad)

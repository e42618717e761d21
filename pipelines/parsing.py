"""Lines into documents, in columns by Arrow; what cannot be used is named by a reason and its place, never shown.

Privacy: what a line gives must depend on that line alone, or one user's broken record would change what is read of
others. So a record never spans lines, in no format, and Arrow's result for many lines is taken only where it
must equal that of each line by itself; otherwise each half is parsed alone, down to the lines that are bad.
"""

import csv
import dataclasses
import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from dpngram.transforms.columns import binary_array
from dpngram.transforms.documents import DocumentBlock

__all__ = ["BadRecord", "Fields", "Parsed", "parse_delimited", "parse_jsonl", "parse_text"]

_BOM = b"\xef\xbb\xbf"


class BadRecord(NamedTuple):
    """A record that cannot be used: why, and where it lies. For columnar files the offset is the row's number."""

    reason: str
    offset: int
    length: int


@dataclasses.dataclass(frozen=True)
class Fields:
    """The names of the fields; of several the first that a record has counts. With `tokens`, no text is read."""

    user: tuple[str, ...] = ("user", "author")
    text: tuple[str, ...] = ("text", "content")
    tokens: str | None = None

    @property
    def content(self) -> tuple[str, ...]:
        return (self.tokens,) if self.tokens else self.text


@dataclasses.dataclass
class Parsed:
    """Documents, how many records there were (blank lines are none), and those that cannot be used."""

    blocks: list[DocumentBlock] = dataclasses.field(default_factory=list)
    records: int = 0
    bad: list[BadRecord] = dataclasses.field(default_factory=list)


def parse_text(lines: bytes, offset: int = 0) -> Parsed:
    """One document a line, without users."""
    data = np.frombuffer(lines, np.uint8)
    ends = np.flatnonzero(data == ord("\n")) + 1
    if len(data) and not (len(ends) and ends[-1] == len(data)):
        ends = np.append(ends, len(data))
    bounds = np.append(0, ends).astype(np.int64)
    if offset == 0 and lines.startswith(_BOM):
        data = data.copy()
        data[:3] = ord(" ")
    texts = binary_array(bounds, data)
    if lines.isascii() or _is_utf8(lines):
        return Parsed([DocumentBlock.from_texts(None, texts)], len(texts))
    whole = [_is_utf8(text) for text in texts.to_pylist()]
    good = texts.take(pa.array(np.flatnonzero(whole)))
    bad = [
        BadRecord("bad_utf8", offset + int(bounds[row]), int(bounds[row + 1] - bounds[row]))
        for row in np.flatnonzero(~np.array(whole))
    ]
    return Parsed([DocumentBlock.from_texts(None, good)], len(texts), bad)


def parse_jsonl(lines: bytes, fields: Fields, offset: int = 0) -> Parsed:
    """One JSON object a line. The user is a string or a whole number of 64 bits; the text is a string.

    Arrow does not look at line ends. But only lines that open and close an object are given to it, an object closed at
    a line's end and followed by an opened one is no part of a larger value, and the number of objects must be
    that of lines; so every line is one object, as it would be by itself.
    """
    if _plain_objects(lines):
        count = lines.count(b"\n") + (not lines.endswith(b"\n"))
        block = _json_block(lines, count, fields)
        if block is not None:
            return Parsed([block], count)
    usable: list[_Line] = []
    unusable: list[_Line] = []
    records = _split(lines, offset, b" \t\r")
    for record in records:
        line = record[1]
        framed = line[:1] == b"{" and line[-1:] == b"}" and _is_utf8(line)
        (usable if framed else unusable).append(record)
    parsed = _parse_halves(usable, lambda body, count: _json_block(body, count, fields))
    bad = [*(record for record in unusable), *parsed[1]]
    return Parsed(parsed[0], len(records), [_name(record, _why_not_json(record[1], fields)) for record in bad])


def parse_delimited(lines: bytes, header: bytes, delimiter: str, fields: Fields, offset: int = 0) -> Parsed:
    """One record a line, as the header names the columns. CSV quotes hide commas, never line ends; TSV has no quotes.

    A line with an open quote would swallow the next, and there would be fewer records than lines; no line can be two.
    """
    records = _split(lines, offset, b"\r")
    columns = _header_columns(header, delimiter)
    users, texts = ([name for name in names if name in columns] for names in (fields.user, fields.content))
    if not users or not texts:
        reason = "missing_user" if not users else "missing_text"
        return Parsed([], len(records), [_name(record, reason) for record in records])
    usable = [record for record in records if _is_utf8(record[1])]
    unusable = [record for record in records if not _is_utf8(record[1])]

    def block(body: bytes, count: int) -> DocumentBlock | None:
        return _delimited_block(body, count, columns, delimiter, users[0], texts[0])

    blocks, bad = _parse_halves(usable, block)
    reasons = [_name(record, "bad_utf8") for record in unusable]
    reasons += [_name(record, _why_not_row(record[1], columns, delimiter, users[0])) for record in bad]
    return Parsed(blocks, len(records), reasons)


_Line = tuple[int, bytes]


def _split(lines: bytes, offset: int, white: bytes) -> list[_Line]:
    """The lines that are not blank, stripped of `white`, with their places; a byte order mark is no part of one."""
    records, at = [], offset
    for line in lines.split(b"\n"):
        bare = line.strip(white).removeprefix(_BOM)
        if bare.strip():
            records.append((at, bare))
        at += len(line) + 1
    return records


def _name(record: _Line, reason: str) -> BadRecord:
    return BadRecord(reason, record[0], len(record[1]))


def _parse_halves(
    records: list[_Line], parse: Callable[[bytes, int], DocumentBlock | None]
) -> tuple[list[DocumentBlock], list[_Line]]:
    """The blocks of these lines, and the lines that are bad; `parse` takes all lines it is given, or none."""
    if not records:
        return [], []
    block = parse(b"\n".join(line for _, line in records), len(records))
    if block is not None:
        return [block], []
    if len(records) == 1:
        return [], records
    middle = len(records) // 2
    first, second = _parse_halves(records[:middle], parse), _parse_halves(records[middle:], parse)
    return first[0] + second[0], first[1] + second[1]


def _plain_objects(lines: bytes) -> bool:
    """Whether every line opens and closes an object, and all is UTF-8."""
    data = np.frombuffer(lines, np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    if len(data) and data[-1] != ord("\n"):
        ends = np.append(ends, len(data))
    starts = np.append(0, ends[:-1] + 1)
    if not len(ends) or (ends - starts < 2).any():
        return False
    framed = (data[starts] == ord("{")).all() and (data[ends - 1] == ord("}")).all()
    return bool(framed) and (lines.isascii() or _is_utf8(lines))


def _json_block(lines: bytes, count: int, fields: Fields) -> DocumentBlock | None:
    content_type = pa.list_(pa.string()) if fields.tokens else pa.string()
    contents = [(name, content_type) for name in fields.content]
    for types in itertools.product((pa.string(), pa.int64()), repeat=len(fields.user)):
        try:
            table = pyarrow.json.read_json(
                pa.BufferReader(lines),
                read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
                parse_options=pyarrow.json.ParseOptions(
                    explicit_schema=pa.schema([*zip(fields.user, types, strict=True), *contents]),
                    unexpected_field_behavior="ignore",
                ),
            )
        except pa.ArrowInvalid:
            continue  # the message may quote the data; it goes nowhere
        if len(table) == count:
            users = _first_of([table[name].combine_chunks().cast(pa.string()) for name in fields.user])
            block = make_block(users, _first_of([table[name].combine_chunks() for name in fields.content]))
            if block is not None:
                return block
    return None


def _first_of(columns: Sequence[pa.Array]) -> pa.Array:
    return columns[0] if len(columns) == 1 else pc.coalesce(*columns)


def make_block(users: pa.Array, contents: pa.Array) -> DocumentBlock | None:
    """A block from columns, or None if a user or a text is missing or empty of a name."""
    if contents.null_count or not pc.all(pc.not_equal(users, pa.scalar("", users.type)), skip_nulls=False).as_py():
        return None
    if not pa.types.is_list(contents.type) and not pa.types.is_large_list(contents.type):
        return DocumentBlock.from_texts(users, contents)
    tokens = contents.flatten()
    if tokens.null_count:
        return None
    bounds = np.append(0, np.cumsum(pc.list_value_length(contents).to_numpy(zero_copy_only=False), dtype=np.int64))
    return DocumentBlock.from_tokens(users, tokens, bounds)


def _header_columns(header: bytes, delimiter: str) -> list[str]:
    """The names in the first line of a file, or none if it cannot be read."""
    return [name.strip() for name in _values(header.removeprefix(_BOM).strip(), delimiter)]


def _values(line: bytes, delimiter: str) -> list[str]:
    try:
        text = line.decode()
        if not _quote(delimiter):
            return text.split(delimiter)
        return next(csv.reader([text], delimiter=delimiter), [])
    except (csv.Error, UnicodeDecodeError):
        return []


def _quote(delimiter: str) -> Any:
    return '"' if delimiter == "," else False


def _delimited_block(
    lines: bytes, count: int, columns: list[str], delimiter: str, user: str, text: str
) -> DocumentBlock | None:
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(lines),
            read_options=pyarrow.csv.ReadOptions(
                use_threads=False, block_size=len(lines) + 1, column_names=columns, autogenerate_column_names=False
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=delimiter, quote_char=_quote(delimiter), newlines_in_values=True
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                include_columns=[user, text],
                column_types={user: pa.string(), text: pa.string()},
                strings_can_be_null=False,
            ),
        )
    except (pa.ArrowInvalid, pa.ArrowKeyError):
        return None
    if len(table) != count:
        return None
    return make_block(table[user].combine_chunks(), table[text].combine_chunks())


def _why_not_row(line: bytes, columns: list[str], delimiter: str, user: str) -> str:
    """The reason why one line cannot be used; its content stays here."""
    if _quote(delimiter) and line.count(b'"') % 2:
        return "open_quote"
    values = _values(line, delimiter)
    if len(values) != len(columns):
        return "missing_columns" if len(values) < len(columns) else "bad_row"
    return "bad_row" if values[columns.index(user)] else "missing_user"


def _why_not_json(line: bytes, fields: Fields) -> str:
    """The reason why one line cannot be used; its content stays here."""
    if not _is_utf8(line):
        return "bad_utf8"
    repeated = False

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        repeated = repeated or len(dict(found)) < len(found)
        return dict(found)

    try:
        record = json.loads(line, object_pairs_hook=pairs)
    except RecursionError:
        return "too_deep"
    except ValueError:
        return "bad_json"
    if not isinstance(record, dict):
        return "no_object"
    if repeated:
        return "repeated_field"
    user = next((record[name] for name in fields.user if record.get(name) is not None), None)
    content = next((record[name] for name in fields.content if record.get(name) is not None), None)
    if user is None or user == "":
        return "missing_user"
    if (
        isinstance(user, bool)
        or not isinstance(user, (str, int))
        or (isinstance(user, int) and not -(2**63) <= user < 2**63)
    ):
        return "bad_user"
    if content is None:
        return "missing_text"
    strings = content if fields.tokens and isinstance(content, list) else [content]
    if not all(isinstance(string, str) for string in strings):
        return "bad_text"
    try:
        "".join([str(user), *strings]).encode()
    except UnicodeEncodeError:
        return "lone_surrogate"
    return "bad_json"


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True

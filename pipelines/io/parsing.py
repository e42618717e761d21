"""Lines into documents, in columns by Arrow. A record that cannot be used is reported by reason and place, never shown.

Privacy: what is read of a line must depend on that line alone. Otherwise one user's broken record would change what is
read of others. So Arrow's result for many lines is used only if it must equal the results for the single lines. If not,
each half is parsed by itself, down to the lines that are bad. (CSV records may span lines: see tables.py.)
"""

import dataclasses
import functools
import itertools
import json
from codecs import BOM_UTF8
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from dpngram.transforms.blocks.columns import binary_array
from dpngram.transforms.blocks.documents import DocumentBlock

__all__ = [
    "BadRecord",
    "Fields",
    "Parsed",
    "is_utf8",
    "make_block",
    "parse_jsonl",
    "parse_text",
    "parse_tsv",
    "plain_objects",
    "tsv_names",
    "utf8_of",
]


class BadRecord(NamedTuple):
    """A record that cannot be used: the reason and the place. For columnar files the offset is the number of the row.

    Consecutive rows with the same reason are one entry with their number, `rows`: a file may claim any number of rows.
    """

    reason: str
    offset: int
    length: int
    rows: int = 1


@dataclasses.dataclass(frozen=True)
class Fields:
    """The names of the fields. Of several names, the first that a record has counts. With `tokens`, no text is read."""

    user: tuple[str, ...] = ("user", "author")
    text: tuple[str, ...] = ("text", "content")
    tokens: str | None = None

    @property
    def content(self) -> tuple[str, ...]:
        return (self.tokens,) if self.tokens else self.text


@dataclasses.dataclass
class Parsed:
    """Documents, the number of records (a blank line is not a record), and the records that cannot be used.

    `bad_users` has the user of each bad record that has a usable one: a text, or a whole number, in the user's field of
    a record whose fields can be told apart.

    Privacy: for the gate a user counts once, however many bad records the user has. A record whose user could be read,
    but is not named here, would count by itself.
    """

    blocks: list[DocumentBlock] = dataclasses.field(default_factory=list)
    records: int = 0
    bad: list[BadRecord] = dataclasses.field(default_factory=list)
    bad_users: list[bytes] = dataclasses.field(default_factory=list)

    def all_blocks(self) -> list[DocumentBlock]:
        """The blocks, and one more for the bad records, if there are any."""
        if not self.bad:
            return self.blocks
        unnamed = sum(record.rows for record in self.bad) - len(self.bad_users)
        return [*self.blocks, DocumentBlock.from_bad_records(self.bad_users, unnamed)]


def parse_text(lines: bytes, offset: int = 0) -> Parsed:
    """One document on each line, without users. The end of the line is not part of the document."""
    data = np.frombuffer(lines.replace(b"\r\n", b"  ").replace(b"\n", b" "), np.uint8)
    ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == ord("\n")) + 1
    if len(data) and not (len(ends) and ends[-1] == len(data)):
        ends = np.append(ends, len(data))
    bounds = np.append(0, ends).astype(np.int64)
    if offset == 0 and lines.startswith(BOM_UTF8):
        data = data.copy()
        data[:3] = ord(" ")
    texts = binary_array(bounds, data)
    if b"\0" not in lines and (lines.isascii() or is_utf8(lines)):
        return Parsed([DocumentBlock.from_texts(None, texts)], len(texts))
    reasons = ["nul" if b"\0" in text else None if is_utf8(text) else "bad_utf8" for text in texts.to_pylist()]
    good = texts.take(pa.array([row for row, reason in enumerate(reasons) if reason is None], pa.int64()))
    bad = [
        BadRecord(reason, offset + int(bounds[row]), int(bounds[row + 1] - bounds[row]))
        for row, reason in enumerate(reasons)
        if reason is not None
    ]
    return Parsed([DocumentBlock.from_texts(None, good)], len(texts), bad)


def parse_jsonl(lines: bytes, fields: Fields, offset: int = 0) -> Parsed:
    """One JSON object on each line. The user is a string or a whole number of 64 bits; the text is a string.

    Fast path: if every line starts with `{` and ends with `}`, and Arrow finds as many objects as there are lines, each
    line is exactly one object. Otherwise we inspect lines one by one, drop the bad ones, and give the rest to Arrow
    again in groups with the same fields. Arrow decides; Python only finds the reason.
    """
    if plain_objects(lines):
        count = lines.count(b"\n") + (not lines.endswith(b"\n"))
        block = _json_block(lines, count, fields)
        if block is not None:
            return Parsed([block], count)
    records = _split(lines, offset, b" \t\r")
    groups: dict[Any, list[_Line]] = {}
    bad: list[BadRecord] = []
    bad_users: list[bytes] = []
    for record in records:
        reason, shape, user = _look_at_json(record[1], fields)
        if shape is None:
            bad.append(_name(record, reason))
            bad_users += user
        else:
            groups.setdefault((reason, *shape), []).append(record)
    blocks: list[DocumentBlock] = []
    for (reason, *shape), group in groups.items():
        narrow = dataclasses.replace(fields, user=(shape[0],), text=(shape[1],)) if shape[0] else fields
        parse = functools.partial(_json_block, fields=narrow)
        if reason:  # Python refuses these; Arrow is asked one by one
            parsed = [_parse_halves([record], parse) for record in group]
            found, left = (
                [block for some, _ in parsed for block in some],
                [record for _, rest in parsed for record in rest],
            )
        else:
            found, left = _parse_halves(group, parse)
        blocks += found
        bad += [_name(record, reason or "bad_json") for record in left]
        bad_users += [user for record in left for user in _look_at_json(record[1], fields)[2]]
    return Parsed(blocks, len(records), bad, bad_users)


def parse_tsv(lines: bytes, header: bytes, fields: Fields, offset: int = 0) -> Parsed:
    """One record on each line: values between tabs, in the columns that the header names. There are no quotes."""
    records = _split(lines, offset, b"\r")
    columns = tsv_names(header)
    users, texts = ([name for name in names if name in columns] for names in (fields.user, fields.content))
    if not users:
        return Parsed([], len(records), [_name(record, "missing_user") for record in records])
    user_at, text_at = columns.index(users[0]), columns.index(texts[0]) if texts else -1
    names, contents, bad, bad_users = [], [], [], []
    for record in records:
        line = record[1]
        values = line.split(b"\t")
        user = values[user_at] if len(values) == len(columns) else b""
        reason = ""
        if not is_utf8(line):
            reason = "bad_utf8"
        elif _has_control(line):
            reason = "control_character"
        elif len(values) != len(columns):
            reason = "missing_columns" if len(values) < len(columns) else "bad_row"
        elif not user:
            reason = "missing_user"
        elif not texts:
            reason = "missing_text"
        if reason:
            bad.append(_name(record, reason))
            if user and is_utf8(user) and not _has_control(user):
                bad_users.append(user)
        else:
            names.append(user)
            contents.append(values[text_at])
    block = DocumentBlock.from_texts(pa.array(names, pa.large_binary()), pa.array(contents, pa.large_binary()))
    return Parsed([block] if names else [], len(records), bad, bad_users)


def _has_control(value: bytes) -> bool:
    return b"\r" in value or b"\0" in value or value.startswith(BOM_UTF8)


def tsv_names(header: bytes) -> list[str]:
    """The names of the columns in a header."""
    return [name.strip() for name in header.removeprefix(BOM_UTF8).decode(errors="replace").split("\t")]


_Line = tuple[int, bytes]


def _split(lines: bytes, offset: int, white: bytes) -> list[_Line]:
    """The lines that are not blank, with their places, without `white` at their ends and byte order marks.

    Where tabs are not white, a line of tabs is a record with empty values.
    """
    records, at = [], offset
    blank = white + b" \v\f"
    for line in lines.split(b"\n"):
        bare = line.strip(white).removeprefix(BOM_UTF8)
        if bare.strip(blank):
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


def plain_objects(lines: bytes) -> bool:
    """Whether every line opens and closes an object, and all is UTF-8."""
    data = np.frombuffer(lines, np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    if len(data) and data[-1] != ord("\n"):
        ends = np.append(ends, len(data))
    starts = np.append(0, ends[:-1] + 1)
    if not len(ends) or (ends - starts < 2).any():
        return False
    framed = (data[starts] == ord("{")).all() and (data[ends - 1] == ord("}")).all()
    return bool(framed) and (lines.isascii() or is_utf8(lines))


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
    """A block from columns, or None if a user is missing or empty, or a text is missing."""
    if contents.null_count or not pc.all(pc.greater(pc.binary_length(users), 0), skip_nulls=False).as_py():
        return None
    if not pa.types.is_list(contents.type) and not pa.types.is_large_list(contents.type):
        return DocumentBlock.from_texts(users, contents)
    tokens = contents.flatten()
    if tokens.null_count:
        return None
    bounds = np.append(0, np.cumsum(pc.list_value_length(contents).to_numpy(zero_copy_only=False), dtype=np.int64))
    return DocumentBlock.from_tokens(users, tokens, bounds)


def _look_at_json(line: bytes, fields: Fields) -> tuple[str, tuple[str, str, str] | None, list[bytes]]:
    """The reason why one line cannot be used, its shape: (user field, content field, kind of user), and its user.

    The shape is None if Arrow need not be asked: a line that Python reads and that lacks a user or a text is bad for
    Arrow, too. If Python cannot read the line, the names in the shape are empty: Arrow may be able to (a number with
    5,000 digits, for example). The list has the user, or is empty if there is no usable one.
    """
    if not is_utf8(line):
        return "bad_utf8", None, _whose(line, fields)
    if line[:1] != b"{" or line[-1:] != b"}":
        return _why_no_object(line), None, []
    repeated = False

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        repeated = repeated or len(dict(found)) < len(found)
        return dict(found)

    try:
        record = json.loads(line, object_pairs_hook=pairs)
    except RecursionError:
        return "too_deep", ("", "", ""), []
    except ValueError:
        return "bad_json", ("", "", ""), _whose(line, fields)
    if repeated:
        return "repeated_field", ("", "", ""), _whose(line, fields)
    user_name = next((name for name in fields.user if record.get(name) is not None), None)
    text_name = next((name for name in fields.content if record.get(name) is not None), None)
    if user_name is None or record[user_name] == "":
        return "missing_user", None, []
    user = record[user_name]
    if isinstance(user, bool) or not isinstance(user, (str, int)):
        return "bad_user", None, []
    usable = utf8_of(str(user))
    if isinstance(user, int) and not -(2**63) <= user < 2**63:
        return "bad_user", None, usable
    if text_name is None:
        return "missing_text", None, usable
    content = record[text_name]
    strings = content if fields.tokens and isinstance(content, list) else [content]
    if not all(isinstance(string, str) for string in strings) or bool(fields.tokens) != isinstance(content, list):
        return "bad_text", None, usable
    if not usable or not utf8_of("".join(strings)):
        return "lone_surrogate", None, usable
    return "", (user_name, text_name, type(user).__name__), usable


def _whose(line: bytes, fields: Fields) -> list[bytes]:
    """The user of a bad line, as a list of one, read as leniently as possible; empty if there is none to be read.

    Privacy: a user counts once for the gate, but only if the user of each bad record is known. Bytes that are not
    UTF-8, control characters and repeated fields elsewhere in the line do not hide the user.
    """
    try:
        found = json.loads(line.decode("utf-8", "surrogateescape"), strict=False, object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        return []
    pairs = [pair for pair in found if pair[1] is not None] if isinstance(found, tuple) else []
    for field in fields.user:
        values = [value for name, value in pairs if name == field]
        if values:
            known = len(values) == 1 and isinstance(values[0], (str, int)) and not isinstance(values[0], bool)
            return utf8_of(str(values[0])) if known and values[0] != "" else []
    return []


def utf8_of(text: str) -> list[bytes]:
    """The text in UTF-8, as a list of one; or an empty list if it has half of a surrogate pair."""
    try:
        return [text.encode()]
    except UnicodeEncodeError:
        return []


def _why_no_object(line: bytes) -> str:
    try:
        return "bad_json" if isinstance(json.loads(line), dict) else "no_object"
    except RecursionError:
        return "too_deep"
    except ValueError:
        return "bad_json"


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True

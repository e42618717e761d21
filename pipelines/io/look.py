"""A look at the input before a run: whether its files are what their names say, and have the fields asked for.

A run with the wrong field would read for hours, use its key up and release nothing. So a few files are opened before
anything is built or written: the schema of Parquet and Avro, the header of CSV and TSV, the first records of JSON
lines.

Privacy: a file is refused only if *none* of the records that were looked at has the field, after `LOOKED_RECORDS` of
them or all that there are. So one record of one user cannot stop a run. Only the operator, who has the data, sees
whether a run is refused (SECURITY.md, known exceptions). No value of a record is shown. Of JSON records, whose field
names users may have written, only names that at least half of the records have are shown; of a header, only those that
look like names, because a CSV file without a header has a user's record in its place.
"""

import dataclasses
import itertools
import json
import os
import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import fastavro
import pyarrow.parquet
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from dpngram.accounting import ParameterError
from dpngram.pipelines.io.lines import is_damage, open_file
from dpngram.pipelines.io.parsing import tsv_names
from dpngram.pipelines.io.tables import csv_names

__all__ = [
    "LOOKED_RECORDS",
    "Columns",
    "Look",
    "Wanted",
    "avro_columns",
    "csv_columns",
    "json_columns",
    "look_at_files",
    "parquet_columns",
    "tsv_columns",
    "without_compression",
]

LOOKED_RECORDS = 100
_MOST_BYTES = 16 << 20
_READ_BYTES = 1 << 16
_MOST_KINDS, _MOST_FILES = 4, 3  # distinct suffixes, and files of each
_MOST_NAMES, _NAME_LENGTH = 20, 80
_PLAIN = re.compile(r"[^\W\d]\w*([ .:/-]\w+){0,2}")
_PACKED = {
    CompressionTypes.GZIP: ((b"\x1f\x8b",), ".gz"),
    CompressionTypes.BZIP2: ((b"BZh",), ".bz2"),
    # A frame, or one of the frames that readers skip.
    CompressionTypes.ZSTD: (
        (b"\x28\xb5\x2f\xfd", *(bytes([byte]) + b"\x2a\x4d\x18" for byte in range(80, 96))),
        ".zst",
    ),
}


class Columns(NamedTuple):
    """What a look at one file found.

    Args:
        names: of its columns, or of the fields that any of the records has. May be what users wrote: not to be shown.
        shown: the names that an error may show.
        records: how many records were looked at; 0 for a schema or a header.
    """

    names: frozenset[str]
    shown: tuple[str, ...]
    records: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Look:
    """How to look at files of one format.

    Args:
        columns: (path, compression, lines to skip) -> its columns; None if they cannot be told. None for a format
            without names.
        magic: what such a file begins with.
    """

    columns: Callable[[str, str, int], Columns | None] | None = None
    magic: bytes = b""


class Wanted(NamedTuple):
    """A field that records must have, under one of these names, and the flag that names it."""

    names: tuple[str, ...]
    flag: str


class _Problem(NamedTuple):
    text: str
    damaged: bool = False
    other: bool = False  # the file is not of the format that its name says

    @property
    def broken(self) -> bool:
        return self.damaged or self.other


def look_at_files(
    files: Mapping[str, int],
    name: str,
    look: Look,
    wanted: Sequence[Wanted],
    skip_header_lines: int = 0,
    *,
    fields_only: bool = False,
) -> None:
    """Raises ParameterError if none of the files that are looked at has the wanted fields.

    A few files of each suffix are opened. Where one of them is as it should be, the others of that suffix are taken to
    be so, too: what is wrong with some records is for the run to find. A damaged file stops the run only if no other
    file could be read.

    Args:
        files: paths and sizes. Empty files say nothing.
        name: the name of the format.
        look: how to look at a file.
        wanted: the fields.
        skip_header_lines: lines at the head of each file that are not records.
        fields_only: leave it to the run to find broken files.
    """
    kinds: dict[tuple[str, str], list[str]] = {}
    for path, size in files.items():
        if size:
            kinds.setdefault(_kind(path), []).append(path)
    read, damaged = False, None
    for paths in itertools.islice(kinds.values(), _MOST_KINDS):
        problems: list[_Problem] = []
        for path in paths[:_MOST_FILES]:
            problem = _look_at_file(path, files[path], name, look, wanted, skip_header_lines)
            if problem is None or (fields_only and problem.broken):
                read = True
                break
            problems.append(problem)
        else:
            wrong = [problem for problem in problems if not problem.damaged]
            if wrong:
                raise ParameterError(wrong[0].text)
            damaged = damaged or problems[0]
    if damaged and not read:
        raise ParameterError(damaged.text)


def without_compression(path: str) -> str:
    """The name of a file without the suffix of its compression."""
    packed = CompressionTypes.detect_compression_type(path) != CompressionTypes.UNCOMPRESSED
    return path.rpartition(".")[0] if packed else path


def _kind(path: str) -> tuple[str, str]:
    suffix = os.path.splitext(without_compression(path))[1].lower()
    return CompressionTypes.detect_compression_type(path), suffix if suffix.isascii() and suffix[1:].isalpha() else ""


def _look_at_file(
    path: str, size: int, name: str, look: Look, wanted: Sequence[Wanted], skip_header_lines: int
) -> _Problem | None:
    compression = CompressionTypes.detect_compression_type(path)
    contradiction = _contradiction(path, size, name, look, compression)
    if contradiction is not None:
        return _Problem(contradiction, other=True)
    if look.columns is None:
        return None
    try:
        columns = look.columns(path, compression, skip_header_lines)
    except Exception as error:
        if not is_damage(error, "" if look.magic else compression):
            raise
        return _Problem(f"{path} cannot be read as {name}: it is damaged or not complete.", damaged=True)
    missing = [] if columns is None else [one for one in wanted if not columns.names.intersection(one.names)]
    return _Problem(_missing(path, columns, missing)) if columns is not None and missing else None


def _contradiction(path: str, size: int, name: str, look: Look, compression: str) -> str | None:
    """What is wrong with a file whose first bytes are not those of its format, or of the compression in its name."""
    with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        head = bytes(file.read(10))
        file.seek(max(size - 4, 0))
        tail = bytes(file.read(4))
    packed = next((kind for kind, (starts, _) in _PACKED.items() if head.startswith(starts)), None)
    actual = packed or ("parquet" if head[:4] == tail == b"PAR1" else "avro" if head[:4] == b"Obj\x01" else None)
    if look.magic:
        if head.startswith(look.magic):
            return None
        other = f", but {actual}" if actual else ""
        return f"{path} is not {name}{other}: its first bytes are not those of {name} (--input_format)."
    if compression in _PACKED:
        if compression == packed:
            return None
        return f"{path} is not {compression}, though its name ends like that: rename it or pack it again."
    if compression != CompressionTypes.UNCOMPRESSED or actual is None or look.columns is None:
        return None  # in plain text, the first bytes may be any user's
    if packed == CompressionTypes.BZIP2 and head[4:10] != b"1AY&SY":
        return None  # a text may begin with these three letters
    if packed:
        return f"{path} is packed with {packed}: its name must end with {_PACKED[packed][1]}."
    return f"{path} is {actual}, not {name} (--input_format)."


def _missing(path: str, columns: Columns, missing: Sequence[Wanted]) -> str:
    flags = ", ".join(f"--{one.flag}" for one in missing)
    records = f"the first {columns.records} records of " if columns.records > 1 else "the only record of "
    if columns.records and not columns.names:
        return f"no JSON object in the first lines of {path}: each line must be one (--input_format)"
    kind = "field" if columns.records else "column"
    names = " and ".join(f"no {kind} {' or '.join(f'{name!r:.80}' for name in one.names)}" for one in missing)
    return f"{names} in {records if columns.records else ''}{path}; {_listed(columns)} ({flags})"


def _listed(columns: Columns) -> str:
    """The names that may be shown. Of a schema or header, also how many more there are."""
    subject = "they have" if columns.records > 1 else "it has"
    shown = [_printable(name) for name in columns.shown[:_MOST_NAMES]]
    more = len(columns.shown if columns.records else columns.names) - len(shown)
    if not shown:
        return f"{subject} no others in common" if columns.records else f"{subject} {more} that do not look like names"
    return f"{subject} {', '.join(shown)}" + (f" and {more} more" if more > 0 else "")


def _printable(name: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in name[:_NAME_LENGTH])


def parquet_columns(path: str, _compression: str, _skip_header_lines: int) -> Columns:
    with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        return _of_schema(pyarrow.parquet.ParquetFile(file).schema_arrow.names)


def avro_columns(path: str, _compression: str, _skip_header_lines: int) -> Columns:
    with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        try:
            schema: Any = fastavro.reader(file).writer_schema
            names = [field["name"] for field in schema["fields"]]
        except (MemoryError, OSError):
            raise
        except Exception:  # a broken header can raise nearly anything, with texts that quote it
            raise ValueError("the header is broken") from None
        return _of_schema(names)


def csv_columns(path: str, compression: str, skip_header_lines: int) -> Columns | None:
    return _of_header(csv_names, path, compression, skip_header_lines)


def tsv_columns(path: str, compression: str, skip_header_lines: int) -> Columns | None:
    return _of_header(tsv_names, path, compression, skip_header_lines)


def json_columns(path: str, compression: str, skip_header_lines: int) -> Columns | None:
    """The fields of the first records. A line that is not a JSON object counts as a record without fields."""
    lines, ended = _first_lines(path, compression, skip_header_lines + LOOKED_RECORDS)
    if len(lines) < skip_header_lines + LOOKED_RECORDS and not ended:
        return None
    records = [line for line in lines[skip_header_lines:] if line.removeprefix(BOM_UTF8).strip()]
    if not records:
        return None
    counts = Counter(name for record in records for name in _json_names(record))
    shown = tuple(name for name, count in counts.items() if 2 * count >= len(records))
    return Columns(frozenset(counts), shown, len(records))


def _json_names(line: bytes) -> Collection[str]:
    try:  # numbers are not looked at: Python refuses those with too many digits, and Arrow does not
        record = json.loads(line.removeprefix(BOM_UTF8).decode(), parse_int=len, parse_float=len)
    except (ValueError, RecursionError):
        return ()
    return record.keys() if isinstance(record, dict) else ()


def _of_schema(names: Sequence[str]) -> Columns:
    return Columns(frozenset(names), tuple(names))


def _of_header(
    split: Callable[[bytes], list[str]], path: str, compression: str, skip_header_lines: int
) -> Columns | None:
    lines, _ = _first_lines(path, compression, skip_header_lines + 1)
    if len(lines) <= skip_header_lines:
        return None
    names = split(lines[skip_header_lines].rstrip(b"\r"))
    plain = tuple(name for name in names if len(name) <= _NAME_LENGTH // 2 and _PLAIN.fullmatch(name))
    return Columns(frozenset(names), plain)


def _first_lines(path: str, compression: str, most: int) -> tuple[list[bytes], bool]:
    """Up to `most` whole lines from the head of a file, without their ends, and whether the file has no more.

    Reading stops where a packed file is damaged: what came before stands.
    """
    parts: list[bytes] = []
    lines = size = 0
    ended = False
    with open_file(path, compression) as file:
        while lines < most and size < _MOST_BYTES and not ended:
            try:
                part = bytes(file.read(_READ_BYTES))
            except Exception as error:
                if not parts or not is_damage(error, compression):
                    raise
                break
            parts.append(part)
            lines, size, ended = lines + part.count(b"\n"), size + len(part), not part
    found = b"".join(parts).split(b"\n")
    rest = found.pop()
    if ended and rest:
        found.append(rest)
    return found[:most], ended

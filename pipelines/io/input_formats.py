"""The input formats. `INPUT_FORMATS` is the one list of them: flags, help, checks and templates are made from it.

A new format is one entry: how a file is split into parts, how the documents of a part are read, and what its records
can hold. A source that is not files, such as BigQuery, is an entry that brings its own transform.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping

import apache_beam as beam
from apache_beam.io.filesystem import CompressionTypes

from dpngram.accounting import ParameterError
from dpngram.pipelines.io.bigquery import TABLE_PATTERN, ReadBigQuery, check_table
from dpngram.pipelines.io.lines import RANGE_BYTES, ByteRange, head_bytes, header_line, is_damage, read_pieces
from dpngram.pipelines.io.look import (
    Look,
    Wanted,
    avro_columns,
    csv_columns,
    json_columns,
    look_at_files,
    parquet_columns,
    tsv_columns,
    without_compression,
)
from dpngram.pipelines.io.parsing import BadRecord, Fields, Parsed, parse_jsonl, parse_text, parse_tsv
from dpngram.pipelines.io.tables import parquet_groups, read_avro, read_csv, read_parquet

__all__ = [
    "INPUT_FORMATS",
    "FileReader",
    "InputFormat",
    "Reader",
    "TableReader",
    "format_of_files",
    "format_of_suffix",
    "input_format_help",
    "split_lines",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reader:
    """What every input format says of itself.

    Args:
        help: a few words that say what the format is.
        has_users: whether a record names its user. Where it does not, each record is a user.
        has_token_lists: whether a field can hold a list of tokens instead of a text.
        has_header_lines: whether lines at the head of a file can be skipped.
    """

    help: str
    has_users: bool = True
    has_token_lists: bool = False
    has_header_lines: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileReader(Reader):
    """A format of files.

    Args:
        split: (path, size in bytes, lines to skip) -> the parts of the file that can be read apart.
        read: (part, fields, lines to skip) -> the documents of the part, some at a time.
        suffixes: what the names of such files end with, before the suffix of a compression.
        look: how to look at a file before a run.
    """

    split: Callable[[str, int, int], Iterator[ByteRange]]
    read: Callable[[ByteRange, Fields, int], Iterator[Parsed]]
    suffixes: tuple[str, ...] = ()
    look: Look = Look()  # noqa: RUF009 (frozen)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableReader(Reader):
    """A source that is not files: tables of a service, read by a transform.

    Args:
        pattern: a regular expression for the name of a table.
        check: (flag, table) -> the table, or a ParameterError.
        transform: (tables, fields) -> a root transform that gives documents, as `ReadDocuments` does.
    """

    pattern: str
    check: Callable[[str, str], str]
    transform: Callable[[list[str], Fields], beam.PTransform]


def split_lines(path: str, size: int, skip_header_lines: int) -> Iterator[ByteRange]:
    """Byte ranges of a file of lines, without the lines at its head; one range for a file that is compressed."""
    compression = CompressionTypes.detect_compression_type(path)
    if compression != CompressionTypes.UNCOMPRESSED:
        yield from _whole_file(path, size, skip_header_lines)
        return
    for start in range(head_bytes(path, skip_header_lines), size, RANGE_BYTES):
        yield ByteRange(path, start, min(start + RANGE_BYTES, size), compression)


def _whole_file(path: str, _size: int, _skip_header_lines: int) -> Iterator[ByteRange]:
    yield ByteRange(path, 0, -1, CompressionTypes.detect_compression_type(path))


def _split_tsv(path: str, size: int, skip_header_lines: int) -> Iterator[ByteRange]:
    yield from split_lines(path, size, skip_header_lines + 1)  # the names of the columns


def _split_row_groups(path: str, _size: int, _skip_header_lines: int) -> Iterator[ByteRange]:
    for group in range(max(parquet_groups(path), 1)):
        yield ByteRange(path, group, group + 1, "")


def _read_lines(parse: Callable[..., Parsed], extent: ByteRange, skip_header_lines: int) -> Iterator[Parsed]:
    """The lines of a part, some megabytes at a time, through `parse`(lines, offset=...)."""
    for piece in read_pieces(extent, skip_header_lines):
        if piece.data is None:
            yield Parsed([], 1, [BadRecord("too_long", piece.offset, piece.length)])
        else:
            yield parse(piece.data, offset=piece.offset)


def _read_text(extent: ByteRange, _fields: Fields, skip_header_lines: int) -> Iterator[Parsed]:
    yield from _read_lines(parse_text, extent, skip_header_lines)


def _read_jsonl(extent: ByteRange, fields: Fields, skip_header_lines: int) -> Iterator[Parsed]:
    yield from _read_lines(functools.partial(parse_jsonl, fields=fields), extent, skip_header_lines)


def _read_tsv(extent: ByteRange, fields: Fields, skip_header_lines: int) -> Iterator[Parsed]:
    header = header_line(extent.path, extent.compression, skip_header_lines)
    yield from _read_lines(functools.partial(parse_tsv, header=header, fields=fields), extent, skip_header_lines + 1)


def _read_csv(extent: ByteRange, fields: Fields, skip_header_lines: int) -> Iterator[Parsed]:
    yield from read_csv(extent.path, extent.compression, skip_header_lines, fields)


def _read_parquet(extent: ByteRange, fields: Fields, _skip_header_lines: int) -> Iterator[Parsed]:
    yield from read_parquet(extent.path, extent.start, fields)


def _read_avro(extent: ByteRange, fields: Fields, _skip_header_lines: int) -> Iterator[Parsed]:
    yield from read_avro(extent.path, fields)


INPUT_FORMATS: dict[str, FileReader | TableReader] = {
    "jsonl": FileReader(
        help="a JSON object on each line",
        split=split_lines,
        read=_read_jsonl,
        suffixes=("jsonl", "ndjson", "json"),
        look=Look(columns=json_columns),
        has_token_lists=True,
        has_header_lines=True,
    ),
    "csv": FileReader(
        help="RFC 4180, the first line names the columns",
        split=_whole_file,
        read=_read_csv,
        suffixes=("csv",),
        look=Look(columns=csv_columns),
        has_header_lines=True,
    ),
    "tsv": FileReader(
        help="values between tabs, without quotes, the first line names the columns",
        split=_split_tsv,
        read=_read_tsv,
        suffixes=("tsv",),
        look=Look(columns=tsv_columns),
        has_header_lines=True,
    ),
    "parquet": FileReader(
        help="Apache Parquet",
        split=_split_row_groups,
        read=_read_parquet,
        suffixes=("parquet",),
        look=Look(columns=parquet_columns, magic=b"PAR1"),
        has_token_lists=True,
    ),
    "avro": FileReader(
        help="Apache Avro",
        split=_whole_file,
        read=_read_avro,
        suffixes=("avro",),
        look=Look(columns=avro_columns, magic=b"Obj\x01"),
        has_token_lists=True,
    ),
    "text": FileReader(
        help="each line is a user",
        split=split_lines,
        read=_read_text,
        suffixes=("txt",),
        has_users=False,
        has_header_lines=True,
    ),
    "bigquery": TableReader(
        help="tables instead of files",
        pattern=TABLE_PATTERN,
        check=check_table,
        transform=ReadBigQuery,
        has_token_lists=True,
    ),
}


def input_format_help() -> str:
    """All formats in one line, each with a few words."""
    return ", ".join(f"{name} ({reader.help})" for name, reader in INPUT_FORMATS.items())


def format_of_suffix(path: str) -> str | None:
    """The format that the suffix of a file or pattern says, compressed or not; None if it says nothing."""
    suffix = os.path.splitext(without_compression(path))[1][1:].lower()
    known = (
        name for name, reader in INPUT_FORMATS.items() if isinstance(reader, FileReader) and suffix in reader.suffixes
    )
    return next(known, None)


def format_of_files(paths: Iterable[str]) -> str:
    """The one format that the suffixes of all files say; else a ParameterError."""
    found: dict[str, str] = {}  # format -> the first file
    for path in paths:
        name = format_of_suffix(path)
        if name is None:
            readers = [reader for reader in INPUT_FORMATS.values() if isinstance(reader, FileReader)]
            known = ", ".join(f".{suffix}" for reader in readers for suffix in reader.suffixes)
            raise ParameterError(
                f"input_format must be given: {path!r} has none of the suffixes {known}, with or without .gz, .bz2 or "
                ".zst (--input_format)."
            )
        found.setdefault(name, path)
    if len(found) > 1:
        (one, first), (other, second) = list(found.items())[:2]
        raise ParameterError(f"input must be of one format, got {first!r} ({one}) and {second!r} ({other}).")
    return next(iter(found))


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputFormat:
    """An input format with what is to be read of its records.

    Args:
        name: one of `INPUT_FORMATS`.
        fields: where a record has its user and its text.
        skip_header_lines: lines at the head of every file that are not records.
    """

    name: str
    fields: Fields = dataclasses.field(default_factory=Fields)
    skip_header_lines: int = 0

    def __post_init__(self) -> None:
        if self.fields.tokens and not self.reader.has_token_lists:
            raise ParameterError(f"--tokens_field is not supported with {self.name}: its values cannot be lists.")
        if self.skip_header_lines and not self.reader.has_header_lines:
            raise ParameterError(f"skip_header_lines must be 0 with {self.name}, got {self.skip_header_lines}.")

    @property
    def reader(self) -> FileReader | TableReader:
        """Looked up by name, also on workers: functions need not travel."""
        return INPUT_FORMATS[self.name]

    @property
    def _files(self) -> FileReader:
        reader = self.reader
        if not isinstance(reader, FileReader):
            raise TypeError(f"{self.name} is not a format of files.")
        return reader

    def look_at(self, files: Mapping[str, int]) -> None:
        """Raises ParameterError if files, with their sizes, are not of this format or lack the fields."""
        content = "tokens_field" if self.fields.tokens else "text_field"
        wanted = [Wanted(self.fields.user, "user_field"), Wanted(self.fields.content, content)]
        look_at_files(files, self.name, self._files.look, wanted, self.skip_header_lines)

    def ranges(self, path: str, size: int) -> Iterator[ByteRange]:
        """The parts of a file that can be read apart."""
        yield from self._files.split(path, size, self.skip_header_lines)

    def read(self, extent: ByteRange) -> Iterator[Parsed]:
        """The documents of one part. A file that breaks off gives what came before, and one bad record."""
        reader = self._files
        try:
            yield from reader.read(extent, self.fields, self.skip_header_lines)
        except Exception as error:
            if not is_damage(error, extent.compression):
                raise  # a failure of the filesystem: the runner tries again
            yield Parsed([], 1, [BadRecord("unreadable", 0, 0)])

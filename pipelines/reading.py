"""Files into blocks of documents: byte ranges, parsed in columns by Arrow, never a Python object a line."""

import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics

from dpngram.transforms.columns import binary_array
from dpngram.transforms.documents import DocumentBlock

__all__ = ["INPUT_FORMATS", "ByteRange", "InputFormat", "ReadDocuments", "parse_jsonl", "parse_text"]

RANGE_BYTES = 4 << 20
_READ_BYTES = 1 << 20


class ByteRange(NamedTuple):
    """The lines of a file that begin in [start, end); a compressed file is one range."""

    path: str
    start: int
    end: int
    compression: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputFormat:
    """How the lines of a file become documents."""

    name: str
    user_field: str
    text_field: str
    skip_header_lines: int = 0

    def parse(self, lines: bytes) -> tuple[DocumentBlock | None, int]:
        """A block from whole lines, and how many lines could not be used."""
        if self.name == "text":
            return parse_text(lines)
        return parse_jsonl(lines, self.user_field, self.text_field)


INPUT_FORMATS = ("jsonl", "text")


def parse_text(lines: bytes) -> tuple[DocumentBlock | None, int]:
    """One document a line, without users. A line that is not UTF-8 is left out and counted."""
    data = np.frombuffer(lines, np.uint8)
    ends = np.flatnonzero(data == ord("\n")) + 1
    if len(data) and not (len(ends) and ends[-1] == len(data)):
        ends = np.append(ends, len(data))
    texts = binary_array(np.append(0, ends).astype(np.int64), data)
    if lines.isascii() or _is_utf8(lines):
        return DocumentBlock.from_texts(None, texts), 0
    good = [row for row, text in enumerate(texts.to_pylist()) if _is_utf8(text)]
    return DocumentBlock.from_texts(None, texts.take(pa.array(good, pa.int64()))), len(texts) - len(good)


def parse_jsonl(lines: bytes, user_field: str, text_field: str) -> tuple[DocumentBlock | None, int]:
    """One JSON object a line. The user is a string or a whole number; the text is a string.

    Arrow parses the chunk at once. Where it cannot, because of a broken line or a change of types, the chunk is parsed
    line by line, and lines that cannot be used are left out and counted.
    """
    if not lines.isascii() and not _is_utf8(lines):
        return _parse_slowly(lines, user_field, text_field)
    for user_type in (pa.string(), pa.int64()):
        try:
            table = pyarrow.json.read_json(
                pa.BufferReader(lines),
                read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
                parse_options=pyarrow.json.ParseOptions(
                    explicit_schema=pa.schema([(user_field, user_type), (text_field, pa.string())]),
                    unexpected_field_behavior="ignore",
                ),
            )
        except pa.ArrowInvalid:
            continue  # the message may quote the data; it goes nowhere
        users = table[user_field].combine_chunks().cast(pa.large_string())
        texts = table[text_field].combine_chunks()
        usable = pc.and_(pc.not_equal(users, ""), pc.is_valid(texts)).fill_null(False)
        kept = pc.sum(usable).as_py() or 0
        if kept < len(usable):
            users, texts = users.filter(usable), texts.filter(usable)
        return DocumentBlock.from_texts(users, texts), len(usable) - kept
    return _parse_slowly(lines, user_field, text_field)


def _parse_slowly(lines: bytes, user_field: str, text_field: str) -> tuple[DocumentBlock | None, int]:
    users, texts, bad = [], [], 0
    for line in lines.split(b"\n"):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            user, text = record[user_field], record[text_field]
            if isinstance(user, int) and not isinstance(user, bool):
                user = str(user)
            if not (isinstance(user, str) and user and isinstance(text, str)):
                raise TypeError
            encoded = user.encode(), text.encode()
        except (ValueError, TypeError, LookupError, RecursionError):
            bad += 1
            continue
        users.append(encoded[0])
        texts.append(encoded[1])
    if not users:
        return None, bad
    return DocumentBlock.from_texts(pa.array(users, pa.large_binary()), pa.array(texts, pa.large_binary())), bad


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class ReadDocuments(beam.PTransform):
    """Root: file patterns -> DocumentBlock. Any Beam filesystem; gz and the like by their names.

    Privacy: the blocks are the private data. Lines that cannot be used are counted, never shown.
    """

    def __init__(self, patterns: list[str], input_format: InputFormat) -> None:
        super().__init__()
        self._patterns, self._format = patterns, input_format

    def expand(self, pbegin: Any) -> beam.PCollection[DocumentBlock]:
        return (
            pbegin
            | "Patterns" >> beam.Create(self._patterns)
            | "Ranges" >> beam.ParDo(_SplitDoFn(self._format.skip_header_lines))
            | "Spread" >> beam.Reshuffle()
            | "Parse" >> beam.ParDo(_ParseDoFn(self._format))
        )


class _SplitDoFn(beam.DoFn):
    def __init__(self, skip_header_lines: int) -> None:
        self._skip = skip_header_lines

    def process(self, pattern: str) -> Iterator[ByteRange]:
        for matched in FileSystems.match([pattern])[0].metadata_list:
            compression = CompressionTypes.detect_compression_type(matched.path)
            if compression != CompressionTypes.UNCOMPRESSED:
                yield ByteRange(matched.path, 0, -1, compression)
                continue
            first = self._header_bytes(matched.path) if self._skip else 0
            for start in range(first, matched.size_in_bytes, RANGE_BYTES):
                yield ByteRange(matched.path, start, min(start + RANGE_BYTES, matched.size_in_bytes), compression)

    def _header_bytes(self, path: str) -> int:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            return sum(len(file.readline()) for _ in range(self._skip))


class _ParseDoFn(beam.DoFn):
    def __init__(self, input_format: InputFormat) -> None:
        self._format = input_format
        self._bad = Metrics.counter("dpngram", "bad_lines")

    def process(self, extent: ByteRange) -> Iterator[DocumentBlock]:
        for lines in read_lines(extent, self._format.skip_header_lines):
            block, bad = self._format.parse(lines)
            self._bad.inc(bad)
            if block is not None:
                yield block


def read_lines(extent: ByteRange, skip_header_lines: int) -> Iterator[bytes]:
    """The whole lines of a range, in pieces of about RANGE_BYTES."""
    with FileSystems.open(extent.path, compression_type=extent.compression) as file:
        if extent.compression == CompressionTypes.UNCOMPRESSED:
            lines = _read_range(file, extent)
            if lines:
                yield lines
            return
        for _ in range(skip_header_lines):
            file.readline()
        yield from _read_stream(file.read)


def _read_range(file: Any, extent: ByteRange) -> bytes:
    start = extent.start
    if start:
        # The line across the border belongs to the range before; one that begins at the border is ours.
        file.seek(start - 1)
        start += len(file.readline()) - 1
    if start >= extent.end:
        return b""
    file.seek(start)
    body = file.read(extent.end - start)
    return bytes(body) if body.endswith(b"\n") else bytes(body + file.readline())


def _read_stream(read: Callable[[int], bytes]) -> Iterator[bytes]:
    pieces: list[bytes] = []
    size = 0
    while piece := read(_READ_BYTES):
        pieces.append(piece)
        size += len(piece)
        cut = piece.rfind(b"\n") + 1
        if size >= RANGE_BYTES and cut:
            yield b"".join([*pieces[:-1], piece[:cut]])
            pieces, size = [piece[cut:]], len(piece) - cut
    if size:
        yield b"".join(pieces)

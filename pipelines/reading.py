"""Files into blocks of documents: byte ranges, parsed in columns by Arrow, never a Python object a line."""

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Iterator
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

__all__ = ["INPUT_FORMATS", "ByteRange", "InputFormat", "ReadDocuments", "match_files", "parse_jsonl", "parse_text"]

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
    """One JSON object a line. The user is a string or a whole number of 64 bits; the text is a string.

    Arrow parses all lines at once, and where it refuses, each half by itself, down to the lines that are bad: they
    are left out and counted.

    Privacy: what a line gives must depend on that line alone, or one user's broken line would change what is
    read of others. Arrow does not look at line ends. But only lines that open and close an object are given to it,
    an object closed at a line's end and followed by an opened one is no part of a larger value, and the number of
    objects must be that of lines; so every line is one object, as it would be by itself.
    """
    if _plain_lines(lines):
        found, bad = _parse_objects(lines, lines.count(b"\n") + (not lines.endswith(b"\n")), user_field, text_field)
        if not bad:
            return found[0], 0
    objects = [line.strip() for line in lines.split(b"\n") if line.strip()]
    usable = [line for line in objects if line[:1] == b"{" and line[-1:] == b"}" and _is_utf8(line)]
    blocks, bad = _parse_halves(usable, user_field, text_field)
    return _concatenate(blocks), bad + len(objects) - len(usable)


def _plain_lines(lines: bytes) -> bool:
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


def _parse_halves(lines: list[bytes], user_field: str, text_field: str) -> tuple[list[DocumentBlock], int]:
    if not lines:
        return [], 0
    found, bad = _parse_objects(b"\n".join(lines), len(lines), user_field, text_field)
    if bad == 0 or len(lines) == 1:
        return found, bad
    middle = len(lines) // 2
    first, first_bad = _parse_halves(lines[:middle], user_field, text_field)
    second, second_bad = _parse_halves(lines[middle:], user_field, text_field)
    return first + second, first_bad + second_bad


def _parse_objects(lines: bytes, count: int, user_field: str, text_field: str) -> tuple[list[DocumentBlock], int]:
    """The block of these lines, or none of them and the number of lines: all or nothing."""
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
        users, texts = table[user_field].combine_chunks().cast(pa.string()), table[text_field].combine_chunks()
        if len(table) == count and not texts.null_count and pc.all(pc.not_equal(users, ""), skip_nulls=False).as_py():
            return [DocumentBlock.from_texts(users, texts)], 0
    return [], count


def _concatenate(blocks: list[DocumentBlock]) -> DocumentBlock | None:
    if not blocks:
        return None
    users = pa.concat_arrays([binary_array(block.user_offsets, block.user_bytes) for block in blocks])
    texts = pa.concat_arrays([binary_array(block.offsets, block.data) for block in blocks])
    return DocumentBlock.from_texts(users, texts)


def match_files(patterns: list[str]) -> dict[str, int]:
    """The files of all patterns with their sizes, each once, however many patterns name it.

    Privacy: a file read twice would make two users of every line that has no user id.
    """
    found = {}
    for matched in FileSystems.match(patterns):
        for file in matched.metadata_list:
            local = FileSystems.get_scheme(file.path) is None
            found[os.path.realpath(file.path) if local else file.path] = (file.path, file.size_in_bytes)
    return dict(sorted(found.values()))


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
            | "Patterns" >> beam.Create([json.dumps(self._patterns)])  # one element: a file may match several
            | "Ranges" >> beam.ParDo(_SplitDoFn(self._format.skip_header_lines))  # (number, range)
            | "Spread" >> beam.GroupByKey()  # over the workers
            | "Parse" >> beam.ParDo(_ParseDoFn(self._format))
        )


class _SplitDoFn(beam.DoFn):
    def __init__(self, skip_header_lines: int) -> None:
        self._skip = skip_header_lines

    def process(self, patterns: str) -> Iterator[tuple[int, ByteRange]]:
        yield from enumerate(self._ranges(match_files(json.loads(patterns))))

    def _ranges(self, files: dict[str, int]) -> Iterator[ByteRange]:
        for path, size in files.items():
            compression = CompressionTypes.detect_compression_type(path)
            if compression != CompressionTypes.UNCOMPRESSED:
                yield ByteRange(path, 0, -1, compression)
                continue
            first = self._header_bytes(path) if self._skip else 0
            for start in range(first, size, RANGE_BYTES):
                yield ByteRange(path, start, min(start + RANGE_BYTES, size), compression)

    def _header_bytes(self, path: str) -> int:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            return sum(len(file.readline()) for _ in range(self._skip))


class _ParseDoFn(beam.DoFn):
    def __init__(self, input_format: InputFormat) -> None:
        self._format = input_format
        self._bad = Metrics.counter("dpngram", "bad_lines")

    def process(self, numbered: tuple[int, Iterable[ByteRange]]) -> Iterator[DocumentBlock]:
        for extent in numbered[1]:
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

"""Whole lines of a file, some megabytes at a time, with the place of each piece."""

import bz2
import contextlib
import gzip
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

__all__ = [
    "MAX_RECORD_BYTES",
    "RANGE_BYTES",
    "ByteRange",
    "Piece",
    "head_bytes",
    "header_line",
    "is_damage",
    "open_file",
    "read_pieces",
]

RANGE_BYTES = 4 << 20
# A longer line is counted and passed over without being held: one record must not decide how much memory is needed.
MAX_RECORD_BYTES = 64 << 20
_READ_BYTES = 1 << 20


class ByteRange(NamedTuple):
    """The lines of a file that begin in [start, end). A compressed file is one range; of Parquet it is row groups."""

    path: str
    start: int
    end: int
    compression: str


class Piece(NamedTuple):
    """Whole lines, and where they begin in the (uncompressed) file. `data` is None for a line that is too long."""

    offset: int
    data: bytes | None
    length: int


def is_damage(error: Exception, compression: str) -> bool:
    """Whether an error says that a file is broken, rather than out of reach for the moment.

    Privacy: running out of memory never counts as damage, even if Arrow reports it like damage. Otherwise all records
    of a part would be left out because one of them is large, and what is read of one user would depend on another.

    Args:
        error: what was raised while a part of the file was read.
        compression: of the file, as Beam names it; "" for columnar files.
    """
    if isinstance(error, (MemoryError, pa.ArrowNotImplementedError, pa.lib.ArrowCapacityError)):
        return False  # Arrow raises the last two for a row of two gigabytes, for example, and never for damage
    if isinstance(error, OSError):
        # Some decompressors, and Arrow, report broken data as an OSError without a number; Arrow's is not a subclass
        # of it. (Columnar files have the compression "".)
        packed = compression not in ("", CompressionTypes.UNCOMPRESSED)
        arrow = compression == "" and type(error) is OSError
        return isinstance(error, gzip.BadGzipFile) or (error.errno is None and (packed or arrow))
    if type(error) is RuntimeError:  # the file's fault only if a generator was cut short; else no thread, a closed pool
        return isinstance(error.__cause__, StopIteration)
    known = (EOFError, ValueError, RecursionError, IndexError, KeyError, OverflowError, zlib.error, pa.ArrowException)
    return isinstance(error, known) or type(error).__name__ == "ZstdError"


@contextlib.contextmanager
def open_file(path: str, compression: str) -> Iterator[Any]:
    """A file on any Beam filesystem. We read gz and bz2 ourselves: Beam's readers accept a file that breaks off."""
    ours = compression in (CompressionTypes.GZIP, CompressionTypes.BZIP2)
    with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED if ours else compression) as raw:
        if compression == CompressionTypes.GZIP:
            with gzip.GzipFile(fileobj=raw, mode="rb") as file:
                yield file
        elif compression == CompressionTypes.BZIP2:
            with bz2.BZ2File(raw) as file:
                yield file
        else:
            yield raw


def read_pieces(extent: ByteRange, skip_header_lines: int) -> Iterator[Piece]:
    """The lines of a range, in pieces of about RANGE_BYTES."""
    with open_file(extent.path, extent.compression) as file:
        if extent.compression == CompressionTypes.UNCOMPRESSED:
            pieces = _read_range(file, extent.start, extent.end)
        else:
            start = sum(len(file.readline()) for _ in range(skip_header_lines))
            pieces = _read_stream(file.read, start)
        for piece in pieces:
            yield from _drop_long_lines(piece)


def head_bytes(path: str, skip_header_lines: int) -> int:
    """How many bytes the first lines of an uncompressed file have."""
    if not skip_header_lines:
        return 0
    with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        return sum(len(file.readline()) for _ in range(skip_header_lines))


def header_line(path: str, compression: str, skip_header_lines: int) -> bytes:
    """The first line of a file after those to be skipped, without its end."""
    with open_file(path, compression) as file:
        for _ in range(skip_header_lines):
            file.readline()
        return bytes(file.readline()).rstrip(b"\r\n")


def _drop_long_lines(piece: Piece) -> Iterator[Piece]:
    """Cuts out lines that are too long. Which are depends on the line alone, not on what was read along with it."""
    if piece.data is None or piece.length <= MAX_RECORD_BYTES:
        yield piece
        return
    at = piece.offset
    for line in _lines(piece.data):
        yield Piece(at, line if len(line) <= MAX_RECORD_BYTES else None, len(line))
        at += len(line)


def _lines(data: bytes) -> list[bytes]:
    parts = data.split(b"\n")
    whole = [part + b"\n" for part in parts[:-1]]
    return whole + ([parts[-1]] if parts[-1] else [])


def _read_range(file: Any, start: int, end: int) -> Iterator[Piece]:
    if start:
        # The line across the border belongs to the range before; one that begins at the border is ours. One that goes
        # on to the end of the range is not followed further: each range of a huge line would read all of its rest.
        file.seek(start - 1)
        start += _skip_line(file.read, end - start + 1)[0] - 1
    if start >= end:
        return
    file.seek(start)
    body = bytes(file.read(end - start))
    if body.endswith(b"\n"):
        yield Piece(start, body, len(body))
        return
    whole = body.rfind(b"\n") + 1
    most = MAX_RECORD_BYTES - (len(body) - whole)
    rest = bytes(file.readline(most + 1))
    if len(rest) <= most:
        yield Piece(start, body + rest, len(body) + len(rest))
        return
    if whole:
        yield Piece(start, body[:whole], whole)
    beyond = 0 if rest.endswith(b"\n") else _skip_line(file.read)[0]
    yield Piece(start + whole, None, len(body) - whole + len(rest) + beyond)


def _read_stream(read: Callable[[int], bytes], at: int) -> Iterator[Piece]:
    held, size = [], 0
    while chunk := read(_READ_BYTES):
        held.append(chunk)
        size += len(chunk)
        if size < RANGE_BYTES:
            continue
        body = b"".join(held)
        whole = body.rfind(b"\n") + 1
        if whole:
            yield Piece(at, body[:whole], whole)
            at, body = at + whole, body[whole:]
        elif size > MAX_RECORD_BYTES:
            beyond, body = _skip_line(read)
            yield Piece(at, None, size + beyond)
            at += size + beyond
        held, size = [body], len(body)
    if size:
        yield Piece(at, b"".join(held), size)


def _skip_line(read: Callable[[int], bytes], most: int | None = None) -> tuple[int, bytes]:
    """How many bytes were left of this line, its end included, and what was read beyond it. Gives up after `most`."""
    skipped = 0
    while chunk := read(_READ_BYTES if most is None else min(_READ_BYTES, most - skipped)):
        end = chunk.find(b"\n") + 1
        if end:
            return skipped + end, bytes(chunk[end:])
        skipped += len(chunk)
    return skipped, b""

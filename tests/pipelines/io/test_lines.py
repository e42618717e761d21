"""Byte ranges: every line once, whatever the cuts."""

import gzip

import numpy as np
import pytest

from dpngram.pipelines.io import lines as lines_module
from dpngram.pipelines.io import reading
from dpngram.pipelines.io.input_formats import InputFormat
from dpngram.pipelines.io.lines import ByteRange, read_pieces


def read_lines(extent, skip):
    return [piece.data for piece in read_pieces(extent, skip)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000])
def test_ranges_cover_every_line_once(tmp_path, size):
    random = np.random.default_rng(size)
    lines = [b"x" * int(random.integers(0, 12)) + b"\n" for _ in range(60)]
    body = b"".join(lines) + b"no newline at the end"
    path = tmp_path / "f.txt"
    path.write_bytes(body)
    found = [
        piece
        for start in range(0, len(body), size)
        for piece in read_lines(ByteRange(str(path), start, min(start + size, len(body)), "uncompressed"), 0)
    ]
    assert b"".join(found) == body
    assert all(piece.endswith(b"\n") for piece in found[:-1])


def test_compressed_files_are_cut_at_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(lines_module, "RANGE_BYTES", 100)
    monkeypatch.setattr(lines_module, "_READ_BYTES", 37)
    body = b"".join(b"line %d\n" % i for i in range(100))
    path = tmp_path / "f.gz"
    path.write_bytes(gzip.compress(b"header\n" + body))
    pieces = list(read_lines(ByteRange(str(path), 0, -1, "gzip"), 1))
    assert b"".join(pieces) == body
    assert len(pieces) > 5
    assert all(piece.endswith(b"\n") for piece in pieces)


def test_header_lines_are_skipped_once_per_file(tmp_path):
    (tmp_path / "a").write_bytes(b"h1\nh2\na\nb\n")
    (tmp_path / "b").write_bytes(b"h1\nh2\n")
    (tmp_path / "c").write_bytes(b"h1")
    lines = InputFormat(name="text", skip_header_lines=2)
    ranges = [extent for _, extent in reading._split_files(b"", [str(tmp_path / "*")], lines)]
    assert [r[:3] for r in ranges] == [(str(tmp_path / "a"), 6, 10)]
    assert list(read_lines(ranges[0], 2)) == [b"a\nb\n"]


def test_lines_that_are_too_long_are_passed_over(tmp_path, monkeypatch):
    """100 MB of one line: counted, not held. Ranges and streams, the long line first, between and last."""
    monkeypatch.setattr(lines_module, "MAX_RECORD_BYTES", 5000)
    monkeypatch.setattr(lines_module, "_READ_BYTES", 700)
    monkeypatch.setattr(lines_module, "RANGE_BYTES", 2000)
    random = np.random.default_rng(1)
    for trial in range(60):
        sizes = [int(random.choice([0, 10, 300, 4000, 4999, 5000, 5001, 20_000])) for _ in range(8)]
        rows = [b"x" * size + b"\n" for size in sizes]
        if trial % 2:
            rows[-1] = rows[-1][:-1]
        data = b"".join(rows)
        path = tmp_path / "long"
        path.write_bytes(data)
        (tmp_path / "long.gz").write_bytes(gzip.compress(data))
        ranges = [
            ByteRange(str(path), at, min(at + 2000, len(data)), "uncompressed") for at in range(0, len(data), 2000)
        ]
        found = [piece for extent in ranges for piece in read_pieces(extent, 0)]
        assert sum(piece.length for piece in found) == len(data)
        assert all(piece.data is None or data[piece.offset :].startswith(piece.data) for piece in found)
        over = [piece for piece in found if piece.data is None]
        assert [piece.length for piece in over] == [len(row) for row in rows if len(row) > 5000]
        streamed = list(read_pieces(ByteRange(str(tmp_path / "long.gz"), 0, -1, "gzip"), 0))
        assert sum(piece.length for piece in streamed) == len(data)
        # A stream may hold a line that is somewhat longer before it knows.
        assert all(piece.length > 5000 for piece in streamed if piece.data is None)
        assert all(max(map(len, piece.data.split(b"\n"))) < 8000 for piece in streamed if piece.data is not None)

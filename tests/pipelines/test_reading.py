"""Byte ranges and parsers: every line once, whatever the cuts."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pytest

from dpngram.pipelines.io import lines as lines_module
from dpngram.pipelines.io import parsing, reading
from dpngram.pipelines.io.lines import ByteRange, read_pieces
from dpngram.pipelines.io.parsing import Fields
from dpngram.transforms.blocks.columns import binary_array
from dpngram.transforms.blocks.documents import DocumentBlock


def parse_jsonl(lines, user, text):
    """All documents as one block, and the number of lines that are bad."""
    parsed = parsing.parse_jsonl(lines, Fields((user,), (text,)))
    return join(parsed.blocks), len(parsed.bad)


def parse_text(lines):
    parsed = parsing.parse_text(lines)
    return join(parsed.blocks), len(parsed.bad)


def join(blocks):
    if len(blocks) < 2:
        return blocks[0] if blocks else None
    users_ = pa.concat_arrays([block.users for block in blocks])
    return DocumentBlock.from_texts(users_, pa.concat_arrays([binary_array(b.offsets, b.data) for b in blocks]))


def read_lines(extent, skip):
    return [piece.data for piece in read_pieces(extent, skip)]


def texts(block):
    return [text.decode() for text in binary_array(block.offsets, block.data).to_pylist()]


def users(block):
    return [user.decode() for user in block.users.to_pylist()]


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
    split = reading._SplitDoFn([str(tmp_path / "*")], reading.InputFormat(name="text", skip_header_lines=2))
    ranges = [extent for _, extent in split.process(b"")]
    assert [r[:3] for r in ranges] == [(str(tmp_path / "a"), 6, 10)]
    assert list(read_lines(ranges[0], 2)) == [b"a\nb\n"]


def test_text_lines():
    block, bad = parse_text(b"one two\r\n\nthree\nlast")
    assert texts(block) == ["one two  ", " ", "three ", "last"]
    assert block.users is None
    assert bad == 0
    block, bad = parse_text("ok é\n".encode() + b"\xff broken\nfine\n")
    assert texts(block) == ["ok é ", "fine "]
    assert bad == 1


def test_jsonl_in_columns():
    lines = [{"user": "a", "text": "x"}, {"text": "yé", "other": [1, {}], "user": "b"}, {"user": "a", "text": ""}]
    block, bad = parse_jsonl(
        "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode(), "user", "text"
    )
    assert (users(block), texts(block), bad) == (["a", "b", "a"], ["x", "yé", ""], 0)


def test_jsonl_with_numbers_for_users():
    block, bad = parse_jsonl(b'{"id": 7, "body": "x"}\n{"id": 12345678901, "body": "y"}', "id", "body")
    assert (users(block), texts(block), bad) == (["7", "12345678901"], ["x", "y"], 0)
    block, bad = parse_jsonl(b'{"id": 7, "body": "x"}\n{"id": "7", "body": "y"}', "id", "body")
    assert (users(block), texts(block), bad) == (["7", "7"], ["x", "y"], 0)


def test_jsonl_lines_that_cannot_be_used_are_counted():
    good = b'{"user": "a", "text": "x"}\n'
    bad_lines = [
        b"not json",
        b'{"user": "a"',
        b'{"user": null, "text": "x"}',
        b'{"user": "", "text": "x"}',
        b'{"text": "no user"}',
        b'{"user": "a", "text": 5}',
        b'{"user": true, "text": "x"}',
        b'{"user": 1.5, "text": "x"}',
        b"[1, 2]",
        b'"string"',
        b'{"user": "a", "text": "\xff"}',
        b'{"user": "a", "text": "\\ud800"}',
        b"[" * 100_000,
    ]
    for bad_line in bad_lines:
        block, bad = parse_jsonl(good + bad_line + b"\n" + good, "user", "text")
        assert (users(block), bad) == (["a", "a"], 1), bad_line[:40]
    block, bad = parse_jsonl(b"".join(line + b"\n" for line in bad_lines), "user", "text")
    assert block is None or not len(block.user_offsets) > 1
    assert bad == len(bad_lines)
    for nothing in (b"\n", b"\n\n  \n"):
        block, bad = parse_jsonl(good + nothing + good, "user", "text")
        assert (users(block), bad) == (["a", "a"], 0)


def test_what_a_line_gives_depends_on_that_line_alone():
    """Objects across lines, two on a line, a line that would swallow the next, null, deep and huge values."""
    good = [b'{"user": "u%d", "text": "x"}' % i for i in range(6)]
    odd = [
        b'{"user": "m",\n"text": "q"}',
        b'{"user": "m", "text": "q"} {"user": "n", "text": "r"}',
        b'{"user": "m", "text": "q", "o":\n}',
        b"null",
        b"{",
        b"}",
        b'{"user": "m", "text": "q", "n": ' + b"9" * 5000 + b"}",
        b'{"user": "m", "text": "q", "n": ' + b"[" * 3000 + b"]" * 3000 + b"}",
        b'{"user": "m", "text": "q"}\r',
        b'  {"user": "m", "text": "q"}  ',
        b'{"user": 99999999999999999999999, "text": "q"}',
        b'{"user": 5, "text": "q"}',
        b'{"user": "m", "user": "k", "text": "q"}',
        b'{"user": "m", "text": "q"}{}',
        b"{}",
        b'\xef\xbb\xbf{"user": "bom", "text": "q"}',
    ]
    alone = {}
    for line in [part for entry in odd for part in entry.split(b"\n")]:
        block, bad = parse_jsonl(line, "user", "text")
        alone[line] = (users(block) if block is not None else [], bad)
    random = np.random.default_rng(0)
    for _ in range(200):
        lines = [part for i in random.permutation(len(odd))[:3] for part in odd[i].split(b"\n")] + good
        lines = [lines[i] for i in random.permutation(len(lines))]
        block, bad = parse_jsonl(b"\n".join(lines) + b"\n" * int(random.integers(0, 2)), "user", "text")
        expected = [user for line in lines for user in (alone[line][0] if line in alone else [line[10:12].decode()])]
        assert sorted(users(block)) == sorted(expected)
        assert bad == sum(alone[line][1] for line in lines if line in alone)


def test_a_file_that_several_patterns_name_is_read_once(tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "b.txt").write_text("two\n")
    (tmp_path / "link.txt").symlink_to(tmp_path / "a.txt")
    found = reading.match_files([str(tmp_path / "*.txt"), str(tmp_path / "a.txt"), f"{tmp_path}/./b*"])
    assert sorted(found.values()) == [4, 4]

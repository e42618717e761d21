"""Parsers: what a line gives depends on that line alone."""

import json
import time

import numpy as np
import pyarrow as pa
from helpers.records import reasons_of, users_of

from dpngram.pipelines.io import parsing
from dpngram.pipelines.io.parsing import Fields, parse_jsonl, parse_tsv
from dpngram.transforms.blocks.columns import binary_array
from dpngram.transforms.blocks.documents import DocumentBlock


def jsonl_block(lines, user, text):
    """All documents as one block, and the number of lines that are bad."""
    parsed = parsing.parse_jsonl(lines, Fields((user,), (text,)))
    return join(parsed.blocks), len(parsed.bad)


def text_block(lines):
    parsed = parsing.parse_text(lines)
    return join(parsed.blocks), len(parsed.bad)


def join(blocks):
    if len(blocks) < 2:
        return blocks[0] if blocks else None
    users_ = pa.concat_arrays([block.users for block in blocks])
    return DocumentBlock.from_texts(users_, pa.concat_arrays([binary_array(b.offsets, b.data) for b in blocks]))


def texts(block):
    return [text.decode() for text in binary_array(block.offsets, block.data).to_pylist()]


def users(block):
    return [user.decode() for user in block.users.to_pylist()]


def test_text_lines():
    block, bad = text_block(b"one two\r\n\nthree\nlast")
    assert texts(block) == ["one two  ", " ", "three ", "last"]
    assert block.users is None
    assert bad == 0
    block, bad = text_block("ok é\n".encode() + b"\xff broken\nfine\n")
    assert texts(block) == ["ok é ", "fine "]
    assert bad == 1


def test_jsonl_in_columns():
    lines = [{"user": "a", "text": "x"}, {"text": "yé", "other": [1, {}], "user": "b"}, {"user": "a", "text": ""}]
    block, bad = jsonl_block(
        "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode(), "user", "text"
    )
    assert (users(block), texts(block), bad) == (["a", "b", "a"], ["x", "yé", ""], 0)


def test_jsonl_with_numbers_for_users():
    block, bad = jsonl_block(b'{"id": 7, "body": "x"}\n{"id": 12345678901, "body": "y"}', "id", "body")
    assert (users(block), texts(block), bad) == (["7", "12345678901"], ["x", "y"], 0)
    block, bad = jsonl_block(b'{"id": 7, "body": "x"}\n{"id": "7", "body": "y"}', "id", "body")
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
        block, bad = jsonl_block(good + bad_line + b"\n" + good, "user", "text")
        assert (users(block), bad) == (["a", "a"], 1), bad_line[:40]
    block, bad = jsonl_block(b"".join(line + b"\n" for line in bad_lines), "user", "text")
    assert block is None or not len(block.user_offsets) > 1
    assert bad == len(bad_lines)
    for nothing in (b"\n", b"\n\n  \n"):
        block, bad = jsonl_block(good + nothing + good, "user", "text")
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
        block, bad = jsonl_block(line, "user", "text")
        alone[line] = (users(block) if block is not None else [], bad)
    random = np.random.default_rng(0)
    for _ in range(200):
        lines = [part for i in random.permutation(len(odd))[:3] for part in odd[i].split(b"\n")] + good
        lines = [lines[i] for i in random.permutation(len(lines))]
        block, bad = jsonl_block(b"\n".join(lines) + b"\n" * int(random.integers(0, 2)), "user", "text")
        expected = [user for line in lines for user in (alone[line][0] if line in alone else [line[10:12].decode()])]
        assert sorted(users(block)) == sorted(expected)
        assert bad == sum(alone[line][1] for line in lines if line in alone)


def test_tsv_lines_stand_alone(tmp_path):
    lines = [
        b"1\tplain text\tu1",
        b'2\t"open quote\tu2',
        b"4\ttoo few",
        b"5\tone\ttoo\tmany",
        b"6\tbad \xff bytes\tu6",
        b"7\tno user\t",
        b"8\t\tu8",
        b"9\tx\rA\tb\tc",
        b"\xef\xbb\xbf\xef\xbb\xbf10\tx\tu10",
    ]
    random = np.random.default_rng(0)
    for _ in range(30):
        body = b"\n".join(lines[i] for i in random.permutation(len(lines)))
        parsed = parse_tsv(body, b"id\ttext\tuser", Fields())
        assert users_of([parsed]) == ["u1", "u2", "u8"]
        assert reasons_of([parsed]) == [
            "bad_row",
            "bad_utf8",
            "control_character",
            "control_character",
            "missing_columns",
            "missing_user",
        ]


def test_nothing_usable_is_not_slow():
    """20,000 lines without the field, or with users of both kinds, take seconds at most."""
    for row in ({"who": "a", "text": "x"}, {"user": "a", "text": "x"}):
        lines = [
            json.dumps({**row, **({"user": i} if i % 2 and "user" in row else {})}).encode() for i in range(20_000)
        ]
        start = time.process_time()
        parsed = parse_jsonl(b"\n".join(lines), Fields())
        assert time.process_time() - start < 5
        assert parsed.records == 20_000
        assert len(parsed.bad) == (0 if "user" in row else 20_000)


def test_a_fallback_field_counts_only_where_it_is_needed():
    line = b'{"user": "a", "author": {"id": 1}, "text": "x"}'
    other = b'{"author": "b", "content": "y"}'
    assert users_of([parse_jsonl(line, Fields())]) == ["a"]
    assert users_of([parse_jsonl(line + b"\n" + other, Fields())]) == ["a", "b"]

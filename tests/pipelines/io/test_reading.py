"""The same corpus in every format, in and out."""

import bz2
import collections
import csv
import gzip
import io
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from helpers.records import avro, read
from helpers.runs import extract, files, jsonl, notes_of

from dpngram.pipelines.io import reading
from dpngram.pipelines.io.lines import ByteRange
from dpngram.pipelines.io.parsing import Fields
from dpngram.pipelines.io.reading import InputFormat
from dpngram.pipelines.io.tables import parse_records


def delimited(rows, delimiter):
    out = io.StringIO()
    if delimiter == "\t":
        out.write("id\ttext\tuser\n")
        out.writelines(f"{i}\t{row['text']}\t{row['user']}\n" for i, row in enumerate(rows))
    else:
        writer = csv.writer(out, lineterminator="\r\n")
        writer.writerow(["id", "text", "user"])
        writer.writerows([i, row["text"], row["user"]] for i, row in enumerate(rows))
    return out.getvalue().encode()


def parquet(rows):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink, row_group_size=70)
    return sink.getvalue().to_pybytes()


def test_the_same_corpus_in_every_format_gives_the_same_release(corpus, key, tmp_path):
    shuffled = [corpus[i] for i in np.random.default_rng(1).permutation(len(corpus))]
    renamed = [{"author": row["user"], "content": row["text"], "score": 1} for row in shuffled]
    tokens = [{"user": row["user"], "words": row["text"].split()} for row in shuffled]
    words = ["--tokenizer", "whitespace", "--policy", "paper", "--max_n", "2"]
    forms = {
        "a.jsonl": (jsonl(corpus), []),
        "b.jsonl.gz": (gzip.compress(jsonl(shuffled)), []),
        "d.jsonl.zst": (zstandard.compress(jsonl(shuffled)), []),
        "e.jsonl": (b"\xef\xbb\xbf" + jsonl(shuffled).replace(b"\n", b"\r\n\r\n"), []),
        "f.jsonl": (jsonl(renamed), []),
        "h.csv.bz2": (bz2.compress(delimited(shuffled, ",")), ["--input_format", "csv"]),
        "i.tsv": (delimited(shuffled, "\t"), ["--input_format", "tsv"]),
        "j.parquet": (parquet(shuffled), ["--input_format", "parquet"]),
        "k.avro": (avro(shuffled), ["--input_format", "avro"]),
        "l.jsonl": (jsonl(tokens), ["--tokens_field", "words"]),
        "m.parquet": (parquet(tokens), ["--input_format", "parquet", "--tokens_field", "words"]),
    }
    expected = None
    for name, (data, flags) in forms.items():
        (tmp_path / name).write_bytes(data)
        output = tmp_path / f"out-{name}"
        assert extract(output, "--input", tmp_path / name, "--noise_key", key, *words, *flags) == 0, name
        found = files(output)
        if "--tokens_field" in flags:  # only what the manifest says of it differs, and so does the page
            said = b"lists of tokens in field words"
            assert said in found["manifest.json"]
            found = {file: data.replace(said, b"field text, else content") for file, data in found.items()}
        expected = expected or found
        assert found == expected, name
        notes = notes_of(output)
        assert (notes["records"], notes["bad_records"]) == (len(corpus), {}), name
        assert "NOT differentially private" in notes["note"]


@pytest.mark.parametrize("suffix", ["gz", "bz2", "zst"])
def test_damaged_compression_is_counted(tmp_path, suffix):
    pack = {"gz": gzip.compress, "bz2": bz2.compress, "zst": zstandard.compress}[suffix]
    whole = pack(jsonl([{"user": f"u{i}", "text": f"text {i * 7919 % 1000}"} for i in range(3000)]))
    random = np.random.default_rng(0)
    for _ in range(25):
        data = bytearray(whole)
        data[int(random.integers(len(data)))] ^= 1 << int(random.integers(8))
        path = tmp_path / f"in.jsonl.{suffix}"
        path.write_bytes(bytes(data))
        parts = read(path, "jsonl")
        assert sum(part.records for part in parts) > 0
    (tmp_path / "none.jsonl").mkdir()
    with pytest.raises(OSError, match="directory"):  # out of reach, not damaged: the runner tries again
        list(InputFormat(name="jsonl").read(ByteRange(str(tmp_path / "none.jsonl"), 0, 10, "uncompressed")))


def test_patterns_in_the_working_directory(tmp_path, monkeypatch):
    """As in the README: --input 'posts-*.jsonl.gz', without a directory."""
    (tmp_path / "2026").mkdir()
    for name in ("posts-1.txt", "posts-2.txt", "2026/posts-3.txt"):
        (tmp_path / name).write_text("a\n")
    monkeypatch.chdir(tmp_path)
    for pattern, names in {
        "posts-*.txt": ["posts-1.txt", "posts-2.txt"],
        "*": ["posts-1.txt", "posts-2.txt"],
        "posts-[2].txt": ["posts-2.txt"],
        "posts-?.txt": ["posts-1.txt", "posts-2.txt"],
        "202*/*.txt": ["2026/posts-3.txt"],
        "**.txt": ["2026/posts-3.txt", "posts-1.txt", "posts-2.txt"],
    }.items():
        assert list(reading.match_files([pattern])) == [f"./{name}" for name in names]
    assert list(reading.match_files(["posts-1.txt", "2026/posts*"])) == ["2026/posts-3.txt", "posts-1.txt"]


def test_a_file_that_several_patterns_name_is_read_once(tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "b.txt").write_text("two\n")
    (tmp_path / "link.txt").symlink_to(tmp_path / "a.txt")
    (tmp_path / "zhard.txt").hardlink_to(tmp_path / "a.txt")
    (tmp_path / "both.txt").symlink_to(tmp_path / "zhard.txt")
    (tmp_path / "copy.txt").write_text("one\n")  # a copy is another file
    found = reading.match_files([str(tmp_path / "*.txt"), str(tmp_path / "a.txt"), f"{tmp_path}/./b*"])
    assert len(found) == 3
    assert len({os.stat(path).st_ino for path in found}) == 3
    assert set(found.values()) == {4}


# In each format: what is read, whose records are bad, and how many bad records are without a user.
WHOSE = {
    "jsonl": (
        [
            *(
                b'{"user": "a", "text": 5}',
                b'{"user": "a"}',
                b'{"user": 7, "text": null}',
                b'{"user": "g", "text": "x"}',
            ),
            *(b'{"user": "b", "text": "\\ud800"}', b'{"user": "c", "text": "x", "n": "\\ud800"}', b"[1]", b"no json"),
            *(b'{"user": "", "text": "x"}', b'{"user": 1.5, "text": "x"}', b'{"user": "\\ud800", "text": "x"}'),
            *(
                b'{"user": "a", "user": "b", "text": 1}',
                b'{"user": "a", "text": "\xff"}',
                b'{"user": "a", "text": "x", "text": "y"}',
                b'{"user": "a", "text": "tab\there", "list": [1]}',
                b'{"user": 99999999999999999999}',
            ),
        ],
        {b"a": 5, b"7": 1, b"b": 1, b"c": 1, b"99999999999999999999": 1},
        6,
    ),
    "tsv": (
        [b"text\tuser", b"x\tg", b"\xff\ta", b"x\0\ta", b"\xff\tb", b"x\t\xff", b"x\tc\tmore", b"x", b"x\t", b"x\td\0"],
        {b"a": 2, b"b": 1},
        5,
    ),
    "csv": (
        [b"user,text", b"g,x", b"a,\xff", b"a,\xfe", b"\xff,x", b",x", b"a,b,c", b"one"],
        {b"a": 2},
        4,
    ),
}


@pytest.mark.parametrize("name", WHOSE)
def test_whose_records_are_bad(tmp_path, name):
    """For the gate a user counts once: the user of a bad record must be told wherever it can be read."""
    lines, named, unnamed = WHOSE[name]
    (tmp_path / "in").write_bytes(b"\n".join(lines) + b"\n")
    parts = read(tmp_path / "in", name)
    assert collections.Counter(user for part in parts for user in part.bad_users) == named
    told = [block for part in parts for block in part.all_blocks() if len(block.offsets) == 1]
    assert sum(block.unnamed_bad for block in told) == unnamed
    assert {user for block in told for user in block.bad_users.to_pylist()} == set(named)
    assert sum(len(part.bad) for part in parts) == sum(named.values()) + unnamed


def test_whose_records_are_bad_in_columns(tmp_path):
    """Rows without a text, and whole files whose column of texts is missing or has no texts; the same in Avro."""
    columns = {
        "null.parquet": (
            {"user": ["a", None, "", "b", "a", "g"], "text": [None, "x", None, None, None, "x"]},
            "aab",
            2,
        ),
        "numbers.parquet": ({"user": ["a", "a", None], "text": [1, 2, 3]}, "aa", 1),
        "none.parquet": ({"user": [1, 1, 2], "body": ["x"] * 3}, "112", 0),
        "floats.parquet": ({"user": [1.5, 2.5], "text": ["x", "y"]}, "", 2),
        "nobody.parquet": ({"name": ["a", "b"], "text": ["x", "y"]}, "", 2),
    }
    for name, (table, named, unnamed) in columns.items():
        pq.write_table(pa.table(table), tmp_path / name)
        parts = read(tmp_path / name, "parquet")
        assert sorted(user.decode() for part in parts for user in part.bad_users) == sorted(named), name
        assert sum(record.rows for part in parts for record in part.bad) == len(named) + unnamed, name
    rows = [{"user": "a"}, {"user": "a", "text": 5}, {"user": 7}, {"text": "x"}, {"user": "\udcff", "text": "x"}, 5]
    parsed = parse_records([*rows, {"user": "g", "text": "x"}, {"user": "b", "text": "\udcff"}], Fields(), 0)
    assert sorted(parsed.bad_users) == [b"7", b"a", b"a", b"b"]
    assert len(parsed.bad) == 7
    for name, header in (("csv", b"user,body\n"), ("tsv", b"user\tbody\n")):
        (tmp_path / "in").write_bytes(header + (b"a,x\nb,y\n,z\n" if name == "csv" else b"a\tx\nb\ty\n\tz\n"))
        (part,) = read(tmp_path / "in", name)
        assert (part.bad_users, sum(record.rows for record in part.bad), part.blocks) == ([b"a", b"b"], 3, []), name


def test_lines_without_users_count_one_each(tmp_path):
    """Plain text: a line that cannot be used is a user who is bad, and counts as a record without a user does."""
    (tmp_path / "in").write_bytes(b"good\n\xff\nx\0y\n\xff\n")
    (part,) = read(tmp_path / "in", "text")
    assert (part.bad_users, len(part.bad), part.all_blocks()[-1].unnamed_bad) == ([], 3, 3)

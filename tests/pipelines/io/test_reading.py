"""The same corpus in every format, in and out."""

import bz2
import csv
import gzip
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from helpers.records import avro, read
from helpers.runs import extract, files, jsonl, notes_of

from dpngram.pipelines.io import reading
from dpngram.pipelines.io.lines import ByteRange
from dpngram.pipelines.io.reading import InputFormat


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
    whitespace = ["--tokenizer", "whitespace"]
    forms = {
        "a.jsonl": (jsonl(corpus), []),
        "b.jsonl.gz": (gzip.compress(jsonl(shuffled)), []),
        "c.jsonl.bz2": (bz2.compress(jsonl(shuffled)), []),
        "d.jsonl.zst": (zstandard.compress(jsonl(shuffled)), []),
        "e.jsonl": (b"\xef\xbb\xbf" + jsonl(shuffled).replace(b"\n", b"\r\n\r\n"), []),
        "f.jsonl": (jsonl(renamed), []),
        "g.csv": (delimited(shuffled, ","), ["--input_format", "csv"]),
        "h.csv.gz": (gzip.compress(delimited(shuffled, ",")), ["--input_format", "csv"]),
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
        assert extract(output, "--input", tmp_path / name, "--noise_key", key, *whitespace, *flags) == 0, name
        expected = expected or files(output)
        assert files(output) == expected, name
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
    found = reading.match_files([str(tmp_path / "*.txt"), str(tmp_path / "a.txt"), f"{tmp_path}/./b*"])
    assert sorted(found.values()) == [4, 4]

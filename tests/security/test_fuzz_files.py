"""Hostile files: records of any bytes, and damaged Parquet, Avro, gzip, bzip2 and Zstandard.

What a record gives depends on that record alone; what a file holds decides about that file alone; nothing hangs, and
no file makes the reader hold more than it is large. helpers/fuzz.py says how to look longer.
"""

import bz2
import collections
import gzip
import io
import json
import tracemalloc

import fastavro
import hypothesis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from helpers.fuzz import check, command, json_values, look, mutations, no_hang
from helpers.runs import BUDGET, jsonl
from hypothesis import strategies as st

from dpngram.pipelines.io import tables
from dpngram.pipelines.io.parsing import Fields, parse_jsonl, parse_text, parse_tsv
from dpngram.pipelines.io.reading import InputFormat
from dpngram.transforms.blocks.columns import binary_array

FIELDS = Fields()
NASTY = [
    b'{"user": "a", "text": "b"}',
    b'{"user": "a", "text": "b',
    b'c"}',
    b'{"user": 1, "text": "b"}',
    b"{",
    b"}",
    b"[",
    b"]",
]
NASTY += [
    b'{"author": "a", "content": "b"}',
    b'{"user": "a", "text": "b"} {"user": "c", "text": "d"}',
    b'{"user": "a",',
]
NASTY += [
    b'"text": "b"}',
    b'{"user": "a", "text": "\\ud83d\\ude00"}',
    b'{"user": "a", "text": "\\ud83d"}',
    b"\xef\xbb\xbf{}",
]
NASTY += [
    b'{"user": 9223372036854775808, "text": ""}',
    b'{"user": "a", "text": "b", "x": ' + b"[" * 2000 + b"]" * 2000 + b"}",
]
NASTY += [
    b'{"user": "a", "text": "b", "x": 1e999999}',
    b'{"user":"a","user":"b","text":"c"}',
    b'{"user": "", "text": "b"}',
]
NASTY += [
    b'{"user": "a", "text": "b", "x": {"user": "z", "text": "q"}}',
    b"\r",
    b"\x0b",
    b"\0",
    b"\xff",
    b'{"user": "\\u0000"}',
]
NASTY += [b"a\tb", b"user\ttext", b"\t", b"a\tb\tc", b'"a\tb"', b"\xe2\x80\xa8a\tb", b"\x85\tb", b"x\r", b"\x1a"]
written = st.fixed_dictionaries(
    {}, optional={name: json_values(4) for name in ("user", "text", "author", "content", "x")}
).map(lambda record: json.dumps(record).encode(errors="surrogatepass"))
some_lines = st.lists(
    st.one_of(st.sampled_from(NASTY), written, st.binary(max_size=12), mutations(NASTY[0], 3)).map(
        lambda line: line.replace(b"\n", b"")
    ),
    max_size=6,
)


def found(parsed):
    """What was read: (user, text) of all documents, and the reasons of those that cannot be used."""
    documents = collections.Counter()
    for block in parsed.blocks:
        texts = [text.rstrip() for text in binary_array(block.offsets, block.data).to_pylist()]  # a line's end
        users = [None] * len(texts) if block.users is None else block.users.to_pylist()
        documents.update(zip(users, texts, strict=True))
    assert parsed.records == documents.total() + len(parsed.bad)
    return documents, collections.Counter(record.reason for record in parsed.bad)


PARSERS = {
    "jsonl": lambda data, offset: parse_jsonl(data, FIELDS, offset),
    "tsv": lambda data, offset: parse_tsv(data, b"user\ttext", FIELDS, offset),
    "text": parse_text,
}


@pytest.mark.parametrize("name", PARSERS)
def test_fuzz_records(name):
    """Lines together give what they give one by one: nobody's record changes what is read of others."""
    parse = PARSERS[name]

    @look(200)
    @hypothesis.given(some_lines)
    def read(some):
        some = [line for line in some if line.strip()]
        # Not at the head of a file, where a byte order mark is none of the record's.
        together = found(parse(b"\n".join(some), 10))
        alone = [found(parse(line, 10)) for line in some]
        assert together[0] == sum((documents for documents, _ in alone), collections.Counter())
        assert together[1] == sum((bad for _, bad in alone), collections.Counter())

    read()


@pytest.mark.parametrize(
    "row", [b"x\xff", b"a,b,\xff", b"\xff\xfe,\x80,", b"", b",", b"a,b\xff", b"\0", b"\xef\xbb\xbf", b"\xc3,\xa9,c"]
)
def test_one_row_of_a_csv_file_decides_about_itself_only(row, tmp_path):
    """Arrow gives a file up at a row that has too few columns and is no UTF-8; its other rows are others' text."""
    rows = [b"u%d,\xc3\xa9t\xc3\xa9 w%d" % (i, i) for i in range(300)]
    path = tmp_path / "a.csv"
    path.write_bytes(b"user,text\n" + b"\n".join([*rows[:150], row, *rows[150:]]) + b"\n")
    (extent,) = InputFormat(name="csv").ranges(str(path), path.stat().st_size)
    documents = sum((found(parsed)[0] for parsed in InputFormat(name="csv").read(extent)), collections.Counter())
    assert all(documents[tuple(good.split(b","))] == 1 for good in rows)
    assert documents.total() == 300


def test_fuzz_csv_rows(tmp_path):
    """The same for any row without quotes or line ends: those need a writer that quotes, as docs/privacy.md says."""
    rows = [b"u%d,w%d" % (i, i) for i in range(20)]
    path = tmp_path / "a.csv"

    @look(150)
    @hypothesis.given(st.one_of(st.binary(max_size=20), mutations(b"somebody,some \xc3\xa9 text")))
    def read(row):
        row = row.translate(None, b'"\r\n')
        path.write_bytes(b"user,text\n" + b"\n".join([*rows[:10], row, *rows[10:]]) + b"\n")
        parts = list(InputFormat(name="csv").read(next(InputFormat(name="csv").ranges(str(path), 1))))
        documents = sum((found(parsed)[0] for parsed in parts), collections.Counter())
        assert all(documents[tuple(good.split(b","))] >= 1 for good in rows)
        assert documents.total() <= 21

    read()


@pytest.mark.parametrize(("megabytes", "quote", "bad"), [(40, b"", 0), (20, b'"\xff', 1), (70, b'"', 1)])
def test_one_long_row_of_a_csv_file_decides_about_itself_only(megabytes, quote, bad, tmp_path):
    """Arrow gives a file up at a row that is longer than its blocks. Over the cap for a record, a row is left out."""
    rows = [b"u%d,w%d" % (i, i) for i in range(60)]
    long = b"big," + quote + b"x\n" * (megabytes << 19 if quote else 1) + b"x " * (megabytes << 19) + quote[:1]
    path = tmp_path / "a.csv"
    path.write_bytes(b"user,text\n" + b"\n".join([*rows[:30], long, *rows[30:]]) + b"\n")
    records, documents, left_out = read_file("a.csv", path)
    extra = 0 if quote else 1  # without quotes the first x is the text, and the rest a row of one column
    assert (records, documents, left_out) == (61 + extra, 61 - bad, bad + extra)


def test_fuzz_csv_records():
    """Long records go, the others stay as they are, whatever is quoted and wherever reading cuts."""

    @look(150)
    @hypothesis.given(
        st.lists(st.lists(st.sampled_from([b"a", b",", b'"b\n"', b'""', b'"\n\n,\n"', b"c" * 9])).map(b"".join)),
        st.integers(1, 30),
        st.booleans(),
    )
    def read(records, size, ended):
        lines = [record + b"\n" for record in records]
        if lines and not ended:
            lines[-1] = lines[-1][:-1]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tables, "MAX_RECORD_BYTES", 40)
            patch.setattr(tables, "RANGE_BYTES", size)
            pieces = list(tables._whole_records(io.BytesIO(b"".join(lines)).read))
        assert b"".join(piece for piece in pieces if piece) == b"".join(line for line in lines if len(line) <= 40)
        assert pieces.count(None) == sum(len(line) > 40 for line in lines)

    read()


def test_a_small_file_that_claims_many_rows(tmp_path):
    """30 million rows of nothing are a Parquet file of some kilobytes: they are counted, not listed."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"user": pa.nulls(30_000_000, pa.string())}), path, row_group_size=30_000_000)
    assert path.stat().st_size < 100_000
    tracemalloc.start()
    try:
        assert read_file("a.parquet", path) == (30_000_000, 0, 30_000_000)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


ROWS = [{"user": f"u{i % 7}", "text": f"w{i} w{i % 3}"} for i in range(60)]


def avro_bytes(codec):
    schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": "string"} for name in ("user", "text")]}
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema(schema), ROWS, codec=codec, sync_marker=b"s" * 16)
    return sink.getvalue()


def parquet_bytes(**options):
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), sink, **options)
    return sink.getvalue()


def csv_bytes():
    return ("user,text\n" + "".join(f'{row["user"]},"{row["text"]}"\n' for row in ROWS)).encode()


FILES = {
    "a.jsonl": jsonl(ROWS),
    "a.jsonl.gz": gzip.compress(jsonl(ROWS), mtime=0),
    "a.jsonl.bz2": bz2.compress(jsonl(ROWS)),
    "a.jsonl.zst": zstandard.compress(jsonl(ROWS)),
    "a.csv": csv_bytes(),
    "a.csv.gz": gzip.compress(csv_bytes(), mtime=0),
    "a.tsv": csv_bytes().replace(b",", b"\t"),
    "plain.parquet": parquet_bytes(compression="none", use_dictionary=False),
    "snappy.parquet": parquet_bytes(row_group_size=20),
    "zstd.parquet": parquet_bytes(compression="zstd", data_page_version="2.0", write_page_checksum=True),
    "null.avro": avro_bytes("null"),
    "deflate.avro": avro_bytes("deflate"),
}


def format_of(name):
    return next(word for word in name.split(".") if word in ("jsonl", "csv", "tsv", "parquet", "avro"))


def read_file(name, path):
    """(records, documents, bad) of a whole file, part by part as workers do."""
    input_format = InputFormat(name=format_of(name))
    records = documents = bad = 0
    for extent in input_format.ranges(str(path), path.stat().st_size):
        for parsed in input_format.read(extent):
            records += parsed.records
            documents += sum(len(block.offsets) - 1 for block in parsed.blocks)
            bad += sum(record.rows for record in parsed.bad)
    return records, documents, bad


@pytest.mark.parametrize("name", FILES)
def test_fuzz_files(name, tmp_path):
    """A damaged file gives documents and bad records, and they add up."""
    path = tmp_path / name
    path.write_bytes(FILES[name])
    assert read_file(name, path) == (60, 60, 0)

    @look(100)
    @hypothesis.given(mutations(FILES[name]))
    def damaged(data):
        path.write_bytes(data)
        try:
            with no_hang():
                records, documents, bad = read_file(name, path)
        except MemoryError:  # a damaged Avro file may claim more than there is: the run fails, nothing is left out
            return
        assert records == documents + bad

    damaged()


@pytest.mark.parametrize("name", FILES)
def test_fuzz_files_through_the_command(name, tmp_path):
    """Some of them through the whole of `extract`: 0 with a manifest, or 1 or 2 with one line and without."""
    number = 0

    @look(2)
    @hypothesis.given(mutations(FILES[name]))
    def damaged(data):
        nonlocal number
        number += 1
        path, output = tmp_path / f"{number}.{name}", tmp_path / f"out{number}"
        path.write_bytes(data)
        flags = ["--input", str(path), "--input_format", format_of(name), "--output", str(output), *BUDGET]
        status, err = command("extract", "--quiet", *flags, "--max_n", "1", "--policy", "paper")
        check(status, err, output)
        assert (status == 0) == (output / "manifest.json").exists()
        assert status != 2 or not output.exists()  # the look before the run found nothing that can be read

    damaged()

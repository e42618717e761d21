"""The same corpus in every format, in and out."""

import bz2
import csv
import gzip
import io
import json
import sys
import time

import apache_beam as beam
import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from helpers.runs import extract, files, jsonl, small_corpus

from dpngram.pipelines import extract as extract_module
from dpngram.pipelines.cli import main
from dpngram.pipelines.io.encoding import OUTPUT_FORMATS
from dpngram.pipelines.io.lines import ByteRange
from dpngram.pipelines.io.parsing import Fields, parse_jsonl, parse_tsv
from dpngram.pipelines.io.reading import InputFormat
from dpngram.pipelines.launch import input_flags
from dpngram.transforms.blocks.grams import GramTable, empty_table


@pytest.fixture(scope="module")
def corpus():
    return small_corpus(150, [*(f"w{i}" for i in range(9)), 'quo"ted', "comma,", "caf\u00e9"])


@pytest.fixture
def key(tmp_path):
    (tmp_path / "noise.key").write_bytes(b"0123456789abcdef" * 2)
    return str(tmp_path / "noise.key")


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


def avro(rows):
    fields = [{"name": "user", "type": "string"}, {"name": "text", "type": "string"}]
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema({"type": "record", "name": "r", "fields": fields}), rows)
    return sink.getvalue()


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
        notes = json.loads((output / "operator.json").read_text())
        assert (notes["records"], notes["bad_records"]) == (len(corpus), {}), name
        assert "NOT differentially private" in notes["note"]


def test_bigquery_with_stand_ins(corpus, key, tmp_path, monkeypatch):
    """The same release from a table's rows, and the same rows into a table; rows without a user are counted."""
    written = tmp_path / "table"

    class Read(beam.PTransform):
        class Method:
            DIRECT_READ = "direct"

        def __init__(self, table, method):
            super().__init__()
            assert (table, method) == ("project-x:dataset.posts", "direct")

        def expand(self, pbegin):
            return pbegin | beam.Create([*corpus, {"user": None, "text": "x"}])

    class Write(beam.PTransform):
        def __init__(self, table, schema, **more):
            super().__init__()
            assert table == "project-x:dataset.grams"
            assert [field["name"] for field in schema["fields"]] == ["n", "tokens", "weight"]

        def expand(self, rows):
            return rows | beam.Map(json.dumps) | beam.io.WriteToText(str(written), shard_name_template="")

    monkeypatch.setattr(beam.io, "ReadFromBigQuery", Read, raising=False)
    monkeypatch.setattr(beam.io, "WriteToBigQuery", Write, raising=False)
    (tmp_path / "in.jsonl").write_bytes(jsonl(corpus))
    assert extract(tmp_path / "files", "--input", tmp_path / "in.jsonl", "--noise_key", key) == 0
    flags = ["--input_format", "bigquery", "--input", "project-x:dataset.posts", "--noise_key", key]
    flags += ["--output_bigquery", "project-x:dataset.grams"]
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "apache_beam.io.gcp.bigquery_tools", None)  # as if Beam's gcp extra were not here
        assert extract(tmp_path / "refused", *flags) == 2
    for module in (extract_module, input_flags):  # the output's and the input's
        monkeypatch.setattr(module, "check_table", lambda flag, table: table)
    assert extract(tmp_path / "out", *flags) == 0
    assert files(tmp_path / "out") == files(tmp_path / "files")
    assert json.loads((tmp_path / "out" / "operator.json").read_text())["bad_records"] == {"missing_user": 1}
    rows = [json.loads(line) for line in written.read_text().splitlines()]
    assert len(rows) == json.loads((tmp_path / "out" / "manifest.json").read_text())["released"]


@pytest.mark.parametrize("name", OUTPUT_FORMATS)
def test_every_output_format(corpus, key, tmp_path, name):
    (tmp_path / "in.jsonl").write_bytes(jsonl(corpus))
    flags = ["--input", tmp_path / "in.jsonl", "--noise_key", key]
    assert extract(tmp_path / "plain", *flags) == 0
    assert extract(tmp_path / "out", *flags, "--output_format", name) == 0
    assert extract(tmp_path / "again", *flags, "--output_format", name) == 0
    assert files(tmp_path / "out") == files(tmp_path / "again")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["format"] == name
    for level in manifest["levels"]:
        rows = [
            json.loads(line) for line in (tmp_path / "plain" / f"ngrams-0{level['n']}.jsonl").read_text().splitlines()
        ]
        data = (tmp_path / "out" / level["file"]).read_bytes()
        if name == "vocab":
            heaviest = sorted(rows, key=lambda row: -row["weight"])
            assert data.decode().splitlines() == [" ".join(row["tokens"]) for row in heaviest]
        else:
            found = OUTPUT_FORMATS[name].decode(data, level["n"])
            assert [(tokens, weight) for tokens, weight in found] == [(row["tokens"], row["weight"]) for row in rows]


@pytest.mark.parametrize("name", OUTPUT_FORMATS)
def test_tokens_keep_their_borders(name):
    """'a b' + 'c' and 'a' + 'b c' are two grams in every format; so are tokens with quotes, commas and line ends."""
    words = sorted(["a b", "c", "a", "b c", 'q"', "x,y", "l\nm", "back\\s", "\u00e9"], key=str.encode)
    pairs = [("a b", "c"), ("a", "b c"), ('q"', "x,y"), ("l\nm", "back\\s"), ("\u00e9", "a")]
    data = "".join(words).encode()
    table = GramTable(
        n=np.int64(2),
        tokens=np.array([[words.index(a), words.index(b)] for a, b in pairs], np.int32),
        weight=np.arange(5.0, 0, -1),
        next_valid=np.int64(0),
        rho=np.float64(0),
        token_offsets=np.cumsum([0, *(len(word.encode()) for word in words)]),
        token_bytes=np.frombuffer(data, np.uint8),
    )
    encoding = OUTPUT_FORMATS[name]
    encoded = encoding.encode(table)
    if name == "vocab":
        assert encoded.decode().split("\n")[:2] == ["a\\sb c", "a b\\sc"]
        assert len(set(encoded.decode().splitlines())) == 5
    else:
        assert [tuple(tokens) for tokens, _ in encoding.decode(encoded, 2)] == pairs
    assert encoding.decode(encoding.encode(empty_table(2)), 2) == []


def users_of(parts):
    return sorted(user.decode() for part in parts for block in part.blocks for user in block.users.to_pylist())


def read(path, name, **fields):
    input_format = InputFormat(name=name, **fields)
    return [
        part for extent in input_format.ranges(str(path), path.stat().st_size) for part in input_format.read(extent)
    ]


def reasons_of(parts):
    return sorted(record.reason for part in parts for record in part.bad)


def test_a_line_end_inside_a_quoted_csv_value_makes_no_user(tmp_path):
    """One user's post that looks like 400 records, as any exporter quotes it, is one record of one user."""
    post = "hello\n" + "".join(f"x{i},alice smith has hiv\n" for i in range(400))
    out = io.StringIO()
    csv.writer(out).writerows([["user", "text"], ["mallory", post], ["bob", 'he said "hi", then left']])
    (tmp_path / "in.csv").write_text(out.getvalue(), newline="")
    parts = read(tmp_path / "in.csv", "csv")
    assert users_of(parts) == ["bob", "mallory"]
    assert reasons_of(parts) == []


def test_csv_rows_that_cannot_be_used(tmp_path):
    rows = b"# comment\nid,text,user\n1,plain,u1\n2,too few\n3,one,too,many\n4,bad \xff,u4\n5,no user,\n6,,u6\n"
    (tmp_path / "in.csv").write_bytes(rows)
    parts = read(tmp_path / "in.csv", "csv", skip_header_lines=1)
    assert users_of(parts) == ["u1", "u6"]
    assert reasons_of(parts) == ["bad_row", "bad_row", "bad_utf8", "missing_user"]
    assert sum(part.records for part in parts) == 6
    # Quotes that do not balance: nobody can tell what is quoted, and nothing is read.
    (tmp_path / "open.csv").write_bytes(b'user,text\na,"open\nvictim,hello\nb,x\n')
    parts = read(tmp_path / "open.csv", "csv")
    assert users_of(parts) == []
    assert set(reasons_of(parts)) == {"open_quote"}
    (tmp_path / "cr.csv").write_bytes(b"user,text\ra,x\rb,y\r")
    assert users_of(read(tmp_path / "cr.csv", "csv")) == []
    assert reasons_of(read(tmp_path / "cr.csv", "csv")) != []


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


def test_one_broken_string_spoils_its_own_record(tmp_path):
    """Bytes that are no UTF-8 in the strings of Parquet and Avro: that record is bad, and no other."""
    texts = pa.StringArray.from_buffers(3, pa.py_buffer(np.array([0, 1, 2, 3], np.int32)), pa.py_buffer(b"x\xffz"))
    pq.write_table(pa.table({"user": ["a", "b", "c"], "text": texts}), tmp_path / "in.parquet")
    parts = read(tmp_path / "in.parquet", "parquet")
    assert (users_of(parts), reasons_of(parts)) == (["a", "c"], ["bad_utf8"])
    rows = [{"user": f"u{i}", "text": "MARK" if i == 10 else "fine"} for i in range(100)]
    (tmp_path / "in.avro").write_bytes(avro(rows).replace(b"MARK", b"M\xff\xffK"))
    parts = read(tmp_path / "in.avro", "avro")
    assert (len(users_of(parts)), reasons_of(parts)) == (99, ["bad_utf8"])
    assert sum(part.records for part in parts) == 100


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


def test_line_separators_inside_tokens_survive(tmp_path, key):
    rows = [{"user": f"u{i}", "words": ["a\u2028b", "c\x85d"]} for i in range(300)]
    (tmp_path / "in.jsonl").write_bytes(jsonl(rows))
    flags = ["--input", tmp_path / "in.jsonl", "--tokens_field", "words", "--noise_key", key]
    assert extract(tmp_path / "out", *flags) == 0
    assert main(["report", str(tmp_path / "out")]) == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--input_format", "csv", "--tokens_field", "x"], "tokens_field must be left out with csv"),
        (["--input_format", "parquet", "--skip_header_lines", "1"], "skip_header_lines must be 0 with parquet"),
        (["--output_format", "xml"], "output_format must be one of"),
        (["--max_bad_fraction", "2"], "max_bad_fraction must be a number"),
        (["--resume"], "resume must have the noise_key"),
        (["--input_format", "text", "--sentences"], "sentences must be off"),
        (["--tokenizer", "regex:("], "tokenizer regex must be"),
        (["--tokenizer", "no.such:thing"], "importable module:function"),
        (["--tokenizer", "huggingface:/no/such/file"], "tokenizer huggingface"),
    ],
)
def test_flags_that_cannot_be(corpus, tmp_path, capsys, flags, message):
    (tmp_path / "in.jsonl").write_bytes(jsonl(corpus[:5]))
    assert extract(tmp_path / "out", "--input", tmp_path / "in.jsonl", *flags) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()

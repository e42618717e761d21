"""The same corpus in every format, in and out."""

import bz2
import csv
import gzip
import io
import json

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from dpngram.pipelines.cli import main
from dpngram.pipelines.encoding import OUTPUT_FORMATS
from dpngram.transforms.released import EMPTY_TABLE, GramTable, empty_table

BUDGET = ["--epsilon", "20", "--delta", "0.1", "--max_n", "3", "--max_contributions", "12", "--eta", "0.1"]


def extract(output, *flags):
    try:
        return main(["extract", "--quiet", "--output", str(output), *BUDGET, *map(str, flags)])
    except SystemExit as stop:
        return stop.code


def files(output):
    return {path.name: path.read_bytes() for path in sorted(output.iterdir()) if path.name != "operator.json"}


@pytest.fixture(scope="module")
def corpus():
    random = np.random.default_rng(0)
    words = [*(f"w{i}" for i in range(9)), 'quo"ted', "comma,", "caf\u00e9"]
    chances = 1 / np.arange(1, 13)
    return [
        {
            "user": f"user{user}",
            "text": " ".join(random.choice(words, random.integers(1, 12), p=chances / chances.sum())),
        }
        for user in range(150)
        for _ in range(random.integers(1, 4))
    ]


@pytest.fixture
def key(tmp_path):
    (tmp_path / "noise.key").write_bytes(b"0123456789abcdef" * 2)
    return str(tmp_path / "noise.key")


def jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


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
    for nothing in (EMPTY_TABLE, empty_table(2)):
        if nothing is not EMPTY_TABLE:
            assert encoding.decode(encoding.encode(nothing), 2) == []


def test_a_csv_line_never_swallows_the_next(tmp_path):
    """An open quote makes one line bad, and no other; so do missing columns and bad bytes."""
    from dpngram.pipelines.parsing import Fields, parse_delimited

    lines = [
        b"1,plain text,u1",
        b'2,"open quote,u2',
        b'3,"closed, quote",u3',
        b"4,too few",
        b"5,one,too,many",
        b"6,bad \xff bytes,u6",
        b"7,no user,",
        b'8,"",u8',
        b"",
        b'9,"he said ""hi""",u9',
    ]
    random = np.random.default_rng(0)
    for _ in range(50):
        order = random.permutation(len(lines))
        parsed = parse_delimited(b"\n".join(lines[i] for i in order), b"id,text,user", ",", Fields())
        users = sorted(user.decode() for block in parsed.blocks for user in block.users.to_pylist())
        assert users == ["u1", "u3", "u8", "u9"]
        reasons = sorted(record.reason for record in parsed.bad)
        assert reasons == ["bad_row", "bad_utf8", "missing_columns", "missing_user", "open_quote"]
        assert parsed.records == 9
        body = b"\n".join(lines[i] for i in order)
        for record in parsed.bad:
            assert body[record.offset : record.offset + record.length] in lines


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

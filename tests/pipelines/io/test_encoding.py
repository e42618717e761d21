"""Releases in every output format, and back."""

import csv
import dataclasses
import io
import json

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from helpers.runs import extract, jsonl

from dpngram.pipelines.cli import main
from dpngram.pipelines.io import encoding as encoding_module
from dpngram.pipelines.io.encoding import OUTPUT_FORMATS, PhraseError
from dpngram.transforms.blocks.grams import GramTable, empty_table


@pytest.mark.parametrize("name", OUTPUT_FORMATS)
def test_every_output_format(corpus, key, tmp_path, name):
    (tmp_path / "in.jsonl").write_bytes(jsonl(corpus))
    flags = ["--input", tmp_path / "in.jsonl", "--noise_key", key, "--policy", "paper"]
    assert extract(tmp_path / "plain", *flags) == 0
    assert extract(tmp_path / "out", *flags, "--output_format", name) == 0
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
        n=2,
        tokens=np.array([[words.index(a), words.index(b)] for a, b in pairs], np.int32),
        weight=np.arange(5.0, 0, -1),
        next_valid=0,
        rho=0.0,
        token_offsets=np.cumsum([0, *(len(word.encode()) for word in words)]),
        token_bytes=np.frombuffer(data, np.uint8),
    )
    encoding = OUTPUT_FORMATS[name]
    encoded = encoding.encode(table)
    assert encoding.encode(table) == encoded  # no time, no random mark of a block
    if name == "vocab":
        assert encoded.decode().split("\n")[:2] == ["a\\sb c", "a b\\sc"]
        assert len(set(encoded.decode().splitlines())) == 5
    else:
        assert [tuple(tokens) for tokens, _ in encoding.decode(encoded, 2)] == pairs
        assert phrases_in(encoded, name) == ["a b c", "a b c", 'q" x,y', "l\nm back\\s", "\u00e9 a"]
    assert encoding.decode(encoding.encode(empty_table(2)), 2) == []


def phrases_in(data, name):
    """As programs of others read them."""
    file = io.BytesIO(data)
    if name == "jsonl":
        rows = [json.loads(line) for line in file]
    elif name == "csv":
        rows = list(csv.DictReader(io.StringIO(data.decode(), newline="")))
    else:
        rows = list(fastavro.reader(file)) if name == "avro" else pa.parquet.read_table(file).to_pylist()
    columns = ["token_1", "token_2", "weight", "phrase"] if name == "csv" else ["n", "phrase", "tokens", "weight"]
    assert [list(row) for row in rows] == [columns] * len(rows)
    return [row["phrase"] for row in rows]


@pytest.mark.parametrize("name", ["csv", "jsonl", "parquet", "avro"])
def test_a_phrase_that_is_not_its_tokens_is_an_error(name):
    """Releases of version 0.1 have no phrases; a wrong one is told."""
    encoding, table = OUTPUT_FORMATS[name], numbered(2)
    good = encoding.encode(table)
    rows = encoding.decode(good, 2)
    phrases = phrases_in(good, name)
    columns = {"tokens": [tokens for tokens, _ in rows], "weight": table.weight, "n": [2, 2]}
    for given, wrong in ((None, False), (phrases, False), (phrases[::-1], True)):
        data = as_written_by_others(columns | ({} if given is None else {"phrase": given}), name)
        if wrong:
            with pytest.raises(PhraseError, match="must be its tokens"):
                encoding.decode(data, 2)
        else:
            assert encoding.decode(data, 2) == rows


def as_written_by_others(columns, name):
    table, sink = pa.table(columns), io.BytesIO()
    rows = table.to_pylist()
    if name == "jsonl":
        sink.write(jsonl(rows))
    elif name == "csv":
        places = {f"token_{place}": [tokens[place - 1] for tokens in columns["tokens"]] for place in (1, 2)}
        pa.csv.write_csv(pa.table(places | {key: columns[key] for key in columns if key not in ("n", "tokens")}), sink)
    elif name == "parquet":
        pa.parquet.write_table(table, sink)
    else:
        fields = [
            {"name": "tokens", "type": {"type": "array", "items": "string"}},
            {"name": "weight", "type": "double"},
        ]
        fields += [{"name": "phrase", "type": "string"}] if "phrase" in columns else []
        fastavro.writer(sink, {"type": "record", "name": "Ngram", "fields": fields}, rows)
    return sink.getvalue()


def test_rows_of_long_tokens():
    """64 tokens of 4,096 bytes are a row of any format, which is read again."""
    words = [f"{i:02d}" + '"' * 4094 for i in range(64)]
    table = GramTable(
        n=64,
        tokens=np.arange(64, dtype=np.int32).reshape(1, 64),
        weight=np.ones(1),
        token_offsets=np.arange(65) * 4096,
        token_bytes=np.frombuffer("".join(words).encode(), np.uint8),
    )
    for name in set(OUTPUT_FORMATS) - {"vocab"}:
        encoding = OUTPUT_FORMATS[name]
        assert encoding.decode(encoding.encode(table), 64) == [(words, 1.0)]
        assert encoding.decode_columns(encoding.encode(table), 64)["tokens"].to_pylist() == [words]


def numbered(rows):
    """A table of `rows` pairs of 60 tokens, some of equal weight."""
    words = [f"w{i:02d}" for i in range(60)]
    random = np.random.default_rng(3)
    return GramTable(
        n=2,
        tokens=random.integers(0, 60, (rows, 2)).astype(np.int32),
        weight=np.round(random.random(rows) * 50),
        token_offsets=np.arange(61) * 3,
        token_bytes=np.frombuffer("".join(words).encode(), np.uint8),
    )


def cut(table, rows):
    """Tables of at most so many rows, each with its tokens in another order."""
    for start in range(0, len(table), rows):
        order = np.random.default_rng(start).permutation(60)
        words = [table.vocabulary[row].as_py() for row in order]
        tokens = np.argsort(order).astype(np.int32)[table.tokens[start : start + rows]]
        data = np.frombuffer("".join(words).encode(), np.uint8)
        yield dataclasses.replace(table, tokens=tokens, weight=table.weight[start : start + rows], token_bytes=data)


@pytest.mark.parametrize("name", OUTPUT_FORMATS)
def test_the_bytes_do_not_tell_where_tables_end(name, monkeypatch):
    monkeypatch.setattr(encoding_module, "_GROUP", 400)
    monkeypatch.setattr(encoding_module, "_FEW", 150)
    monkeypatch.setattr(encoding_module, "_MANY", 170)
    table, encoding = numbered(1000), OUTPUT_FORMATS[name]
    whole = encoding.encode(table)
    for rows in (1, 333, 400, 999):
        assert encoding.encode(*cut(table, rows)) == whole
    if name == "parquet":  # as Arrow writes it at once
        sink = io.BytesIO()
        columns = encoding_module.arrow_columns(table)
        pa.parquet.write_table(columns, sink, row_group_size=400, compression="snappy")
        assert sink.getvalue() == whole


def test_line_separators_inside_tokens_survive(tmp_path, key):
    rows = [{"user": f"u{i}", "words": ["a\u2028b", "c\x85d"]} for i in range(300)]
    (tmp_path / "in.jsonl").write_bytes(jsonl(rows))
    flags = ["--input", tmp_path / "in.jsonl", "--tokens_field", "words", "--noise_key", key]
    assert extract(tmp_path / "out", *flags) == 0
    assert main(["report", str(tmp_path / "out")]) == 0


@pytest.mark.parametrize("name", ["csv", "jsonl"])
def test_text_is_made_of_some_rows_at_a_time(name, monkeypatch):
    """The text of a whole table is several times as large as the table."""
    monkeypatch.setattr(encoding_module, "_MANY", 170)
    written = []

    class File(io.BytesIO):
        def write(self, data):
            written.append(bytes(data).count(b"\n"))
            return len(data)

    OUTPUT_FORMATS[name].write(iter([numbered(1000)]), File())
    assert sum(written) == 1000 + (name == "csv")
    assert max(written) <= 171

"""The table of input formats: an entry is all that a new format needs."""

import io
import json
import re
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.keys import write_key
from helpers.records import read, reasons_of, users_of
from helpers.runs import extract, files, small_corpus

from dpngram.accounting import ParameterError
from dpngram.pipelines.extract import make_parser
from dpngram.pipelines.io.input_formats import (
    INPUT_FORMATS,
    FileReader,
    InputFormat,
    TableReader,
    format_of_files,
    format_of_suffix,
    split_lines,
)
from dpngram.pipelines.io.lines import read_pieces
from dpngram.pipelines.io.parsing import Fields, Parsed, parse_jsonl, parse_text
from dpngram.pipelines.io.tables import parse_records
from dpngram.pipelines.template import template_metadata

README = Path(__file__).parents[3] / "README.md"


def read_reversed(extent, fields, skip_header_lines):
    """JSON lines, each written from its end."""
    for piece in read_pieces(extent, skip_header_lines):
        lines = b"\n".join(line[::-1] for line in piece.data.split(b"\n"))
        yield parse_jsonl(lines, fields, piece.offset)


def test_a_new_format_is_one_entry(monkeypatch, tmp_path, capsys):
    """It is read, shown in help, checked by the program, and accepted by the template."""
    entry = FileReader(help="lines from their ends", split=split_lines, read=read_reversed, has_token_lists=True)
    monkeypatch.setitem(INPUT_FORMATS, "reversed", entry)
    write_key(tmp_path / "noise.key", bytes(range(32)))
    lines = [json.dumps(row) for row in small_corpus(100)]
    (tmp_path / "in.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "in.back").write_text("".join(f"{line[::-1]}\n" for line in lines))
    key = ["--noise_key", tmp_path / "noise.key"]
    assert extract(tmp_path / "a", "--input", tmp_path / "in.jsonl", *key) == 0
    back = ["--input", tmp_path / "in.back", "--input_format", "reversed"]
    assert extract(tmp_path / "b", *back, *key) == 0
    assert files(tmp_path / "a") == files(tmp_path / "b")
    capsys.readouterr()
    assert extract(tmp_path / "c", *back, "--skip_header_lines", "1") == 2
    assert "skip_header_lines must be 0 with reversed" in capsys.readouterr().err
    assert "reversed (lines from their ends)" in " ".join(make_parser().format_help().split())
    (parameter,) = [one for one in template_metadata()["parameters"] if one["name"] == "input_format"]
    assert re.fullmatch(parameter["regexes"][0], "reversed")


def read_text(extent, _fields, skip_header_lines):
    for piece in read_pieces(extent, skip_header_lines):
        yield parse_text(piece.data, piece.offset)


def test_records_without_users_are_users(monkeypatch, tmp_path):
    """What `text` does follows from its entry, not from its name."""
    entry = FileReader(help="lines", split=split_lines, read=read_text, has_users=False)
    monkeypatch.setitem(INPUT_FORMATS, "lines", entry)
    (tmp_path / "in").write_text("".join(f"{row['text']}\n" for row in small_corpus(100)))
    write_key(tmp_path / "noise.key", bytes(range(32)))
    for name in ("text", "lines"):
        flags = ["--input", tmp_path / "in", "--input_format", name, "--noise_key", tmp_path / "noise.key"]
        assert extract(tmp_path / name, *flags) == 0
    assert files(tmp_path / "text") == files(tmp_path / "lines")
    assert json.loads((tmp_path / "lines" / "manifest.json").read_text())["settings"]["user_per_document"] is True


def test_a_new_source_of_tables_is_one_entry(monkeypatch, tmp_path, capsys):
    """Its tables are checked by its own check, and the template accepts their names."""

    def refuse(flag, table):
        raise ParameterError(f"{flag} must be a table, got {table!r}.")

    entry = TableReader(help="tables", pattern="warehouse:[a-z]+", check=refuse, transform=lambda *_: None)
    monkeypatch.setitem(INPUT_FORMATS, "warehouse", entry)
    flags = ["--input_format", "warehouse", "--input", "warehouse:posts"]
    assert extract(tmp_path / "out", *flags) == 2
    assert "input must be a table, got 'warehouse:posts'." in capsys.readouterr().err
    (parameter,) = [one for one in template_metadata()["parameters"] if one["name"] == "input"]
    assert re.fullmatch(parameter["regexes"][0], "warehouse:posts warehouse:more")
    with pytest.raises(TypeError, match="warehouse is not a format of files"):
        list(InputFormat(name="warehouse").ranges("path", 1))


def test_tables_have_no_place_to_report(tmp_path, capsys):
    flags = ["--input_format", "bigquery", "--input", "some-project:dataset.posts", "--bad_records", tmp_path / "bad"]
    assert extract(tmp_path / "out", *flags) == 2
    assert "--bad_records is not supported with bigquery" in capsys.readouterr().err


@pytest.mark.parametrize("name", [name for name, reader in INPUT_FORMATS.items() if not reader.has_token_lists])
def test_formats_without_lists(name):
    with pytest.raises(
        ParameterError, match=f"--tokens_field is not supported with {name}: its values cannot be lists"
    ):
        InputFormat(name=name, fields=Fields(tokens="words"))


@pytest.mark.parametrize("name", [name for name, reader in INPUT_FORMATS.items() if isinstance(reader, FileReader)])
def test_an_empty_file_has_no_documents(name, tmp_path):
    """In every format of files; where nothing is a whole file, it is one bad record."""
    (tmp_path / "empty").write_bytes(b"")
    form = InputFormat(name=name)
    parts = [part for extent in form.ranges(str(tmp_path / "empty"), 0) for part in form.read(extent)]
    assert all(isinstance(part, Parsed) and part.blocks == [] for part in parts)
    assert sum(len(part.bad) for part in parts) == sum(part.records for part in parts) <= 1


def test_the_readme_names_every_format():
    (row,) = re.findall(r"^\| input \|.*$", README.read_text(), re.MULTILINE)
    (tables,) = re.findall(r"^\| BigQuery \|.*$", README.read_text(), re.MULTILINE)
    listed = re.search(r"`--input_format` ([^;]+);", row).group(1)
    named = re.findall(r"(\w+)(?: \([^)]*\))?(?:, |$)", listed) + re.findall(r"--input_format (\w+)", tables)
    assert named == list(INPUT_FORMATS)


NULLS = [("a", "x"), (None, "x"), ("b", None), (None, None), ("c", ""), ("", "x"), ("d", "y")]


def columns(users, texts):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"user": users, "text": texts}), sink)
    return sink.getvalue().to_pybytes()


def avro_nulls():
    fields = [{"name": name, "type": ["null", "string"]} for name in ("user", "text")]
    sink = io.BytesIO()
    rows = [dict(zip(("user", "text"), row, strict=True)) for row in NULLS]
    fastavro.writer(sink, fastavro.parse_schema({"type": "record", "name": "r", "fields": fields}), rows)
    return sink.getvalue()


def written_nulls():
    """The same records in every format that knows nulls; in JSON a null may also be left out."""
    users, texts = (pa.array(column) for column in zip(*NULLS, strict=True))
    rows = [{"user": user, "text": text} for user, text in NULLS]
    short = [{name: value for name, value in row.items() if value is not None} for row in rows]
    lines = ["".join(f"{json.dumps(row)}\n" for row in some).encode() for some in (rows, short, rows)]
    return {
        "null.jsonl": lines[0],
        "left_out.jsonl": lines[1],
        "blocks.jsonl": lines[2] * 3000,
        "strings.parquet": columns(users, texts),
        "dictionary.parquet": columns(users.dictionary_encode(), texts.dictionary_encode()),
        "large.parquet": columns(users.cast(pa.large_string()), texts.cast(pa.large_string())),
        "union.avro": avro_nulls(),
    }


@pytest.mark.parametrize("name", written_nulls())
def test_nulls_count_alike_in_every_format(name, tmp_path):
    """A null user or text is a missing one; an empty user is missing, too; an empty text is a text."""
    (tmp_path / name).write_bytes(written_nulls()[name])
    parts = read(tmp_path / name, name.rpartition(".")[2])
    times = sum(part.records for part in parts) // len(NULLS)
    assert users_of(parts) == sorted(["a", "c", "d"] * times)
    assert reasons_of(parts) == sorted(["missing_text", "missing_user", "missing_user", "missing_user"] * times)


@pytest.mark.parametrize(("name", "mark"), [("csv", ","), ("tsv", "\t")])
def test_formats_without_nulls(name, mark, tmp_path):
    """What others write as null is empty here: an empty user is missing, an empty text is a text."""
    lines = ["user" + mark + "text", *(f"{user or ''}{mark}{text or ''}" for user, text in NULLS)]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines))
    parts = read(tmp_path / "in", name)
    assert users_of(parts) == ["a", "b", "c", "d"]
    assert reasons_of(parts) == ["missing_user"] * 3


def test_nulls_of_tables():
    parsed = parse_records([{"user": user, "text": text} for user, text in NULLS], Fields(), 0)
    assert users_of([parsed]) == ["a", "c", "d"]
    assert reasons_of([parsed]) == ["missing_text", "missing_user", "missing_user", "missing_user"]


def test_columns_without_any_value(tmp_path):
    """Writers give them the type null. The other name of the field is used where there is one."""
    rows = 3
    (tmp_path / "user.parquet").write_bytes(columns(pa.nulls(rows), pa.array(["x"] * rows)))
    (tmp_path / "text.parquet").write_bytes(columns(pa.array(["a"] * rows), pa.nulls(rows)))
    assert reasons_of(read(tmp_path / "user.parquet", "parquet")) == ["missing_user"] * rows
    assert reasons_of(read(tmp_path / "text.parquet", "parquet")) == ["missing_text"] * rows
    both = pa.table({"user": pa.nulls(2), "author": ["a", None], "text": ["x", "y"], "content": pa.nulls(2)})
    pq.write_table(both, tmp_path / "both.parquet")
    parts = read(tmp_path / "both.parquet", "parquet")
    assert (users_of(parts), reasons_of(parts)) == (["a"], ["missing_user"])


def test_nulls_in_lists_of_tokens(tmp_path):
    rows = [{"user": f"u{i}", "words": words} for i, words in enumerate([["a"], None, ["a", None], [], [None]])]
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet")
    pq.write_table(pa.Table.from_pylist(rows[3:]), tmp_path / "nulls.parquet")
    fields = Fields(tokens="words")
    for name in ("jsonl", "parquet"):
        parts = read(tmp_path / f"in.{name}", name, fields=fields)
        assert (users_of(parts), reasons_of(parts)) == (["u0", "u3"], ["bad_text", "bad_text", "missing_text"])
    parts = read(tmp_path / "nulls.parquet", "parquet", fields=fields)
    assert (users_of(parts), reasons_of(parts)) == (["u3"], ["bad_text"])


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("posts.jsonl", "jsonl"),
        ("gs://bucket/posts-*.jsonl.gz", "jsonl"),
        ("a.ndjson.zst", "jsonl"),
        ("a.JSON", "jsonl"),
        ("a.csv.bz2", "csv"),
        ("a.TSV.GZ", "tsv"),
        ("a.parquet", "parquet"),
        ("a.avro", "avro"),
        ("a.txt", "text"),
        ("a.xml", None),
        ("csv", None),
        ("a.csv/part-0", None),
        ("a.csv.zip", None),
        ("a.*", None),
        ("a.gz", None),
    ],
)
def test_suffixes(path, name):
    assert format_of_suffix(path) == name


def test_one_format_for_all():
    assert format_of_files(["a.json", "b.jsonl.gz", "c.ndjson"]) == "jsonl"
    with pytest.raises(ParameterError, match=r"one format, got 'a.csv' \(csv\) and 'c.tsv' \(tsv\)"):
        format_of_files(["a.csv", "b.csv", "c.tsv"])
    with pytest.raises(ParameterError, match=r"input_format must be given: 'c.xml' has none of the suffixes .jsonl, "):
        format_of_files(["a.csv", "c.xml"])

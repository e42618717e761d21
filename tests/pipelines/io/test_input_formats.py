"""The table of input formats: an entry is all that a new format needs."""

import json
import re
from pathlib import Path

import pytest
from helpers.keys import write_key
from helpers.runs import extract, files, small_corpus

from dpngram.accounting import ParameterError
from dpngram.pipelines.extract import make_parser
from dpngram.pipelines.io.input_formats import INPUT_FORMATS, FileReader, InputFormat, TableReader, split_lines
from dpngram.pipelines.io.lines import read_pieces
from dpngram.pipelines.io.parsing import Fields, Parsed, parse_jsonl, parse_text
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

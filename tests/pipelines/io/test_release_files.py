"""Names of a release's files: made from the table of output formats, so that none is left behind."""

import json
import re
from pathlib import Path

import pytest
from helpers.keys import write_key
from helpers.runs import checkpoints_of, extract, keep_checkpoints, small_corpus

from dpngram.pipelines.cli import main
from dpngram.pipelines.extract import make_parser
from dpngram.pipelines.io.encoding import OUTPUT_FORMATS, Encoding
from dpngram.pipelines.io.release_files import is_ours, rows_name, rows_path
from dpngram.pipelines.template import template_metadata

README = Path(__file__).parents[3] / "README.md"


def write(tables, file):
    for table in tables:
        for gram in table.rows():
            file.write(f"{gram.weight}\t{' '.join(gram.tokens)}\n".encode())


def read(file, _n):
    for line in file:
        weight, tokens = line.decode().rstrip("\n").split("\t")
        yield tokens.split(" "), float(weight)


@pytest.fixture
def new_format(monkeypatch):
    """A format with a digit and a dot in its suffix."""
    entry = Encoding(help="weights and tokens", suffix="v2.tab", write=write, read=read)
    monkeypatch.setitem(OUTPUT_FORMATS, "tab2", entry)


def test_a_new_format_is_one_entry(new_format, tmp_path, capsys):
    """It is written, read for the report, accepted by --resume, and cleaned up by --overwrite."""
    write_key(tmp_path / "noise.key", bytes(range(32)))
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in small_corpus(150)))
    flags = ["--input", tmp_path / "in.jsonl", "--noise_key", tmp_path / "noise.key"]
    out = tmp_path / "out"
    assert extract(out, *flags, "--output_format", "tab2") == 0
    assert sorted(path.name for path in out.glob("ngrams*")) == [f"ngrams-0{n}.v2.tab" for n in (1, 2, 3)]
    manifest = json.loads((out / "manifest.json").read_text())
    assert [level["released"] for level in manifest["levels"]] == [
        len((out / level["file"]).read_text().splitlines()) for level in manifest["levels"]
    ]
    assert main(["report", str(out)]) == 0
    capsys.readouterr()
    assert extract(out, *flags, "--output_format", "tab2", "--resume") == 0
    assert capsys.readouterr().out.startswith("Released ")
    (out / "ngrams-02.v2.tab").write_text("changed")
    assert extract(out, *flags, "--output_format", "tab2", "--resume") == 2
    assert "ngrams-02.v2.tab is not as it was" in capsys.readouterr().err
    (out / f"ngrams-03.v2.tab.{'0f' * 8}.tmp").write_text("half")
    assert extract(out, *flags, "--overwrite") == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "manifest.json",
        *(f"ngrams-0{n}.jsonl" for n in (1, 2, 3)),
        "report.html",
    ]


def test_a_new_format_is_shown(new_format):
    assert "tab2 (weights and tokens)" in " ".join(make_parser().format_help().split())
    (parameter,) = [one for one in template_metadata()["parameters"] if one["name"] == "output_format"]
    assert re.fullmatch(parameter["regexes"][0], "tab2")


@pytest.mark.parametrize("output_format", OUTPUT_FORMATS)
def test_every_name_is_ours(output_format):
    name = rows_name(7, output_format)
    assert is_ours(name)
    assert is_ours(f"{name}.{'0a' * 8}.tmp")
    assert rows_path("out", name) == f"out/{name}"


@pytest.mark.parametrize(
    "name",
    ["ngrams-1.jsonl", "ngrams-01.jsonlx", "ngrams-01.exe", "notes.json", "xngrams-01.jsonl", "../manifest.json"],
)
def test_other_names_are_not(name):
    assert not is_ours(name)
    with pytest.raises(ValueError, match="a manifest must name files of its own release"):
        rows_path("out", name)


def test_checkpoints_are_ours(tmp_path, monkeypatch):
    """Their names are made in another room; version 0.1 wrote them into the output."""
    keep_checkpoints(monkeypatch)
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in small_corpus(50)))
    flags = ["--input", tmp_path / "in.jsonl", "--noise_key", tmp_path / "noise.key"]
    assert extract(tmp_path / "out", *flags) == 0
    names = [path.name for path in checkpoints_of(tmp_path / "out")]
    assert len(names) >= 3
    assert [name for name in names if not is_ours(name)] == []


def test_the_readme_names_every_format():
    (row,) = re.findall(r"^\| output \|.*$", README.read_text(), re.MULTILINE)
    listed = re.search(r"`--output_format` ([^;]+);", row).group(1)
    assert re.findall(r"(\w+)(?: \([^)]*\))?(?:, |$)", listed) == list(OUTPUT_FORMATS)

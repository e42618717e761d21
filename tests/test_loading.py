"""The lines of docs/howto/use-a-release.md load whole releases, lengths without a row included."""

import ast
import fileinput
import importlib
import json
import pathlib
import re
from glob import glob
from pathlib import Path

import pyarrow.dataset
import pytest
from helpers.runs import extract, write

import dpngram

PAGE = Path(__file__).parent.parent / "docs" / "howto" / "use-a-release.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
LINES = [ast.unparse(node) for block in BLOCKS for node in ast.parse(block).body]
PACKAGES = {
    "pd": "pandas",
    "datasets": "datasets",
    "duckdb": "duckdb",
    "matcher": "spacy",
    "tft": "tensorflow_transform",
}
POSTS = [{"user": f"u{i}", "text": "see you tomorrow"} for i in range(200)]


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    """A release in each format. The first test that needs it pays."""
    directory = tmp_path_factory.mktemp("loading")
    source = write(directory / "in.jsonl", POSTS)
    for name in ("jsonl", "csv", "parquet", "avro", "vocab"):
        assert extract(directory / name / "release", "--input", source, "--output_format", name, "--max_n", "4") == 0
    return directory


def package_of(line):
    return next((package for name, package in PACKAGES.items() if line.startswith(f"{name}.")), None)


@pytest.mark.parametrize("line", LINES, ids=[re.sub(r"\W+", "-", line)[:40] for line in LINES])
def test_a_line_loads_all_rows(line, releases, monkeypatch, tmp_path):
    package = package_of(line)
    names = {
        "dpngram": dpngram,
        "glob": glob,
        "json": json,
        "fileinput": fileinput,
        "pathlib": pathlib,
        "pyarrow": pyarrow,
    }
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    if package is not None:
        module = pytest.importorskip(package, reason=f"the package {package} is not installed")
        names[next(name for name in PACKAGES if PACKAGES[name] == package)] = module
    if package == "spacy":
        nlp = module.blank("en")
        names |= {"nlp": nlp, "Doc": importlib.import_module("spacy.tokens").Doc}
        names["matcher"] = importlib.import_module("spacy.matcher").PhraseMatcher(nlp.vocab)
    if package == "tensorflow_transform":
        names["words"] = importlib.import_module("tensorflow").constant(["see", "you", "tomorrow", "never"])
    form = re.search(r"(?:ngrams-[*\d]+\.(\w+)|$)", line).group(1) or "avro"
    monkeypatch.chdir(releases / {"txt": "vocab"}.get(form, form))
    found = eval(line, names)  # noqa: S307
    levels = json.loads(Path("release/manifest.json").read_text(encoding="utf-8"))["levels"]
    released = [level["released"] for level in levels]  # 3 + 2 + 1 + 0, and sometimes a spurious n-gram
    assert sum(released) >= 6
    if package == "spacy":
        assert len(names["matcher"](nlp("see you tomorrow"))) == 6
    elif package == "tensorflow_transform":
        assert sorted(found.numpy()) == [-1, 0, 1, 2]
        assert found.numpy()[3] == -1
    elif form == "txt":
        assert sorted(found) == ["see", "tomorrow", "you"]
    else:
        assert len(found) == (released[1] if form == "csv" else sum(released))
        assert "see you" in [row["phrase"] for row in rows_of(found)]


def rows_of(found):
    """The rows as dictionaries, of a data frame or of a table."""
    if hasattr(found, "to_arrow_table"):  # DuckDB
        found = found.to_arrow_table()
    if hasattr(found, "to_pylist"):
        return found.to_pylist()
    return found.to_dict("records") if hasattr(found, "columns") else list(found)


def test_the_page_has_a_line_for_each():
    assert [package_of(line) for line in LINES].count("pandas") == 3
    assert {package_of(line) for line in LINES} == {None, *PACKAGES.values()}


def test_a_directory_of_parquet(releases):
    """pandas opens all of its files; Arrow can leave out those that are not Parquet. Both as the page says."""
    pandas = pytest.importorskip("pandas", reason="the package pandas is not installed")
    directory = str(releases / "parquet" / "release")
    with pytest.raises(pyarrow.ArrowInvalid, match=r"manifest\.json"):
        pandas.read_parquet(directory)
    found = pyarrow.dataset.dataset(directory, exclude_invalid_files=True).to_table()
    assert found.sort_by("n").equals(dpngram.read_release(directory).sort_by("n"))

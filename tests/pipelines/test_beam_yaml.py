"""The transform in Beam YAML."""

import json
import re
from pathlib import Path

import pytest

from dpngram.accounting import ParameterError
from dpngram.pipelines.beam_yaml import extract_ngrams

BUDGET = {"epsilon": 4, "delta": 1e-6, "max_n": 3, "max_contributions": 50}
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run_yaml(posts, tmp_path, old="", new=""):
    from apache_beam.yaml import main as yaml_main

    path = tmp_path / "pipeline.yaml"
    path.write_text((EXAMPLES / "extract.yaml").read_text().replace(old, new))
    variables = json.dumps({"input": str(posts), "output": str(tmp_path / "ngrams.jsonl")})
    yaml_main.run(["--yaml_pipeline_file", str(path), "--jinja_variables", variables])


@pytest.mark.filterwarnings("ignore")  # Beam's own YAML modules warn
def test_beam_yaml(posts, tmp_path):
    run_yaml(posts, tmp_path)
    rows = [json.loads(line) for path in tmp_path.glob("ngrams*") for line in path.read_text().splitlines()]
    assert ["see", "you", "tomorrow"] in [row["tokens"] for row in rows]
    assert all(row["n"] == len(row["tokens"]) for row in rows)


@pytest.mark.filterwarnings("ignore")
def test_the_command_in_the_example_finds_its_files(posts, tmp_path, monkeypatch):
    """As printed there and in the documentation, in the directory of the data."""
    from apache_beam.yaml import main as yaml_main

    example = EXAMPLES / "extract.yaml"
    (variables,) = re.findall(r"--jinja_variables='(.*)'", example.read_text())
    page = EXAMPLES.parent / "docs" / "howto" / "beam-yaml.md"
    assert f"--jinja_variables='{variables}'" in page.read_text(encoding="utf-8")
    posts.rename(tmp_path / "posts-1.jsonl")
    monkeypatch.chdir(tmp_path)
    yaml_main.run(["--yaml_pipeline_file", str(example), "--jinja_variables", variables])
    assert [path.name for path in tmp_path.glob("ngrams*")] == ["ngrams.jsonl-00000-of-00001"]


@pytest.mark.filterwarnings("ignore")
def test_other_fields_fail_when_the_graph_is_built(posts, tmp_path):
    posts.write_text(posts.read_text().replace('"user"', '"author"'))
    words = re.escape("user_field must be a field of the documents, got 'user'; they have author, text.")
    with pytest.raises(Exception, match=words):
        run_yaml(posts, tmp_path)
    assert not list(tmp_path.glob("ngrams*"))
    run_yaml(posts, tmp_path, "max_contributions: 50", "max_contributions: 50\n        user_field: author")
    assert list(tmp_path.glob("ngrams*"))


@pytest.mark.filterwarnings("ignore")
def test_lines_of_text_have_no_user(posts, tmp_path):
    with pytest.raises(Exception, match="got 'user'; they have line"):
        run_yaml(posts, tmp_path, "ReadFromJson", "ReadFromText")


def test_names_of_settings():
    with pytest.raises(ParameterError, match=r"config of ExtractNgrams .* got 'tokeniser'; did you mean tokenizer\?"):
        extract_ngrams(**BUDGET, tokeniser="words")
    with pytest.raises(ParameterError, match=r"got 'zzz'; it has bound_windows, .*user_per_document"):
        extract_ngrams(**BUDGET, zzz=1)
    assert extract_ngrams(**BUDGET).settings()["max_bad_fraction"] == 0.01
    assert extract_ngrams(**BUDGET, max_bad_fraction=1).settings()["max_bad_fraction"] == 1

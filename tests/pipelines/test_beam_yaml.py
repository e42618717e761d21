"""The transform in Beam YAML."""

import json
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.filterwarnings("ignore")  # Beam's own YAML modules warn
def test_beam_yaml(posts, tmp_path):
    from apache_beam.yaml import main as yaml_main

    variables = json.dumps({"input": str(posts), "output": str(tmp_path / "ngrams.jsonl")})
    yaml_main.run(["--yaml_pipeline_file", str(EXAMPLES / "extract.yaml"), "--jinja_variables", variables])
    rows = [json.loads(line) for path in tmp_path.glob("ngrams*") for line in path.read_text().splitlines()]
    assert ["see", "you", "tomorrow"] in [row["tokens"] for row in rows]
    assert all(row["n"] == len(row["tokens"]) for row in rows)

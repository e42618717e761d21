"""Notes for the operator."""

import json

from helpers.runs import GOOD, extract
from helpers.runs import jsonl as body


def test_records_over_a_cap_are_counted(tmp_path):
    long_token = {"user": "a", "text": "x" * 5000 + " y"}
    (tmp_path / "in.jsonl").write_bytes(body([*GOOD, long_token]))
    assert extract(tmp_path / "out", "--input", tmp_path / "in.jsonl") == 0
    assert json.loads((tmp_path / "out" / "operator.json").read_text())["bad_records"] == {"over_cap": 1}

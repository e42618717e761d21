"""Notes for the operator."""

from helpers.runs import GOOD, extract, notes_of
from helpers.runs import jsonl as body


def test_records_over_a_cap_are_counted(tmp_path):
    long_token = {"user": "a", "text": "x" * 5000 + " y"}
    (tmp_path / "in.jsonl").write_bytes(body([*GOOD, long_token]))
    assert extract(tmp_path / "out", "--input", tmp_path / "in.jsonl") == 0
    assert notes_of(tmp_path / "out")["bad_records"] == {"over_cap": 1}

"""`dpngram plan` as a person meets it: the table, the JSON, and one line for every mistake."""

import json

from helpers.plan_flags import words

from dpngram.accounting import ExtractionPlan, plan_extraction
from dpngram.pipelines.cli import main


def test_table_is_aligned_and_concludes(capsys):
    assert main(words()) == 0
    lines = capsys.readouterr().out.splitlines()
    table = lines[2:13]
    assert len({len(line) for line in table}) == 1
    assert "3.98571" in table[2]
    assert "25.0976" in table[2]
    assert lines[-1].startswith("In short: a word needs about 435 users")


def test_json_is_the_plan(capsys):
    assert main([*words(decay="0.9", windows="2"), "--json"]) == 0
    text = capsys.readouterr().out
    expected = plan_extraction(
        epsilon=4, delta=1e-7, max_n=9, max_contributions=300, decay=0.9, windows=2, policy="paper"
    )
    assert ExtractionPlan.from_json(text) == expected
    assert {row["n"] for row in json.loads(text)["derived"]["users_needed"]} == set(range(1, 10))


def test_explain_is_prose(capsys):
    assert main([*words(), "--explain"]) == 0
    assert "What is protected." in capsys.readouterr().out

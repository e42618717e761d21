"""`dpngram plan` as a person meets it: the table, the JSON, and one line for every mistake."""

import json
import shlex

import pytest
from helpers.plan_flags import words

from dpngram.accounting import ExtractionPlan, plan_extraction, users_needed
from dpngram.accounting.outlook import forecast_released
from dpngram.pipelines.cli import main
from dpngram.pipelines.extract import make_parser
from dpngram.pipelines.launch.flags import plan_from_flags


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


def test_users_alone_propose_a_first_command(capsys):
    """The command that is shown can be typed, and its plan is one of those in the table."""
    assert main(["plan", "--users", "50000", "--tokens_per_user", "200"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("For about 50,000 users: --delta 1e-06 --max_n 5 --max_contributions 200\n")
    command = shlex.split(out[out.index("dpngram extract") :].replace("\\\n", " "))
    flags, rest = make_parser().parse_known_args(command[2:])
    assert rest == []
    plan = plan_from_flags(flags)
    assert (plan.epsilon, plan.delta, plan.max_n, plan.levels[0].max_contributions) == (4, 1e-6, 5, 200)
    word = users_needed(plan, 1, 200, 0.5)
    outlook = forecast_released(50000, 200, word)
    assert f"\n      4{float(f'{outlook.released:.2g}'):>16,.0f}{word:>25,}" in out
    prose = " ".join(out.split())
    assert "On four other corpora 0.7 to 7 times as many were released, 2.5 times in the middle" in prose
    assert "tokens_per_user" not in prose
    assert "Nothing of this size" not in prose
    assert main(["plan", "--users", "200"]) == 0
    prose = " ".join(capsys.readouterr().out.split())
    assert "It takes a user to have written 100 words" in prose
    assert "Nothing of this size was tried, only 500 to 100,000 users with 5 to 600 words each" in prose


def test_mistakes_with_users(capsys):
    for flags, message in (
        (["--users", "x"], "users must be a whole number"),
        (["--users", "5", "--tokens_per_user", "0"], "tokens_per_user must be a whole number"),
        (["--users", "5", "--token_per_user", "3"], "did you mean --tokens_per_user?"),
        (["--users", "5", "--delta", "1e-3"], "required: --epsilon, --max_n, --max_contributions"),
        ([*words()[1:], "--tokens_per_user", "5"], "tokens_per_user must be left out"),
        ([*words()[1:], "--users", "0"], "users must be a whole number"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["plan", *flags])
        assert stop.value.code == 2
        assert message in capsys.readouterr().err


def test_doubtful_budgets_warn_once(capsys):
    assert main([*words(epsilon="12", delta="1e-3"), "--users", "50000"]) == 0
    warnings = capsys.readouterr().err.splitlines()
    assert [line.split(" is ")[0] for line in warnings] == [
        "dpngram plan: warning: epsilon 12",
        "dpngram plan: warning: delta 0.001",
    ]
    assert main([*words(), "--users", "50000"]) == 0
    assert capsys.readouterr().err == ""


def test_a_public_vocabulary(capsys):
    budget = ["--epsilon=4", "--delta=1e-6", "--max_n=3", "--max_contributions=20", "--vocabulary"]
    assert main(["plan", *budget]) == 0
    out = capsys.readouterr().out
    assert "In short: a pair of listed words needs about" in out
    assert " public " in out
    assert main(["plan", *budget, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["public_vocabulary"] is True
    assert {row["n"] for row in document["derived"]["users_needed"]} == {2, 3}
    assert main(["plan", *budget, "--explain"]) == 0
    assert "Nothing of length 1 is released" in " ".join(capsys.readouterr().out.split())

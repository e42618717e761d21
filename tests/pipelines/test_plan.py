"""`dpngram plan` as a person meets it: the table, the JSON, and one line for every mistake."""

import json
import re

import pytest

from dpngram.accounting import ExtractionPlan, plan_extraction
from dpngram.pipelines.cli import main

GOOD = {"--epsilon": "4", "--delta": "1e-7", "--max_n": "9", "--max_contributions": "300", "--policy": "paper"}


def words(**changes):
    flags = {**GOOD, **{f"--{name}": value for name, value in changes.items()}}
    return ["plan", *(word for flag, value in flags.items() if value is not None for word in (flag, value))]


def test_table_is_aligned_and_concludes(capsys):
    assert main(words()) == 0
    lines = capsys.readouterr().out.splitlines()
    table = lines[2:13]
    assert len({len(line) for line in table}) == 1
    assert "3.98371" in table[2]
    assert "25.0851" in table[2]
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


def test_lists_are_taken(capsys):
    assert main(words(max_n="3", max_contributions="300,200,100", shares="1,1,2")) == 0
    assert "<= 200" in capsys.readouterr().out


NUMBERS = ["0", "-1", "nan", "inf", "-inf", "abc", "", "1e999", "0x10", "1,2", "-0.0", "1e-400"]
BAD = [
    *[({"epsilon": value}, "epsilon", value) for value in [*NUMBERS, "1e-9", "1e5", "4 4"]],
    *[({"delta": value}, "delta", value) for value in [*NUMBERS, "1", "1.5", "1e-301"]],
    *[({"eta": value}, "eta", value) for value in [*NUMBERS, "1", "2"]],
    *[({"decay": value}, "decay", value) for value in [*NUMBERS, "100"]],
    *[({"max_n": value}, "max_n", value) for value in ["0", "-3", "65", "2.5", "9.0", "nan", "ten", "", "1,2"]],
    *[
        ({"max_contributions": value}, "max_contributions", value)
        for value in ["0", "-5", "1000001", "2.5", "many", "", "1,2", "1,2,3,4,5,6,7,8,0", "nan", "-1,2"]
    ],
    *[({"shares": value}, "shares", value) for value in ["1", "1,2", "0,1,1,1,1,1,1,1,1", "a,b,c,d,e,f,g,h,i"]],
    *[({"windows": value}, "windows", value) for value in ["0", "-1", "1.5", "x", "10000000"]],
    *[({"policy": value}, "policy", value) for value in ["", "none", "PAPER"]],
    ({"shares": "1,1,1,1,1,1,1,1,1", "decay": "0.9"}, "decay", "0.9"),
]


def shown(value):
    """How the value may appear in the message: as written, or as the number it is."""
    forms = {value, repr(value)}
    for part in value.split(","):
        forms.add(repr(part) if part else "''")
        try:
            forms.add(str(float(part)))
            forms.add(str(int(part)))
        except ValueError:
            continue
    return forms


@pytest.mark.parametrize(("changes", "parameter", "value"), BAD)
def test_bad_parameters_get_one_line(changes, parameter, value, capsys):
    try:
        status = main(words(**changes))
    except SystemExit as stop:
        status = stop.code
    out, err = capsys.readouterr()
    assert status == 2
    assert out == ""
    assert re.fullmatch(r"dpngram plan: error: [^\n]+\n", err)
    assert parameter in err
    assert " must be " in err
    assert any(form in err for form in shown(value))


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["nonsense"],
        ["plan"],
        ["plan", "--epsilon"],
        [*words(), "--unknown", "1"],
        [*words(), "--eps", "3"],
        [*words(), "stray"],
        [*words(), "--json", "--explain"],
        words(epsilon=None),
        words(delta=None),
        words(max_n=None),
        words(max_contributions=None),
    ],
)
def test_bad_flags_get_one_line(argv, capsys):
    try:
        status = main(argv)
    except SystemExit as stop:
        status = stop.code
    out, err = capsys.readouterr()
    assert status == 2
    assert "Traceback" not in err
    assert err.count("\n") == 1 or (argv == [] and out.startswith("usage:"))


def test_help_and_version(capsys):
    assert main(["--help"]) == 0
    assert "plan" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert re.fullmatch(r"dpngram \d+\.\d+\.\d+\n", capsys.readouterr().out)

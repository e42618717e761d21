"""Flags of the budget: lists, and one line for every bad value."""

import re

import pytest
from helpers.plan_flags import words

from dpngram.pipelines.cli import main


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

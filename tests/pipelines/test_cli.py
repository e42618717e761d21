"""The one command: help, version, and one line for every mistake."""

import re
import signal
import sys

import pytest
from helpers.plan_flags import words

from dpngram.pipelines.cli import main


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


def test_a_package_that_is_missing(monkeypatch, capsys):
    """As after `pip install --no-deps dpngram`, with which `plan` works and the others do not."""
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    monkeypatch.delitem(sys.modules, "dpngram.pipelines.extract", raising=False)
    assert main(["extract", "--help"]) == 1
    assert capsys.readouterr() == (
        "",
        "dpngram: error: extract needs the package apache_beam, which is not installed.\n",
    )


def test_help_and_version(capsys):
    assert main(["--help"]) == 0
    assert "plan" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert re.fullmatch(r"dpngram \d+\.\d+\.\d+\n", capsys.readouterr().out)


@pytest.mark.usefixtures("_usual_signals")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 1)])
def test_stopped(monkeypatch, capsys, number, status):
    """By Ctrl-C, or by whoever ends processes; one line, no traceback."""
    monkeypatch.setattr("dpngram.pipelines.plan.run", lambda _: signal.raise_signal(number))
    assert main(["plan"]) == status
    assert capsys.readouterr().err == "dpngram: error: stopped.\n"


def test_a_misspelt_program_gets_a_suggestion(capsys):
    assert main(["exract"]) == 2
    assert capsys.readouterr().err.endswith("got 'exract'; did you mean extract?\n")

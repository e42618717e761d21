"""Flags as values, and the parser that is made from them."""

import argparse

import pytest

from dpngram.pipelines.launch.flags import Flag, Kind, OneLineParser, number_list, number_or_text, print_error


@pytest.fixture
def parser():
    parser = OneLineParser("program", "What it does.")
    parser.add_flags(
        [
            Flag("level", "how high, from -100 % to 100 %", Kind.NUMBER, default=3),
            Flag("parts", "several numbers", Kind.NUMBERS),
            Flag("name", "any text (default: nobody)"),
            Flag("more", "one of many", several=True, default=()),
            Flag("fast", "do not wait", Kind.SWITCH),
        ],
        "values",
    )
    return parser


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ([], "level", 3),
        (["--level", "7"], "level", 7),
        (["--level", "-inf"], "level", float("-inf")),
        (["--level=-2.5"], "level", -2.5),
        (["--level", "high"], "level", "high"),
        (["--parts", "-1,2"], "parts", [-1, 2]),
        (["--parts", "4"], "parts", 4),
        ([], "parts", None),
        (["--name", "-x"], "name", "-x"),
        ([], "more", []),
        (["--more", "a", "--more", "b"], "more", ["a", "b"]),
        (["--fast"], "fast", True),
        ([], "fast", False),
    ],
)
def test_values(parser, words, name, value):
    assert getattr(parser.parse_args(words), name) == value


def test_defaults_of_lists_are_not_shared(parser):
    parser.parse_args(["--more", "a"])
    assert parser.parse_args([]).more == []


def test_help(parser):
    shown = parser.format_help()
    assert "values:" in shown
    assert "how high, from -100 % to 100 % (default 3)" in shown
    assert "any text (default: nobody)\n" in shown  # says it itself
    assert "one of many\n" in shown


def test_errors_are_one_line(parser, capsys):
    for words in (["--level"], ["--fast=1"], ["--lev", "1"]):
        with pytest.raises(SystemExit) as stop:
            parser.parse_args(words)
        assert stop.value.code == 2
        error = capsys.readouterr().err
        assert error.startswith("program: error: ")
        assert error.count("\n") == 1


def test_other_flags_are_left(parser):
    flags, rest = parser.parse_known_args(["--runner", "X", "--fast", "--lev=1"])
    assert isinstance(flags, argparse.Namespace)
    assert flags.fast
    assert rest == ["--runner", "X", "--lev=1"]


def test_numbers_or_texts():
    assert [number_or_text(text) for text in ("1", "1e3", "0x1", "")] == [1, 1000.0, "0x1", ""]
    assert number_list("1,x,2.5") == [1, "x", 2.5]


def test_an_error_is_one_line(capsys):
    assert print_error("program", "two\n  lines", 1) == 1
    assert capsys.readouterr().err == "program: error: two lines\n"

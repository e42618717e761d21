"""Flags as values, and the parser that is made from them."""

import argparse

import pytest

from dpngram.pipelines.launch.flags import (
    Flag,
    Kind,
    OneLineParser,
    number_list,
    number_or_text,
    print_error,
    show_note,
    suggestion,
)


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
    print_error("program", "got 'two  spaces'", 1)
    assert capsys.readouterr().err == "program: error: got 'two  spaces'\n"
    show_note("not\nstopped")
    assert capsys.readouterr().err == "dpngram: note: not stopped\n"


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("--user_feild", "user_field"),
        ("--user-field=x", "user_field"),
        ("-user_field", "user_field"),
        ("--USER_FIELD", "user_field"),
        ("--userfield", "user_field"),
        ("--epsilom", "epsilon"),
        ("--frobnicate", None),
        ("user_field", None),
        ("-x", None),
    ],
)
def test_suggestions(word, meant):
    expected = f"; did you mean --{meant}?" if meant else ""
    assert suggestion(word, ["text_field", "user_field", "epsilon", "output"]) == expected


def test_a_misspelt_flag(parser, capsys):
    """Also one that is required: what is missing was perhaps given."""
    parser.add_flags([Flag("user_field", "who", required=True)])
    for words, meant in ((["--user_feild", "a"], "user_field"), (["--user_field", "a", "--levl=3"], "level")):
        with pytest.raises(SystemExit):
            parser.parse_args(words)
        error = capsys.readouterr().err
        assert f"; did you mean --{meant}? (--help lists the flags)\n" in error
        assert error.count("\n") == 1
    with pytest.raises(SystemExit):
        parser.parse_known_args(["--other", "a"])
    assert "did you mean" not in capsys.readouterr().err


def test_an_error_that_names_its_flag_needs_no_hint(parser, capsys):
    with pytest.raises(SystemExit):
        parser.error("no column 'user' in a.csv (--name)")
    assert capsys.readouterr().err == "program: error: no column 'user' in a.csv (--name)\n"

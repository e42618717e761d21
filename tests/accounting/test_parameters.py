"""Checks of parameters: ends of ranges, kinds that are no numbers, and messages of one short line."""

import math

import numpy as np
import pytest

from dpngram.accounting import ParameterError
from dpngram.accounting.parameters import check_choice, check_integer, check_number, check_sequence


def test_ends_of_a_range_belong_to_it_unless_it_is_open():
    assert check_number("x", 0, 0.0, 1.0) == 0.0
    assert check_number("x", 1, 0.0, 1.0) == 1.0
    with pytest.raises(ParameterError, match="x must be a number greater than 0 and at most 1, got 0"):
        check_number("x", 0, 0.0, 1.0, low_open=True)
    with pytest.raises(ParameterError, match="x must be a number at least 0 and less than 1, got 1"):
        check_number("x", 1, 0.0, 1.0, high_open=True)


@pytest.mark.parametrize("bad", [True, None, "0.5", math.nan, -math.inf, 10**400, [0.5], 0.5j])
def test_what_is_no_number_of_the_range(bad):
    with pytest.raises(ParameterError, match="x must be a number"):
        check_number("x", bad, 0.0, 1.0)


def test_whole_numbers():
    kept = check_integer("n", np.int16(3), 1, 3)
    assert (kept, type(kept)) == (3, int)
    for bad in (0, 4, 3.0, True, "3", None):
        with pytest.raises(ParameterError, match="n must be a whole number from 1 to 3, got "):
            check_integer("n", bad, 1, 3)


def test_sequences_and_choices():
    assert check_sequence("shares", (1, 2), 2, "numbers") == [1, 2]
    for bad in ("12", b"12", 12, [1], [1, 2, 3], {1, 2}):
        with pytest.raises(ParameterError, match="shares must be 2 numbers, one per level"):
            check_sequence("shares", bad, 2, "numbers")
    assert check_choice("policy", "plus", ("paper", "plus")) == "plus"
    for bad in ("PLUS", "", None, ["plus"]):
        with pytest.raises(ParameterError, match="policy must be one of paper, plus, got "):
            check_choice("policy", bad, ("paper", "plus"))


def test_a_message_is_one_short_line():
    with pytest.raises(ParameterError) as caught:
        check_choice("policy", "a\nb\x1b[31m" + "c" * 1000, ("paper",))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 150

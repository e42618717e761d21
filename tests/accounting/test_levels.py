"""Levels of a plan and their rounds: what they refuse, and how they are read from JSON."""

import dataclasses

import pytest

from dpngram.accounting import LevelPlan, ParameterError, RoundPlan
from dpngram.accounting.levels import read_level

FIRST = LevelPlan(
    n=1,
    share=0.5,
    sigma=2.0,
    max_contributions=7,
    rounds=(RoundPlan(share=0.25, rho=9.0), RoundPlan(share=0.5, rho=8.0)),
)


def test_the_threshold_is_the_lowest_of_the_rounds():
    assert FIRST.rho == 8.0
    later = dataclasses.replace(FIRST, n=2, rounds=(RoundPlan(share=1.0),))
    assert later.rho is None


def test_a_level_is_read_back():
    assert (
        read_level({**dataclasses.asdict(FIRST), "rounds": list(map(dataclasses.asdict, FIRST.rounds)), "rho": 8.0})
        == FIRST
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 0}, "level n must be"),
        ({"n": 2}, "rho must be given for level 1 and for no other"),
        ({"share": 0.0}, "level share must be"),
        ({"sigma": 0.0}, "sigma must be"),
        ({"max_contributions": 0}, "max_contributions must be"),
        ({"rounds": ()}, "must be at least one"),
        ({"rounds": (RoundPlan(share=0.6, rho=1.0),) * 2}, "shares of at most 1 in all"),
        ({"rounds": (RoundPlan(share=0.5, rho=1.0), RoundPlan(share=0.5))}, "rho must be given"),
    ],
)
def test_what_cannot_be_a_level_is_refused(change, message):
    with pytest.raises(ParameterError, match=message):
        dataclasses.replace(FIRST, **change)

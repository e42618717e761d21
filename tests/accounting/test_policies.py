"""How the policies divide a budget."""

import math

import pytest
from helpers.budgets import PAPER, PLUS

from dpngram.accounting import gaussian_sigma, plan_extraction


def test_plus_has_one_sigma_and_individual_budgets():
    plan = plan_extraction(**PLUS)
    assert plan_extraction(**{name: value for name, value in PAPER.items() if name != "policy"}) == plan  # default
    assert {level.sigma for level in plan.levels} == {plan.level(1).sigma}
    assert plan.level(1).sigma == pytest.approx(gaussian_sigma(4, 0.95e-7) / 0.999**0.5, rel=5e-5)
    assert plan.threshold_delta == pytest.approx(0.05e-7)
    assert [level.share / plan.level(1).share for level in plan.levels] == pytest.approx([0.8**k for k in range(9)])
    assert [len(level.rounds) for level in plan.levels] == [3] * 9
    assert [level.max_contributions for level in plan.levels] == [300] + [None] * 8
    assert math.fsum(level.share for level in plan.levels) == pytest.approx(1)

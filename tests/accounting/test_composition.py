"""What several releases cost together, and whether a budget holds whatever the later ones are."""

import math

import mpmath
import numpy as np
import pytest

from dpngram.accounting import (
    Budget,
    ParameterError,
    Spending,
    composed_epsilon,
    fits_budget,
    plan_extraction,
    rounding_cost,
    spending_of,
)

PLAN = {"epsilon": 4, "delta": 1e-7, "max_n": 5, "max_contributions": 100}
PLANS = [
    plan_extraction(policy=policy, **{**PLAN, **changes})
    for policy in ("paper", "plus")
    for changes in ({}, {"epsilon": 0.5}, {"delta": 1e-9}, {"windows": 30}, {"epsilon": 8, "max_contributions": 3})
]


def exact_delta(spent, epsilon):
    """The two directions of the proof, for exact draws, in 60 digits."""
    with mpmath.workdps(60):
        mu = mpmath.sqrt(sum(1 / mpmath.mpf(one.sigma) ** 2 for one in spent))
        d = sum(mpmath.mpf(one.first_level_delta) for one in spent)

        def gaussian(at):
            return mpmath.ncdf(-at / mu + mu / 2) - mpmath.exp(at) * mpmath.ncdf(-at / mu - mu / 2)

        return max(gaussian(mpmath.mpf(epsilon)) + d, gaussian(mpmath.mpf(epsilon) + mpmath.log(1 - d)))


@pytest.mark.parametrize("plan", PLANS)
def test_one_release_costs_what_its_plan_says(plan):
    assert composed_epsilon([spending_of(plan)], plan.delta) == pytest.approx(plan.epsilon, rel=1e-6)
    assert fits_budget([spending_of(plan)], Budget(epsilon=plan.epsilon, delta=plan.delta))
    for epsilon, delta in ((plan.epsilon * 0.999, plan.delta), (plan.epsilon, plan.delta * 0.99)):
        assert not fits_budget([spending_of(plan)], Budget(epsilon=epsilon, delta=delta))


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("number", [2, 3, 12])
def test_several_releases_against_sixty_digits(plan, number):
    """The epsilon is enough with the rounding paid for, and a little less would not be."""
    spent, delta = [spending_of(plan)] * number, number * plan.delta
    epsilon = composed_epsilon(spent, delta)
    assert epsilon < number * plan.epsilon
    cost = rounding_cost(epsilon, delta, sum(one.cells for one in spent), sum(one.counts for one in spent))
    assert cost.epsilon > 0
    left = cost.left(epsilon, delta)
    assert exact_delta(spent, left[0]) <= left[1] * (1 + 1e-12)
    assert exact_delta(spent, left[0] - 1e-6 * epsilon) > left[1]


def test_windows_are_releases():
    """A plan for nine windows costs what its windows cost when each is entered by itself."""
    nine = spending_of(plan_extraction(**PLAN, windows=9))
    one = Spending(
        epsilon=1,
        delta=1e-8,
        sigma=nine.sigma * 3,
        first_level_delta=nine.first_level_delta / 9,
        cells=nine.cells // 9,
        counts=nine.counts // 9,
    )
    assert composed_epsilon([one] * 9, 1e-7) == pytest.approx(4, rel=1e-6)


def test_a_delta_that_level_one_has_used_up():
    one = spending_of(PLANS[0])
    assert composed_epsilon([one], one.first_level_delta) == math.inf
    assert composed_epsilon([], 1e-9) == 0
    assert fits_budget([], Budget(epsilon=1, delta=1e-9))


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_accepted_meets_the_budget(seed):
    """Plans by chance, one after another: all that the rule lets pass stays within the budget, by the sum, too."""
    random = np.random.default_rng(seed)
    budget = Budget(epsilon=float(random.uniform(2, 12)), delta=10.0 ** random.uniform(-9, -5))
    accepted = []
    for _ in range(12):
        plan = plan_extraction(
            policy=str(random.choice(["paper", "plus"])),
            epsilon=float(random.uniform(0.2, 5)),
            delta=budget.delta * 10.0 ** random.uniform(-2, 0.2),
            max_n=int(random.integers(1, 6)),
            max_contributions=int(random.integers(1, 300)),
        )
        if fits_budget([*accepted, spending_of(plan)], budget):
            accepted.append(spending_of(plan))
    assert composed_epsilon(accepted, budget.delta) <= budget.epsilon * (1 + 1e-9)


def test_the_limits_follow_from_the_first_release_alone():
    """Otherwise somebody could plan a release after results, towards whichever limit is left: no proof covers that.

    Both ways of going on fit their own limit. A rule that only checked the sum would let the second one exceed in d
    what the first could no longer use in noise.
    """
    budget = Budget(epsilon=6, delta=1e-6)
    first = spending_of(plan_extraction(**{**PLAN, "delta": 1e-6}))
    noisy = Spending(epsilon=1, delta=1e-6, sigma=1e4, first_level_delta=4e-7, cells=100, counts=0)
    assert composed_epsilon([first, noisy], 1e-6) < 6  # the sum alone would allow it
    assert not fits_budget([first, noisy], budget)  # but d is beyond what the limits, made for the first, have
    small = Spending(epsilon=1, delta=1e-9, sigma=1e4, first_level_delta=1e-9, cells=100, counts=0)
    assert fits_budget([first, small], budget)


def test_a_first_release_with_few_cells_leaves_room_for_others():
    """Policy `paper` touches hundreds of cells, `plus` millions: what finite precision costs must not decide."""
    first = spending_of(plan_extraction(epsilon=1, delta=1e-7, max_n=2, max_contributions=5, policy="paper"))
    later = spending_of(plan_extraction(**PLAN))
    assert later.cells > 10_000 * first.cells
    assert fits_budget([first, later, first], Budget(epsilon=8, delta=1e-6))


def test_how_much_a_budget_has_room_for():
    """The rule costs little: seven releases of (4, 1e-7) fit (12, 3e-7), and eight would cost more by the sum."""
    one = spending_of(plan_extraction(**PLAN))
    budget = Budget(epsilon=12, delta=3e-7)
    assert fits_budget([one] * 7, budget)
    assert not fits_budget([one] * 8, budget)
    assert composed_epsilon([one] * 8, 3e-7) > 12


@pytest.mark.parametrize(
    "wrong", [{"sigma": 0.0}, {"first_level_delta": -1e-9}, {"first_level_delta": 1.0}, {"cells": 0}, {"counts": -1}]
)
def test_wrong_numbers_are_refused(wrong):
    right = {"epsilon": 1, "delta": 1e-6, "sigma": 3.0, "first_level_delta": 1e-8, "cells": 5, "counts": 0}
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        Spending(**{**right, **wrong})
    for budget in ({"epsilon": 0, "delta": 1e-6}, {"epsilon": 1, "delta": 0}):
        with pytest.raises(ParameterError, match="must be"):
            Budget(**budget)

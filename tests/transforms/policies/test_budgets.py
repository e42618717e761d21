"""Policy plus: what users give and pay, followed in Python's integers and fractions."""

from fractions import Fraction

import numpy as np
import pytest
from helpers.weights import squares

from dpngram.accounting.numerics import LEAST_WEIGHT_BITS
from dpngram.transforms.policies.budgets import (
    COUNT_UNIT,
    FULL_BUDGET,
    allowances,
    longest_runs,
    part_of,
    price,
    spend,
    spend_on_count,
)
from dpngram.transforms.policies.guide import GUIDE_UNIT
from dpngram.transforms.randomness.noise import UNIT

EXTREMES = [0, 1, 2, 3, 2**20, 2**40 - 1, 2**40, 2**53 + 1, 2**63, 2**64 - 2**11, 2**64 - 1025, 2**64 - 2, 2**64 - 1]


def many_users(kind, users=300):
    """Budgets of so many users, and which user each (user, gram) pair is of."""
    random = np.random.default_rng(len(kind))
    budgets = {
        "full": np.full(users, FULL_BUDGET),
        "tiny": random.integers(0, 3, users).astype(np.uint64),
        "odd": np.uint64(2) ** random.integers(0, 64, users).astype(np.uint64)
        + random.integers(0, 9, users).astype("u8"),
        "extreme": np.resize(np.array(EXTREMES, np.uint64), users),
    }[kind]
    counts = np.minimum(random.geometric(0.02, users), 2000)
    counts[:3] = (0, 1, 2000)
    counts[13:39] = 1
    user = np.repeat(np.arange(users), counts)
    random.shuffle(user)
    return budgets, user, random


@pytest.mark.parametrize("kind", ["full", "tiny", "odd", "extreme"])
def test_no_user_spends_more_than_its_share_of_the_allowance(kind):
    """A user pays for all that it gives, and never more than it may; also where it spends all."""
    allowed, user, random = many_users(kind)
    everybody = random.random(len(allowed)) < 0.5
    for guide in (
        np.full(len(user), GUIDE_UNIT),
        random.integers(0, GUIDE_UNIT + 1, len(user)),
        random.integers(0, 3, len(user)),
        np.ones(len(user), np.int64),
        np.zeros(len(user), np.int64),
    ):
        for full in (None, everybody):
            weight, charge = spend(user, guide, allowed, full)
            assert (weight >= 0).all()
            exact = squares(user, weight, len(allowed))
            for paid, given, most in zip(charge.tolist(), exact, allowed.tolist(), strict=True):
                assert given <= paid <= most
            assert price(user, guide, allowed, full).tolist() == charge.tolist()
            has_gram = np.bincount(user, guide > 0, len(allowed)) > 0
            assert (charge[~has_gram] == 0).all()
    weight, charge = spend(user, GUIDE_UNIT, allowed)  # one guide for all
    assert all(a <= b for a, b in zip(squares(user, weight, len(allowed)), charge.tolist(), strict=True))


@pytest.mark.parametrize("guides", [[4096], [1], [4096, 4096], [4095, 1], [2896, 2896], [1] * 5, [10, 4095]])
@pytest.mark.parametrize("allowed", EXTREMES)
def test_one_user_of_each_kind(allowed, guides):
    """The charge is allowed * n2 / max(n2, 1) within rounding, and covers the weights."""
    user, guide, budget = np.zeros(len(guides), np.int64), np.array(guides), np.array([allowed], np.uint64)
    n2 = Fraction(sum(g * g for g in guides), GUIDE_UNIT**2)
    for full, norm in ((None, max(n2, 1)), (np.array([True]), n2)):
        weight, charge = spend(user, guide, budget, full)
        paid, ideal = int(charge[0]), allowed * n2 / norm
        assert sum(int(w) ** 2 for w in weight) <= paid <= allowed
        assert ideal <= paid <= ideal * (1 + Fraction(1, 2**39)) + 1
        for w, g in zip(weight.tolist(), guides, strict=True):
            best = float(allowed * Fraction(g, GUIDE_UNIT) ** 2 / norm) ** 0.5
            assert w <= best * (1 + 1e-12)
            assert w >= best * (1 - 2.0**-38) - 1 or best < 2**20 + 1
    assert int(spend(np.array([0]), GUIDE_UNIT, np.array([FULL_BUDGET]))[0][0]) == 2**32 - 1


def test_parts_never_exceed_what_is_left():
    values = np.array(EXTREMES, np.uint64)
    allowance, budget = (grid.ravel() for grid in np.meshgrid(values, values))
    for share in (0.05, 0.08, 0.25, 0.4, 0.52, 0.6, 0.7, 1.0):
        part = part_of(allowance, share, budget)
        for mine, allowed, left in zip(part.tolist(), allowance.tolist(), budget.tolist(), strict=True):
            assert mine <= left
            assert mine <= Fraction(share) * allowed
            assert mine >= min(left, int(Fraction(share) * allowed * (1 - Fraction(1, 2**46))) - 1)
    shares = (0.4, 0.52, 0.08)
    together = sum(part_of(values, share, values).astype(object) for share in shares)
    assert (together <= values.astype(object)).all()


@pytest.mark.parametrize("kind", ["full", "tiny", "odd", "extreme"])
@pytest.mark.parametrize("ratio", [2.0**-40, 1e-6, 0.013, 0.5, 1.0, 3.7, 1e6, 2.0**40])
def test_a_count_is_paid_for(kind, ratio):
    """What a user pays is at least (sum of what it vouches for * sigma / sigma_F)^2, and no more than it may."""
    allowed, user, _ = many_users(kind)
    given, charge = spend_on_count(user, allowed, ratio)
    assert ((given >= 0) & (given <= COUNT_UNIT)).all()
    moved = [0] * len(allowed)
    for owner, vouched in zip(user.tolist(), given.tolist(), strict=True):
        moved[owner] += vouched
    for total, paid, most in zip(moved, charge.tolist(), allowed.tolist(), strict=True):
        cost = (Fraction(total, COUNT_UNIT) / Fraction(ratio)) ** 2 * 2**64
        assert cost <= paid <= most
        assert paid == 0 or total > 0


def test_a_count_uses_what_it_may():
    """A user vouches for all of its cells where it can, and otherwise spends what it may, within 2^-16 of a cell."""
    user = np.repeat([0, 1, 2], [1, 4, 4])
    given, charge = spend_on_count(user, np.array([2**62, 2**62, 2**64 - 1], np.uint64), 2.0)
    assert given.tolist() == [COUNT_UNIT - 1] + [COUNT_UNIT // 4 - 1] * 4 + [COUNT_UNIT // 2 - 1] * 4
    given, charge = spend_on_count(user, np.array([2**63, 2**63, 2**63], np.uint64), 8.0)
    assert given.tolist() == [COUNT_UNIT] * 9
    assert charge[0] / 2.0**64 == pytest.approx(1 / 64, rel=1e-6)
    assert charge[1] / 2.0**64 == pytest.approx(16 / 64, rel=1e-6)


def test_one_users_count_does_not_depend_on_others():
    user, allowed = np.repeat([0, 1], [3, 5]), np.array([2**60, 2**61], np.uint64)
    both, charges = spend_on_count(user, allowed, 1.3)
    alone, charge = spend_on_count(user[:3], allowed[:1], 1.3)
    assert both[:3].tolist() == alone.tolist()
    assert charges[0] == charge[0]


def test_weights_use_what_they_are_allowed():
    """Guides of norm above 1 spend the whole part; below 1 only their norm, unless there is no later."""
    user = np.zeros(4, np.int64)
    quarter = np.array([2**62], np.uint64)
    assert int(spend(user, GUIDE_UNIT, quarter)[1][0]) == 2**62
    small = np.full(4, GUIDE_UNIT // 8)
    assert int(spend(user, small, quarter)[1][0]) == pytest.approx(2**62 * 4 / 64, rel=1e-8)
    weight, charge = spend(user, small, quarter, np.array([True]))
    assert int(charge[0]) == 2**62
    assert weight.tolist() == pytest.approx([2**30] * 4, rel=1e-8)


def test_allowances_never_exceed_the_budget():
    budget = np.array(EXTREMES, np.uint64)
    shares = [0.8**k for k in range(5)]
    for n in range(1, 6):
        for run in (1, 2, 3, 100):
            allowed = allowances(budget, np.full(len(budget), run), n, shares)
            reachable = shares[n - 1 : min(n - 1 + run, 5)]
            for mine, given in zip(budget.tolist(), allowed.tolist(), strict=True):
                assert given <= mine
                assert given == pytest.approx(mine * shares[n - 1] / sum(reachable), rel=1e-12, abs=1.01)


def test_longest_runs():
    random = np.random.default_rng(8)
    for _ in range(200):
        posts = [[random.integers(0, 2, random.integers(0, 9)).astype(bool) for _ in range(2)] for _ in range(4)]
        line = [np.concatenate([np.append(post, False) for post in user]) for user in posts]
        expected = [max(len(run) for run in "".join("x" if h else " " for h in mine).split(" ")) for mine in line]
        start = np.cumsum([0, *map(len, line)])
        assert longest_runs(np.concatenate(line), start).tolist() == expected


def test_no_weight_is_below_the_least():
    """Weights are 2^-12 or more, or 0: a user with any text touches at most 2^24 cells."""
    random = np.random.default_rng(3)
    user = np.repeat(np.arange(2000), random.geometric(0.01, 2000))
    guides = random.integers(1, GUIDE_UNIT + 1, len(user))
    allowance = (2.0 ** random.uniform(30, 63, 2000)).astype(np.uint64)
    weight, charge = spend(user, guides, allowance)
    assert ((weight == 0) | (weight >= 2**20)).all()
    assert (weight == 0).sum() > 1000
    assert (weight > 0).sum() > 1000
    assert (np.bincount(user, weight > 0, 2000) <= charge / 2.0**40).all()
    assert 2**LEAST_WEIGHT_BITS * 2**20 == UNIT

"""Policy plus: budgets in exact integers, guides, and the invariant over whole runs."""

import numpy as np
import pytest
from helpers.weights import squares

from dpngram.accounting.numerics import LEAST_WEIGHT_BITS
from dpngram.transforms.policies.budgets import FULL_BUDGET, allowances, longest_runs, spend
from dpngram.transforms.policies.guide import GUIDE_UNIT
from dpngram.transforms.randomness.noise import UNIT


@pytest.mark.parametrize("share", [1.0, 0.85, 0.7, 0.05])
@pytest.mark.parametrize("kind", ["full", "tiny", "odd"])
def test_no_user_spends_more_than_its_share_of_the_allowance(share, kind):
    random = np.random.default_rng([len(kind), int(share * 100)])
    users = 300
    allowance = {
        "full": np.full(users, FULL_BUDGET),
        "tiny": random.integers(0, 3, users).astype(np.uint64),
        "odd": np.uint64(2) ** random.integers(0, 64, users).astype(np.uint64)
        + random.integers(0, 9, users).astype("u8"),
    }[kind]
    counts = np.minimum(random.geometric(0.02, users), 2000)
    counts[:3] = (0, 1, 2000)
    user = np.repeat(np.arange(users), counts)
    random.shuffle(user)
    for factor in (GUIDE_UNIT, random.integers(0, GUIDE_UNIT + 1, len(user)), random.integers(0, 3, len(user))):
        weight, charge = spend(user, factor, allowance, share)
        assert (weight >= 0).all()
        exact = squares(user, weight, users)
        assert charge.tolist() == exact
        assert all(paid <= share * int(allowed) for paid, allowed in zip(exact, allowance.tolist(), strict=True))
    weight, charge = spend(np.array([0]), GUIDE_UNIT, np.array([FULL_BUDGET]), 1.0)
    assert weight[0] == 2**32 - 1


def test_weights_use_what_they_are_allowed():
    """Guides of norm above 1 spend the whole share; below 1 only their norm."""
    user = np.zeros(4, np.int64)
    budget = np.array([FULL_BUDGET])
    _, charge = spend(user, GUIDE_UNIT, budget, 0.25)
    assert int(charge[0]) == pytest.approx(2**62, rel=1e-8)
    _, charge = spend(user, np.full(4, GUIDE_UNIT // 8), budget, 1.0)
    assert int(charge[0]) == pytest.approx(2**64 * 4 / 64, rel=1e-8)


def test_allowances_never_exceed_the_budget():
    budget = np.array([0, 1, 2, 2**53 + 1, 2**63, 2**64 - 1025, 2**64 - 1], np.uint64)
    shares = [0.8**k for k in range(5)]
    for n in range(1, 6):
        for run in (1, 2, 3, 100):
            allowed = allowances(budget, np.full(len(budget), run), n, shares)
            reachable = shares[n - 1 : min(n - 1 + run, 5)]
            for mine, given in zip(budget.tolist(), allowed.tolist(), strict=True):
                assert given <= mine
                assert given == pytest.approx(mine * shares[n - 1] / sum(reachable), rel=1e-12, abs=1)


def test_longest_runs():
    random = np.random.default_rng(8)
    for _ in range(200):
        posts = [[random.integers(0, 2, random.integers(0, 9)).astype(bool) for _ in range(2)] for _ in range(4)]
        line = [np.concatenate([np.append(post, False) for post in user]) for user in posts]
        expected = [max(len(run) for run in "".join("x" if h else " " for h in mine).split(" ")) for mine in line]
        start = np.cumsum([0, *map(len, line)])
        assert longest_runs(np.concatenate(line), start).tolist() == expected


def test_no_weight_is_below_the_least():
    """Weights are 2^-12 or more, or 0 and free: a user with any text touches at most 2^24 cells."""
    random = np.random.default_rng(3)
    user = np.repeat(np.arange(2000), random.geometric(0.01, 2000))
    guides = random.integers(1, GUIDE_UNIT + 1, len(user))
    allowance = (2.0 ** random.uniform(30, 63, 2000)).astype(np.uint64)
    weight, charge = spend(user, guides, allowance, 1.0)
    assert ((weight == 0) | (weight >= 2**20)).all()
    assert (weight == 0).sum() > 1000
    assert (weight == 2**20).sum() + (weight > 2**20).sum() > 1000
    paid = np.zeros(2000, object)
    np.add.at(paid, user, weight.astype(object) ** 2)
    assert (paid == charge.astype(object)).all()
    assert (np.bincount(user, weight > 0, 2000) <= charge / 2.0**40).all()
    assert 2**LEAST_WEIGHT_BITS * 2**20 == UNIT

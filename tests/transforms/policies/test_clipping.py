"""Clipping and weights on small blocks."""

import math

import numpy as np
from helpers.blocks import candidates
from scipy import stats

from dpngram.transforms.policies.clipping import equal_weights, weight_table
from dpngram.transforms.randomness.noise import UNIT
from dpngram.transforms.randomness.prf import Prf


def test_a_gram_counts_once_for_each_user():
    block = candidates([[1, 1, 1, 2], [2], []])
    weight = equal_weights(block, 10, Prf(b"c" * 32))
    half = math.isqrt(2**64 // 2)
    assert dict(zip(block.grams.tolist(), weight.tolist(), strict=True)) == {1: half, 2: half + 2**32}


def test_clipping_bites_and_is_uniform():
    """Each of 12 grams is kept with probability 5/12 over 4,000 users; chi-square, flake rate 1e-6."""
    users = [list(range(12))] * 4000
    weight = equal_weights(candidates(users), 5, Prf(b"u" * 32))
    one = math.isqrt(2**64 // 5)
    kept = weight / one
    assert weight.sum() == 4000 * 5 * one
    p = 5 / 12
    # The counts of one user sum to 5: the covariance shrinks the statistic by (12-1)/12.
    statistic = ((kept - 4000 * p) ** 2 / (4000 * p * (1 - p))).sum() * 11 / 12
    assert statistic < stats.chi2.isf(1e-6, 11)
    assert kept.std() > 5


def test_clipping_differs_between_users_and_levels():
    users = [list(range(30))] * 2
    kept = [equal_weights(candidates(users[:1]), 5, Prf(bytes([key]) * 32)) > 0 for key in range(2)]
    assert (kept[0] != kept[1]).any()
    both = equal_weights(candidates(users), 5, Prf(b"\0" * 32))
    assert np.count_nonzero(both) > 5  # two users with the same grams do not keep the same ones


def test_total_squared_weight_of_a_user_is_at_most_one():
    random = np.random.default_rng(1)
    for size in [1, 2, 3, 7, 50, 1000, 4097]:
        grams = random.choice(10_000, size, replace=False).tolist()
        for cap in [1, 2, size, 5000]:
            weight = equal_weights(candidates([grams]), cap, Prf(b"x" * 32))
            assert sum(w * w for w in weight.tolist()) <= 2**64
            assert np.count_nonzero(weight) == min(size, cap)


def test_draws_that_agree_are_told_apart(monkeypatch):
    """A cipher whose draws differ in their last bits only: still exactly `cap` grams of each user, the smallest."""

    class Coarse(Prf):
        def blocks(self, first, second):
            draws = np.zeros((len(first), 2), np.uint64)
            draws[:, 0] = (np.uint64(7) << np.uint64(60)) + (second * np.uint64(5)) % np.uint64(12)
            return draws

    weight = equal_weights(candidates([list(range(12))] * 3), 4, Coarse(b"c" * 32))
    one = math.isqrt(2**64 // 4)
    assert weight.tolist() == [3 * one if (gram * 5) % 12 < 4 else 0 for gram in range(12)]


def test_weights_never_exceed_norm_one():
    """t * w^2 <= 2^64 < t * (w+1)^2 for every t up to 10^6, in exact integers."""
    table = weight_table(10**6)
    assert table[1] == UNIT
    for t, weight in enumerate(table.tolist()):
        if t:
            assert t * weight * weight <= 2**64 < t * (weight + 1) ** 2

"""The guide of policy plus: strata from released weights, and what each gets of a user's weight at first."""

import dataclasses
import math

import numpy as np
import pytest
from helpers.levels import first

from dpngram.accounting.numerics import MAX_STRATA
from dpngram.transforms.blocks.levels import EMPTY_LEVEL, pack_keys
from dpngram.transforms.policies.guide import GUIDE_UNIT, guide_table, guide_weights, predict

STRATA = np.arange(-MAX_STRATA // 2, MAX_STRATA // 2)


def exact_guide(stratum):
    m = math.exp((stratum + 1) / 2)
    return max(0.6, min(1, m / 0.5)) * min(1, (4 / m) ** 0.6) * GUIDE_UNIT


def test_the_guide_table_does_not_depend_on_the_last_bits_of_exp():
    """No entry lies so near a whole number that another processor's `exp` could move it."""
    for stratum, value in zip(STRATA.tolist(), guide_table(STRATA).tolist(), strict=True):
        exact = exact_guide(stratum)
        assert value == max(math.floor(exact + 2.0**-20), 1)
        fraction = (exact + 2.0**-20) % 1
        assert min(fraction, 1 - fraction) > 1e-9
    assert guide_table(STRATA).dtype == np.uint16


def test_the_guide_is_highest_where_it_helps():
    """Unlikely strata get 0.6, those between 1/2 and 4 standard deviations all, and certain ones less and less."""
    table = guide_table(STRATA)
    assert table.max() == GUIDE_UNIT
    assert table[0] == math.floor(0.6 * GUIDE_UNIT)
    assert guide_table(np.array([-2, 0, 1])).tolist() == [GUIDE_UNIT] * 3
    falling = table[STRATA >= 2]
    assert (np.diff(falling.astype(int)) <= 0).all()
    assert falling[0] < GUIDE_UNIT
    assert falling[-1] >= 1


def levels(sigma=1.0):
    """S_1 of four words, and S_2 of four of their pairs, with weights from nothing to much."""
    words = first([b"a", b"b", b"c", b"d"])
    words = dataclasses.replace(words, weight=np.array([1000, 40, 3, 0]), grid=0.5)
    words = predict(words, EMPTY_LEVEL, sigma)
    keys = pack_keys(np.array([0, 0, 1, 2]), np.array([1, 2, 0, 0]))
    pairs = words.extend(keys, np.array([90, 7, -20, 1]), 0.5, 0.0, "both")
    return words, predict(pairs, words, sigma)


@pytest.mark.parametrize("sigma", [0.25, 1.0, 8.0])
def test_strata_are_the_prediction(sigma):
    """Half a logarithm for each side: bins of ln W - ln(middle) / 2, rounded down, in standard deviations."""

    def log(weight):
        return round(256 * math.log(max(weight / sigma, 0.3))) / 256

    words, pairs = levels(sigma)
    total = log(521.5)
    for row, weight in enumerate([500, 20, 1.5, 0]):
        assert words.left[row] == words.right[row] == math.floor(2 * log(weight) - total)
    middles = [(20, 500), (1.5, 500), (500, 20), (500, 1.5)]  # of ab, ac, ba, ca: as a prefix, and as a suffix
    for row, (weight, (after, before)) in enumerate(zip([45, 3.5, -10, 0.5], middles, strict=True)):
        assert pairs.left[row] == math.floor(2 * log(weight) - log(after))
        assert pairs.right[row] == math.floor(2 * log(weight) - log(before))
    prefix, suffix = np.array([0, 2]), np.array([2, 0])
    guides = guide_weights(pairs, prefix, suffix)
    assert guides.tolist() == guide_table(pairs.left[prefix] + pairs.right[suffix]).tolist()


def test_bins_stay_within_what_plans_rely_on():
    """A sum of two bins has fewer than MAX_STRATA values, whatever the weights."""
    words, _ = levels()
    for weight in (2**60, 0):
        extreme = predict(
            dataclasses.replace(words, weight=np.array([weight, 0, 0, 0]), grid=2.0**30), EMPTY_LEVEL, 1e-9
        )
        for column in (extreme.left, extreme.right):
            assert column.min() >= -(MAX_STRATA // 4)
            assert column.max() < MAX_STRATA // 4
            assert guide_table(column + column).shape == (4,)

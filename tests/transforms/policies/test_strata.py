"""|V_k| and its ranks against explicit sets; the law of the walk."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from helpers.levels import chain, first_level
from scipy import stats

from dpngram.transforms.blocks.levels import EMPTY_LEVEL
from dpngram.transforms.policies.strata import Strata
from dpngram.transforms.randomness.prf import Prf


@pytest.mark.parametrize("pruning", ["both", "single"])
def test_valid_count_and_ranks(pruning):
    random = np.random.default_rng(3)
    seen = 0
    for _ in range(150):
        for level, grams in chain(random, pruning, 5, 0.6):
            before = set(grams)
            words = level.vocabulary_size
            children = {(*g, w) for g in grams for w in range(words)}
            valid = {gram for gram in children if pruning == "single" or gram[1:] in before}
            if grams and len(grams[0]) == 1:
                valid = set(itertools.product(range(words), repeat=2))
            assert level.valid(pruning) == len(valid)
            strata = Strata(level, pruning)
            assert strata.size.tolist() == [len(valid)]
            assert decode(strata.unrank(0, np.arange(len(valid))), grams) == valid
            seen += len(valid)
    assert seen > 5000


def decode(keys, grams):
    return {grams[int(key) >> 32] + (int(key) & 0xFFFFFFFF,) for key in keys}


def test_strata_against_explicit_enumeration():
    """With a prediction: the size of each stratum, the members with all its ranks, and the stratum of each member."""
    random = np.random.default_rng(4)
    seen = several = 0
    for _ in range(150):
        for level, grams in chain(random, "both", 4, 0.7):
            if not grams:
                continue
            spread = int(random.integers(1, 8))
            columns = random.integers(-spread, spread, (2, len(grams))).astype(np.int16)
            level = dataclasses.replace(level, left=columns[0], right=columns[1])
            row = {gram: i for i, gram in enumerate(grams)}
            pairs = [(a, (*a[1:], w)) for a in grams for w in range(level.vocabulary_size) if (*a[1:], w) in row]
            stratum = {(*a, b[-1]): columns[0][row[a]] + columns[1][row[b]] for a, b in pairs}
            low = min(stratum.values(), default=0)
            strata = Strata(level, "both")
            assert strata.size.sum() == len(stratum) == level.valid("both")
            for s, size in enumerate(strata.size.tolist()):
                keys = strata.unrank(s, np.arange(size))
                assert decode(keys, grams) == {gram for gram, place in stratum.items() if place - low == s}
                assert (strata.of(keys) == s).all()
            seen += len(stratum)
            several += len(strata.size) > 1
    assert seen > 5000
    assert several > 200


def draw(level, probability, prf, pruning="both"):
    return Strata(level, pruning).draw(np.array([probability]), prf)[0]


def test_walk_visits_each_rank_with_the_given_probability():
    """10,000 walks over 60 ranks: how often each is visited, and each neighbouring pair, by chi-square.

    Flake rate 1e-6 in all if the keys were random; they are fixed, so the outcome is too.
    """
    level = first_level(8)  # |V_2| = 64
    p, runs = 0.07, 10_000
    visits, pairs = np.zeros(64), 0
    rows = {int(key): rank for rank, key in enumerate(Strata(level, "both").unrank(0, np.arange(64)))}
    for run in range(runs):
        keys = draw(level, p, Prf(run.to_bytes(32, "little")))
        assert (np.diff(keys.astype(np.int64)) > 0).all()
        ranks = sorted(rows[int(key)] for key in keys)
        visits[ranks] += 1
        pairs += sum(b == a + 1 for a, b in itertools.pairwise(ranks))
    statistic = ((visits - runs * p) ** 2 / (runs * p * (1 - p))).sum()
    assert statistic < stats.chi2.isf(5e-7, 64)
    expected = runs * 63 * p * p
    assert abs(pairs - expected) < 5 * math.sqrt(expected)


def test_walk_of_extreme_probabilities():
    level = first_level(5)
    assert len(draw(level, 0.0, Prf(b"a" * 32))) == 0
    assert len(draw(EMPTY_LEVEL, 0.5, Prf(b"a" * 32))) == 0
    assert len(draw(level, 0.999999, Prf(b"a" * 32))) == 25
    assert len(draw(first_level(3000), 1e-30, Prf(b"a" * 32), "single")) == 0

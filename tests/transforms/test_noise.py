"""Integer weights, the grid, and the law of spurious grams."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import special, stats

from dpngram.transforms.blocks.columns import split_binary
from dpngram.transforms.blocks.levels import EMPTY_LEVEL, Level
from dpngram.transforms.policies.clipping import weight_table
from dpngram.transforms.policies.cutoffs import Cutoffs
from dpngram.transforms.policies.strata import Strata
from dpngram.transforms.randomness.draws import _log_complement
from dpngram.transforms.randomness.noise import UNIT, Noise
from dpngram.transforms.randomness.prf import Prf


def first_level(count):
    import pyarrow as pa

    offsets, data = split_binary(pa.array([b"%04d" % i for i in range(count)], pa.large_binary()))
    digests = Prf(b"t" * 32).strings(offsets, data)
    return Level.first(offsets, data, digests, np.zeros(count, np.int64), 1.0, 0.0)


def draw(level, probability, prf, pruning="both"):
    return Strata(level, pruning).draw(np.array([probability]), prf)[0]


def test_weights_never_exceed_norm_one():
    """t * w^2 <= 2^64 < t * (w+1)^2 for every t up to 10^6, in exact integers."""
    table = weight_table(10**6)
    assert table[1] == UNIT
    for t, weight in enumerate(table.tolist()):
        if t:
            assert t * weight * weight <= 2**64 < t * (weight + 1) ** 2


def test_threshold_is_raised_to_the_grid():
    for sigma, rho in [(3.98371, 25.0851), (0.01, 1.0), (1000.0, 5000.1), (2.0, -0.3)]:
        noise = Noise(sigma)
        steps = noise.least(rho)
        least = Fraction(steps * noise.step, UNIT)
        assert Fraction(rho) <= least < Fraction(rho) + Fraction(noise.step, UNIT)
        assert sigma * UNIT / 2**14 - 1 < noise.step <= sigma * UNIT / 2**14
        assert noise.zero_probability(steps) == pytest.approx(float(special.ndtr(-float(least) / sigma)), rel=1e-12)


def test_noisy_weights_are_sums_of_integers():
    noise = Noise(2.5)
    words = Prf(b"k" * 32).blocks(np.arange(10_000, dtype=np.uint64), 0)
    noisy = noise.noisy(np.zeros(10_000, np.int64), words)
    shift = 7 * noise.step
    assert (noise.noisy(np.full(10_000, shift), words) == noisy + 7).all()
    assert stats.kstest(noisy * noise.grid / 2.5, "norm").pvalue > 1e-4


def test_cells_that_noise_carries_over_the_threshold_are_all_looked_at():
    """The short cut for light cells leaves out none that reach the threshold, and most of those that do not."""
    words = Prf(b"l" * 32).blocks(np.arange(200_000, dtype=np.uint64), 0)
    for sigma, rho in [(2.5, 6.0), (1.0, 4.5), (40.0, 90.0), (3.0, 1.0)]:
        noise = Noise(sigma)
        least = noise.least(rho)
        for weight in (0, 1, int(rho / 4 * UNIT), int(rho / 2 * UNIT), int(rho * UNIT)):
            weights = np.full(len(words), weight)
            reached = np.flatnonzero(noise.noisy(weights, words) >= least)
            looked_at = noise.likely(weights, words, least)
            assert np.isin(reached, looked_at).all()
            assert len(reached) > 0 or rho / sigma > 4
        few = len(noise.likely(np.zeros(len(words), np.int64), words, least))
        assert few < 0.2 * len(words) or rho / sigma < 2


def test_an_infinite_threshold_releases_nothing():
    noise = Noise(1.0)
    assert noise.zero_probability(noise.least(math.inf)) == 0.0
    assert (noise.noisy(np.array([2**60]), np.array([[0, 0]], np.uint64)) < noise.least(math.inf)).all()


def test_too_much_noise_for_exact_sums_is_refused():
    with pytest.raises(ValueError, match="sigma must be below"):
        Noise(2.0**27)


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


def test_long_gaps_take_all_values():
    """ln(1 - U) to the last bits at both ends, against 60 digits: U near 1 makes long gaps, U near 0 short ones."""
    top = 2**64 - 1
    words = np.array(
        [[0, 0], [0, 12345], [2**40, 7], [2**63 - 1, top], [2**63, 0], [top - 5, 3], [top, top]], np.uint64
    )
    with mpmath.workdps(60):
        for (high, low), found in zip(words.tolist(), _log_complement(words).tolist(), strict=True):
            expected = mpmath.log(1 - (high * mpmath.mpf(2) ** 64 + low + 0.5) / mpmath.mpf(2) ** 128)
            assert found == pytest.approx(float(expected), rel=1e-14)


def test_zero_cells_follow_the_law_of_noise():
    """Of 90,000 zero cells as many reach the threshold as noise would carry there, with the weights that it would give.

    Flake rate below 1e-6 for each, if the keys were random; they are fixed, so the outcome is too.
    """
    noise, level = Noise(2.0), first_level(300)
    cut = Cutoffs.fixed(noise, Strata(level, "both"), 3.0)
    p = float(special.ndtr(-float(cut.floor[0]) * noise.grid / noise.sigma))
    keys, stratum = cut.zero_cells(Prf(b"z" * 32))
    assert abs(len(keys) - 90_000 * p) < stats.norm.isf(5e-7) * math.sqrt(90_000 * p * (1 - p))
    steps = noise.zero_cells(Prf(b"w" * 32).blocks(keys, 0), cut.floor[stratum])
    assert (steps >= cut.floor[0]).all()
    assert stats.kstest(stats.norm.sf((steps + 0.5) * noise.grid / noise.sigma) / p, "uniform").pvalue > 1e-6


def test_zero_cells_below_nought_are_binomial():
    """Of 42 zero cells under the floor each is below 0 with (1/2) / (1 - Phi(-floor)); chi-square over 3,000 strata.

    The key is fixed, so the outcome is too; with a random one the flake rate would be 1e-6.
    """
    noise, strata = Noise(2.0), 3000
    floor = np.full(strata, noise.least(1.0))
    cut = Cutoffs(noise=noise, strata=Strata(EMPTY_LEVEL, "both"), size=np.full(strata, 60), floor=floor)
    below = cut.zeros_below(np.full(strata, 10), np.full(strata, 8), Prf(b"b" * 32))
    chance = 0.5 / special.ndtr(floor[0] * noise.grid / noise.sigma)
    bounds = stats.binom.ppf([0.05, 0.2, 0.4, 0.6, 0.8, 0.95], 42, chance)
    expected = strata * np.diff([0.0, *stats.binom.cdf(bounds, 42, chance), 1.0])
    observed = np.bincount(np.searchsorted(bounds, below), minlength=len(bounds) + 1)
    assert ((observed - expected) ** 2 / expected).sum() < stats.chi2.isf(1e-6, len(bounds))
    larger = Cutoffs(noise=noise, strata=cut.strata, size=np.array([2**30 + 1]), floor=floor[:1])
    assert larger.zeros_below(np.zeros(1, np.int64), np.zeros(1, np.int64), Prf(b"b" * 32)).tolist() == [0]

"""Zero cells that are drawn have the law of noise on cells that nobody contributed to."""

import math

import numpy as np
from helpers.levels import first_level
from scipy import special, stats

from dpngram.transforms.blocks.levels import EMPTY_LEVEL
from dpngram.transforms.policies.cutoffs import Cutoffs
from dpngram.transforms.policies.strata import Strata
from dpngram.transforms.randomness.noise import Noise
from dpngram.transforms.randomness.prf import Prf


def test_zero_cells_follow_the_law_of_noise():
    """Of 90,000 zero cells as many reach the threshold as noise would carry there, with the weights that it would give.

    Flake rate below 1e-6 for each, if the keys were random; they are fixed, so the outcome is too.
    """
    noise, level = Noise(2.0), first_level(300)
    cut = Cutoffs.fixed(noise, Strata(level, "both"), 3.0)
    p = float(special.ndtr(-float(cut.floor[0]) * noise.grid / noise.sigma))
    keys, stratum = cut.zero_cells(Prf(b"z" * 32))
    assert abs(len(keys) - 90_000 * p) < stats.norm.isf(5e-7) * math.sqrt(90_000 * p * (1 - p))
    prf = Prf(b"w" * 32)
    steps = noise.zero_cells(prf.blocks(keys, 0), cut.floor[stratum], prf)
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

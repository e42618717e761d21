"""Integer weights, the grid, and the law of spurious grams."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import special, stats

from dpngram.transforms.randomness.noise import UNIT, Noise
from dpngram.transforms.randomness.prf import Prf


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
    prf = Prf(b"k" * 32)
    words = prf.blocks(np.arange(10_000, dtype=np.uint64), 0)
    noisy = noise.noisy(np.zeros(10_000, np.int64), words, prf)
    shift = 7 * noise.step
    assert (noise.noisy(np.full(10_000, shift), words, prf) == noisy + 7).all()
    assert stats.kstest(noisy * noise.grid / 2.5, "norm").pvalue > 1e-4


def test_cells_that_noise_carries_over_the_threshold_are_all_looked_at():
    """The short cut for light cells leaves out none that reach the threshold, and most of those that do not."""
    prf = Prf(b"l" * 32)
    words = prf.blocks(np.arange(200_000, dtype=np.uint64), 0)
    for sigma, rho in [(2.5, 6.0), (1.0, 4.5), (40.0, 90.0), (3.0, 1.0)]:
        noise = Noise(sigma)
        least = noise.least(rho)
        for weight in (0, 1, int(rho / 4 * UNIT), int(rho / 2 * UNIT), int(rho * UNIT)):
            weights = np.full(len(words), weight)
            reached = np.flatnonzero(noise.noisy(weights, words, prf) >= least)
            looked_at = noise.likely(weights, words, least)
            assert np.isin(reached, looked_at).all()
            assert len(reached) > 0 or rho / sigma > 4
        few = len(noise.likely(np.zeros(len(words), np.int64), words, least))
        assert few < 0.2 * len(words) or rho / sigma < 2


def test_an_infinite_threshold_releases_nothing():
    noise = Noise(1.0)
    assert noise.zero_probability(noise.least(math.inf)) == 0.0
    words = np.array([[0, 0]], np.uint64)
    assert (noise.noisy(np.array([2**60]), words, Prf(b"k" * 32)) < noise.least(math.inf)).all()


def test_too_much_noise_for_exact_sums_is_refused():
    with pytest.raises(ValueError, match="sigma must be below"):
        Noise(2.0**26)

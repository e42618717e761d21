"""One noisy release of a histogram, in exact integers, and the zero cells that nobody contributed to.

Weights are integers in units of 2^-32, rounded down; a user's squared weights sum to at most 2^64 exactly. Noise is
an integer too: the Gaussian, drawn by inversion from 128 keyed bits and rounded down to the same unit. Since the
weights are integers, rounding the noise is rounding the noisy sum: post-processing of the Gaussian mechanism. The sum
is then rounded down to a grid of 2^-14 sigma before anybody sees it or anything is decided, so the low bits of a
floating-point logarithm or quantile never reach the output (Mironov 2012; Jin et al. 2022).

How exact: `ndtri` is accurate to a few units in the last place, which moves the edges of a grid cell by less
than 2^-33 of its width. The probability of any rounded value is thus that of an exact Gaussian within a factor
1 +- 2^-32 per cell, and the tail is cut at 13 sigma, a probability of 2^-128.
"""

import dataclasses
import functools
import math
from fractions import Fraction

import numpy as np
from scipy import special

from dpngram.accounting import ParameterError
from dpngram.transforms.keyed import Prf, standard_normal, tail_normal, uniform
from dpngram.transforms.levels import Array, Level

__all__ = ["UNIT", "NoisyCut", "spurious_keys", "weight_table"]

UNIT = 1 << 32
_GRID_BITS = 14
_MAX_SIGMA = 2.0**26  # 13 sigma and the sum over 2^31 users must fit 63 bits


@functools.lru_cache(maxsize=32)
def weight_table(cap: int) -> Array:
    """The weight floor(2^32 / sqrt(t)) of each of a user's t <= cap grams; entry 0 is unused.

    floor(sqrt(2^64 / t)) in integers: a floating-point guess, corrected by comparing squares. t * weight^2 <= 2^64.
    """
    t = np.arange(1, cap + 1, dtype=np.uint64)
    # 2^64 // t without 2^64: one more than (2^64 - 1) // t when t is a power of two.
    quotient = np.uint64(2**64 - 1) // t + ((t & (t - np.uint64(1))) == 0)
    root = np.floor(2.0**32 / np.sqrt(t.astype(np.float64))).astype(np.uint64)
    root[1:] -= root[1:] * root[1:] > quotient[1:]
    root[1:] += (root[1:] + np.uint64(1)) ** 2 <= quotient[1:]
    root[0] = UNIT  # t = 1, whose quotient does not fit
    return np.append(0, root.astype(np.int64))


@dataclasses.dataclass(frozen=True)
class NoisyCut:
    """Gaussian noise of `sigma`, the grid, and the threshold `rho` raised to the grid."""

    sigma: float
    rho: float

    def __post_init__(self) -> None:
        if not self.sigma < _MAX_SIGMA:
            raise ParameterError(
                f"sigma must be below 2^26 for exact sums, got {self.sigma:g}: the budget is too small."
            )

    @functools.cached_property
    def step(self) -> int:
        """The grid in units of 2^-32."""
        return max(1, int(Fraction(self.sigma) * UNIT / (1 << _GRID_BITS)))

    @functools.cached_property
    def least(self) -> int:
        """The smallest released value, in steps: rho, rounded up."""
        if math.isinf(self.rho):
            return np.iinfo(np.int64).max // self.step
        return math.ceil(Fraction(self.rho) * UNIT / self.step)

    @property
    def grid(self) -> float:
        return self.step / UNIT

    @property
    def bound(self) -> float:
        """The threshold in standard deviations."""
        return self.least * self.step / (self.sigma * UNIT)

    @property
    def zero_probability(self) -> float:
        """Pr[a cell of weight 0 is released] = Phi(-rho/sigma)."""
        return float(special.ndtr(-self.bound))

    def noisy(self, weight: Array, words: Array) -> Array:
        """The noisy weights in steps, from exact weights and 128 keyed bits for each cell."""
        noise = np.floor(standard_normal(words) * (self.sigma * UNIT)).astype(np.int64)
        return (weight + noise) // self.step

    def likely(self, weight: Array, words: Array) -> Array:
        """The rows that may reach the threshold: all that do, and few that do not.

        Most cells are light, and need noise in the far tail. Those below half of the threshold are told by the
        first word of their draw alone; the quantile is computed for the rest. The bound is loose by 2^-40.
        """
        half = self.least * self.step // 2
        z = (self.least * self.step - half) / (self.sigma * UNIT)
        if z < 1:
            return np.arange(len(weight))
        least_word = np.uint64(min(int(special.ndtr(z) * (1 - 2.0**-40) * 2.0**64), 2**64 - 1))
        return np.flatnonzero((words[:, 0] >= least_word) | (weight >= half))

    def zero_cells(self, words: Array) -> Array:
        """Weights of released zero cells, in steps: the same law, given that they were released."""
        noise = np.floor(tail_normal(words, self.bound) * (self.sigma * UNIT)).astype(np.int64)
        return np.maximum(noise // self.step, self.least)


def spurious_keys(previous: Level, probability: float, prf: Prf, pruning: str) -> Array:
    """Members of V_k, each with `probability`, independently: sorted keys.

    Geometric gaps walk through the ranks [0, |V_k|); the gap is floor(ln(1-U) / ln(1-p)) + 1. Including each
    member of V_k and then dropping those that some user contributed has exactly the law of the paper's
    Algorithm 1, which draws noise for every member that nobody contributed.
    """
    valid = previous.valid(pruning)
    if valid == 0 or probability <= 0:
        return np.zeros(0, np.uint64)
    log_miss = math.log1p(-probability)
    ranks, last, drawn = [], -1, 0
    while last < valid:
        expected = (valid - last) * probability
        batch = int(min(expected + 6 * math.sqrt(expected) + 16, 1 << 22))
        counter = np.arange(drawn, drawn + batch, dtype=np.uint64)
        with np.errstate(divide="ignore"):  # a draw that rounds to 1 is a gap past the end
            gaps = np.floor(np.log1p(-uniform(prf.words(counter, 0))) / log_miss) + 1
        # A gap beyond the end ends the walk; cut before the sum can overflow.
        steps = np.cumsum(np.minimum(gaps, float(valid) + 1).astype(np.int64)[: _safe_length(valid)]) + last
        ranks.append(steps[steps < valid])
        last, drawn = int(steps[-1]), drawn + batch
    return np.sort(previous.unrank(np.concatenate(ranks), pruning))


def _safe_length(valid: int) -> int:
    return max(1, (1 << 62) // (valid + 1))

"""One noisy release of a histogram, in exact integers, and the zero cells that nobody contributed to.

Weights are integers in units of 2^-32, rounded down; a user's squared weights sum to at most 2^64 exactly. Noise is
an integer too: the Gaussian, drawn by inversion from keyed bits and rounded down to the same unit. Since the
weights are integers, rounding the noise is rounding the noisy sum: post-processing of the Gaussian mechanism. The sum
is then rounded down to a grid of 2^-14 sigma before anybody sees it or anything is decided, so the low bits of a
floating-point logarithm or quantile never reach the output (Mironov 2012; Jin et al. 2022).

How exact: `ndtri` and what surrounds it move the edge of a step by at most 8 * 2^-53 of its distance from 0, and draws
have 256 bits in the tails. So up to 16.9 sigma each step has the probability of an exact Gaussian within a factor
1 +- 2^-30, and beyond lies 2^-210. Plans pay for both (`dpngram.accounting.numerics`).
"""

import dataclasses
import functools
import math
from fractions import Fraction

import numpy as np
from scipy import special

from dpngram.accounting import ParameterError
from dpngram.transforms.blocks.columns import Array
from dpngram.transforms.messages import Message
from dpngram.transforms.randomness.draws import standard_normal, tail_normal
from dpngram.transforms.randomness.prf import Prf

__all__ = ["UNIT", "Noise"]


UNIT = 1 << 32
_GRID_BITS = 14
_MAX_SIGMA = 2.0**25  # 18.7 sigma and the sum over 2^30 users must fit 63 bits


@dataclasses.dataclass(frozen=True)
class Noise:
    """Gaussian noise of `sigma` on integers, and the grid to which noisy values are rounded down, counted in steps."""

    sigma: float

    def __post_init__(self) -> None:
        if not self.sigma < _MAX_SIGMA:
            raise ParameterError(Message.SIGMA_TOO_LARGE.format(sigma=self.sigma))

    @functools.cached_property
    def step(self) -> int:
        """The grid in units of 2^-32."""
        return max(1, int(Fraction(self.sigma) * UNIT / (1 << _GRID_BITS)))

    @property
    def grid(self) -> float:
        return self.step / UNIT

    def least(self, rho: float) -> int:
        """The smallest value that reaches the threshold `rho`, in steps: rounded up."""
        if math.isinf(rho):
            return np.iinfo(np.int64).max // self.step
        return math.ceil(Fraction(rho) * UNIT / self.step)

    def bound(self, least: Array) -> Array:
        """Steps in standard deviations."""
        return np.asarray(least, np.float64) * (self.step / (self.sigma * UNIT))

    def zero_probability(self, least: Array) -> Array:
        """Pr[a cell of weight 0 reaches `least`] = Phi(-rho/sigma)."""
        return np.asarray(special.ndtr(-self.bound(least)))

    def noisy(self, weight: Array, bits: Array, prf: Prf) -> Array:
        """The noisy weights in steps, from exact weights and 128 bits of `prf` for each cell."""
        noise = np.floor(standard_normal(bits, prf) * (self.sigma * UNIT)).astype(np.int64)
        return (weight + noise) // self.step

    def likely(self, weight: Array, bits: Array, least: int) -> Array:
        """The rows that may reach `least`: all that do, and few that do not.

        Most cells are light, and need noise in the far tail. Those below half of the threshold are told by the
        first word of their draw alone; the quantile is computed for the rest. The bound is loose by 2^-40.
        """
        half = least * self.step // 2
        z = (least * self.step - half) / (self.sigma * UNIT)
        if z < 1:
            return np.arange(len(weight))
        least_word = np.uint64(min(int(special.ndtr(z) * (1 - 2.0**-40) * 2.0**64), 2**64 - 1))
        return np.flatnonzero((bits[:, 0] >= least_word) | (weight >= half))

    def zero_cells(self, bits: Array, least: Array, prf: Prf) -> Array:
        """Noisy values of cells of weight 0, in steps, given that they reach `least` (one for all, or one for each)."""
        noise = np.floor(tail_normal(bits, self.bound(least), prf) * (self.sigma * UNIT)).astype(np.int64)
        return np.maximum(noise // self.step, least)

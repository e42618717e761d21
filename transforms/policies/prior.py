"""Policy `plus`: what the noisy values of a stratum say about each of its cells.

A noisy value z, in standard deviations, is N(theta, 1), where theta is the *height* of the cell: 0 for a zero cell. The
heights of a stratum follow some law, which is estimated from the noisy values of all its members (EM on a fixed grid of
heights). Given that law, a cell with the combined value X and precision Q has

    D = sum over heights of g(theta) exp(theta X - theta^2 Q / 2),

the likelihood of its values over that of a zero cell. Its *local false-discovery rate*, the probability that it is a
zero cell, is (share of zero cells) / D.

Privacy: a function of noisy values on all of V_k, in the form of counts by bin: post-processing. Values are taken to be
in the middle of their bin, so all results are tables over strata and bins. They are computed in one place (the end of a
round), so workers cannot disagree.
"""

import dataclasses
import functools

import numpy as np
from scipy import special

from dpngram.transforms.blocks.columns import Array
from dpngram.transforms.randomness.noise import Noise

__all__ = ["BINS", "GROUP_STARTS", "HEIGHTS", "Bins", "Evidence", "bins_of", "fit_prior", "weigh_evidence"]

_PER_SIGMA = 8
_LOWEST, _HIGHEST = -3, 8
BINS = (_HIGHEST - _LOWEST) * _PER_SIGMA + 2  # two of them are open
_ZERO_BIN = 1 - _LOWEST * _PER_SIGMA  # the first bin above 0
# Below the first active bin cells are counted in these groups: below 0, up to 1, up to 2, beyond.
GROUP_STARTS = (0, _ZERO_BIN, _ZERO_BIN + _PER_SIGMA, _ZERO_BIN + 2 * _PER_SIGMA)
HEIGHTS = np.array(
    [0, 0.15, 0.3, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 10, 12, 16, 24, 40, 80.0]
)
_STEPS = 150
_MOST = 600.0  # exponents beyond this say no more than this


@dataclasses.dataclass(frozen=True)
class Bins:
    """Noisy values in bins of 1/8 standard deviation, from -3 to 8, and what is beyond on either side."""

    edges: Array  # int64, in steps: the lower edges of all bins but the first
    centre: Array  # in standard deviations
    mass: Array  # the probability of each bin under noise alone
    tail: Array  # that of each bin and all above
    likelihood: Array  # heights x bins

    def of(self, noisy: Array) -> Array:
        """The bin of each value."""
        return np.searchsorted(self.edges, noisy, side="right")


@functools.lru_cache(maxsize=16)
def bins_of(noise: Noise) -> Bins:
    """The bins for values with this noise. Edges are whole steps of its grid, so no value is near an edge."""
    places = range(_LOWEST * _PER_SIGMA, _HIGHEST * _PER_SIGMA + 1)
    edges = np.array([noise.least(noise.sigma * place / _PER_SIGMA) for place in places], np.int64)
    at = noise.bound(edges)
    centre = np.concatenate([[at[0] - 0.3], (at[1:] + at[:-1]) / 2, [at[-1] + 0.5]])
    tail = np.concatenate([[1.0], noise.zero_probability(edges)])
    mass = tail - np.append(tail[1:], 0.0)
    shifted = at[None, :] - HEIGHTS[:, None]
    below, above = special.ndtr(shifted), special.ndtr(-shifted)
    ends = np.zeros((len(HEIGHTS), 1)), np.ones((len(HEIGHTS), 1))
    upper = np.hstack([ends[1], above]) - np.hstack([above, ends[0]])
    lower = np.hstack([below, ends[1]]) - np.hstack([ends[0], below])
    likelihood = np.where(np.hstack([shifted[:, :1] - 1, shifted]) > 0, upper, lower)
    return Bins(edges, centre, mass, tail, likelihood)


def fit_prior(bins: Bins, counts: Array, floor: Array) -> Array:
    """The law of heights in each stratum: strata x heights, each row sums to 1.

    150 steps of EM from 0.7 on height 0 and the rest spread evenly. They need not converge: the law only ranks cells.

    Args:
        bins: of the noise.
        counts: strata x bins; below the floor a group is counted in its first bin.
        floor: for each stratum its first active bin.
    """
    likelihood = np.stack([_grouped(bins, int(first)) for first in floor])
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    prior = np.full((len(counts), len(HEIGHTS)), 0.3 / (len(HEIGHTS) - 1))
    prior[:, 0] = 0.7
    for _ in range(_STEPS):
        seen = np.einsum("sh,shb->sb", prior, likelihood)
        prior = prior * np.einsum("sb,shb->sh", share / np.maximum(seen, 1e-300), likelihood)
        prior /= np.maximum(prior.sum(axis=1, keepdims=True), 1e-300)
    return prior


def _grouped(bins: Bins, floor: int) -> Array:
    """The likelihood of each bin; below the floor that of a whole group, in its first bin."""
    likelihood = bins.likelihood.copy()
    starts = [start for start in GROUP_STARTS if start < floor]
    for start, end in zip(starts, [*starts[1:], floor], strict=False):
        likelihood[:, start] = likelihood[:, start:end].sum(axis=1)
    return np.asarray(likelihood)


@dataclasses.dataclass(frozen=True)
class Evidence:
    """For each combination of bins: D, and the expected height."""

    ratio: Array
    height: Array


def weigh_evidence(prior: Array, value: Array, precision: Array) -> Evidence:
    """D and the expected height at the combined values X with precision Q. The first axis of all is the stratum.

    Cells of which half are zero and half have height 4, at 0 and at 4:

    >>> prior = np.zeros((1, 25)); prior[0, [0, 13]] = 0.5
    >>> weigh_evidence(prior, np.array([[0.0, 4.0]]), np.ones((1, 2))).height.round(2)
    array([[0., 4.]])
    """
    shape = (len(prior),) + (1,) * (value.ndim - 1)
    ratio, moment = (np.zeros(np.broadcast(value, precision).shape) for _ in range(2))
    for place, height in enumerate(HEIGHTS):
        exponent = np.minimum(height * value - height * height / 2 * precision, _MOST)
        part = prior[:, place].reshape(shape) * np.exp(exponent)
        ratio += part
        moment += height * part
    ratio = np.maximum(ratio, 1e-300)
    return Evidence(ratio, moment / ratio)

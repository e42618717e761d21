"""Policy `plus`: what earlier levels say about a candidate, and how much of a user's weight it should get at first.

A candidate u = xyz has a prefix a = xy and a suffix b = yz in S_{k-1}, and a middle y in S_{k-2}. If x and z were
independent given y, u would weigh W(a) W(b) / W(y). Half of the middle is taken off either side, and each side is
rounded down to a bin of half a logarithm. The sum of the two bins is the *stratum* of u. Grams of one stratum have the
same prediction, m = exp((stratum + 1) / 2) standard deviations of the noise.

Weight given to an unlikely candidate (m below 1/2) or beyond what a sure one needs (m above 4) is mostly wasted, so the
guide of a stratum is

    lambda_1 = max(0.6, min(1, m / 0.5)) * min(1, (4 / m)^0.6).

The floor of 0.6 is for set phrases of uncommon words, which no independence predicts.

Everything is computed from released weights, so it is public; privacy does not depend on whether it predicts well.
Logarithms and bins are integers, made once when a level is finished and looked up ever after: no two workers can
disagree about a gram's stratum, or about its guide.
"""

import dataclasses
import functools

import numpy as np

from dpngram.accounting.numerics import MAX_STRATA
from dpngram.transforms.blocks.columns import Array
from dpngram.transforms.blocks.levels import Level

__all__ = ["GUIDE_UNIT", "guide_table", "guide_weights", "predict"]

GUIDE_UNIT = 1 << 12
_LOW, _FLOOR, _HIGH, _POWER = 0.5, 0.6, 4.0, 0.6
_LEAST_WEIGHT = 0.3  # in standard deviations: a released weight below this says no more than this
_LOG_UNIT = 256  # log_weight is in units of 2^-8 nat
_BIN_BITS = 8  # twice a logarithm is in units of 2^-9 nat; a bin is half a nat
_MOST_BINS = MAX_STRATA // 4  # either way, so that sums of two bins have fewer than MAX_STRATA values: plans rely on it


def predict(level: Level, previous: Level, sigma: float) -> Level:
    """The level with its prediction columns: ln W; the bin of ln W(a) - 1/2 ln W(y) as a prefix; that as a suffix.

    At level 1 the middle is the empty gram, whose weight is the sum of all.
    """
    weight = level.weight * (level.grid / sigma)
    log_weight = _log(weight)
    if level.n == 1:
        left_middle = right_middle = _log(np.array([weight.sum()]))
    else:
        left_middle, right_middle = previous.log_weight[level.suffix], previous.log_weight[level.parent]
    return dataclasses.replace(
        level,
        log_weight=log_weight,
        left=_bins(2 * log_weight - left_middle),
        right=_bins(2 * log_weight - right_middle),
    )


def guide_weights(previous: Level, prefix: Array, suffix: Array) -> Array:
    """lambda_1 of the candidates with these rows of S_{k-1} as prefix and suffix, in units of 2^-12; uint16."""
    return guide_table(np.take(previous.left, prefix) + np.take(previous.right, suffix))


def guide_table(stratum: Array) -> Array:
    """lambda_1 by stratum: one table, so that a last bit of `exp` on another processor moves nothing."""
    guides: Array = np.take(_table(), stratum.astype(np.int64) + 2 * _MOST_BINS)
    return guides


@functools.cache
def _table() -> Array:
    m = np.exp((np.arange(-2 * _MOST_BINS, 2 * _MOST_BINS) + 1) / 2)
    factor = np.clip(m / _LOW, _FLOOR, 1) * np.minimum(1, (_HIGH / m) ** _POWER)
    return np.maximum(np.floor(factor * GUIDE_UNIT + 2.0**-20), 1).astype(np.uint16)


def _log(weight: Array) -> Array:
    logs: Array = np.rint(np.log(np.maximum(weight, _LEAST_WEIGHT)) * _LOG_UNIT).astype(np.int32)
    return logs


def _bins(logs: Array) -> Array:
    bins: Array = np.clip(logs >> _BIN_BITS, -_MOST_BINS, _MOST_BINS - 1).astype(np.int16)
    return bins

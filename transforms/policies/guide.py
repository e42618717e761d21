"""Policy `plus`: what earlier levels say about a candidate, and how much of a user's weight it should get.

A candidate u = xyz has a prefix a = xy and a suffix b = yz in S_{k-1}, and a middle y in S_{k-2}. If x and z were
independent given y, u would weigh W(a) W(b) / W(y), and never more than a or b. That prediction, in standard deviations
of the noise, is m(u). Weight given to an unlikely candidate (m below 1/2) or beyond what a sure one needs (m above
4) is mostly wasted, so its guide is

    lambda(u) = max(0.35, min(1, m / 0.5)) * min(1, (4 / m)^0.6).

The floor of 0.35 is for set phrases of uncommon words, which no independence predicts: it costs ordinary text 1 % of
the release, and a corpus of planted phrases would lose two thirds of it without.

Everything is computed from released weights, so it is public; privacy does not depend on whether it predicts well.
Logarithms are integers, made once when a level is finished and looked up ever after: no two workers can disagree
about a gram's stratum, or about its guide.
"""

import dataclasses
import functools

import numpy as np

from dpngram.transforms.blocks.columns import Array
from dpngram.transforms.blocks.levels import Level

__all__ = ["GUIDE_UNIT", "guide_table", "guide_weights", "predict"]

GUIDE_UNIT = 1 << 16
_LOW, _FLOOR, _HIGH, _POWER = 0.5, 0.35, 4.0, 0.6
_LEAST_WEIGHT = 0.3  # in standard deviations: a released weight below this says no more than this
_LOG_UNIT = 256  # log_weight is in units of 2^-8 nat; left and right, with half a logarithm, in 2^-9
_TABLE_HALF = 1 << 13  # logarithms up to 32 nats either way


def predict(level: Level, previous: Level, sigma: float) -> Level:
    """The level with its prediction columns: ln W; ln W(a) - 1/2 ln W(y) as a prefix; the same as a suffix.

    At level 1 the middle is the empty gram, whose weight is the sum of all.
    """
    weight = level.weight * (level.grid / sigma)
    log_weight = _log(weight)
    if level.n == 1:
        left_middle = right_middle = _log(np.array([weight.sum()]))
    else:
        left_middle, right_middle = previous.log_weight[level.suffix], previous.log_weight[level.parent]
    return dataclasses.replace(
        level, log_weight=log_weight, left=2 * log_weight - left_middle, right=2 * log_weight - right_middle
    )


def guide_weights(previous: Level, prefix: Array, suffix: Array) -> Array:
    """lambda of the candidates with these rows of S_{k-1} as prefix and suffix, in units of 2^-16; uint32."""
    joint = (np.take(previous.left, prefix) + np.take(previous.right, suffix)) >> 1
    single = np.minimum(np.take(previous.log_weight, prefix), np.take(previous.log_weight, suffix))
    log_m = np.minimum(joint, single)
    weights: Array = np.take(guide_table(), np.clip(log_m + _TABLE_HALF, 0, 2 * _TABLE_HALF - 1))
    return weights


@functools.cache
def guide_table() -> Array:
    """lambda by log m: one table, so that a last bit of `exp` on another processor moves nothing."""
    m = np.exp(np.arange(-_TABLE_HALF, _TABLE_HALF) / _LOG_UNIT)
    factor = np.clip(m / _LOW, _FLOOR, 1) * np.minimum(1, (_HIGH / m) ** _POWER)
    return np.maximum(np.floor(factor * GUIDE_UNIT + 2.0**-20), 1).astype(np.uint32)


def _log(weight: Array) -> Array:
    logs: Array = np.rint(np.log(np.maximum(weight, _LEAST_WEIGHT)) * _LOG_UNIT).astype(np.int32)
    return logs

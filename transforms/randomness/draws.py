"""Laws of chance from keyed bits: uniform, normal, tails, binomial, geometric gaps."""

import math
from typing import Any

import numpy as np
from scipy import special

from dpngram.transforms.blocks.columns import Array
from dpngram.transforms.randomness.prf import Bits128, Prf

__all__ = ["binomial", "standard_normal", "tail_normal", "uniform"]


def uniform(bits: Bits128) -> np.ndarray[Any, np.dtype[np.float64]]:
    """128 random bits as the midpoint (U + 1/2) / 2^128, with full relative precision near zero."""
    return (bits[:, 0] + (bits[:, 1] + 0.5) * 2.0**-64) * 2.0**-64


def standard_normal(bits: Bits128) -> np.ndarray[Any, np.dtype[np.float64]]:
    """N(0, 1) from 128 random bits by inversion, the same in both tails; |z| <= 13.2, never infinite.

    The upper half is computed from the complement of the bits, 1 - (U + 1/2)/2^128 = (~U + 1/2)/2^128.
    """
    upper = bits[:, 0] >> np.uint64(63) != 0
    lower_tail = uniform(np.where(upper[:, None], ~bits, bits))
    z = special.ndtri(lower_tail)
    return np.where(upper, -z, z)


def tail_normal(bits: Bits128, bound: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """N(0, 1) given that it is at least `bound` (one for all, or one for each), by inversion of the tail."""
    tail = np.log(uniform(bits)) + special.log_ndtr(-bound)
    small = tail < math.log(0.5)
    z = np.empty(len(tail))
    z[small] = -special.ndtri_exp(tail[small])
    z[~small] = -special.ndtri(np.exp(tail[~small]))
    reached: np.ndarray[Any, np.dtype[np.float64]] = np.maximum(z, bound)
    return reached


def binomial(bits: Bits128, count: int, probability: float) -> int:
    """Binomial(count, probability) from 128 random bits (one row), by inversion.

    Probabilities are built from their ratios outwards from the mode, as logarithms, and summed from the ends
    inwards, so that each keeps a relative accuracy of about 1e-10, in the tails too; the range is cut 14 standard
    deviations from the mean, a probability below 1e-40. For counts up to 2^30, where that is half a million terms.
    """
    if count <= 0:
        return 0
    if not 0 < count <= 1 << 30 or not 0 < probability < 1:
        raise ValueError("binomial is for counts up to 2^30 and probabilities inside (0, 1).")
    reach = 14 * math.sqrt(count * probability * (1 - probability)) + 200
    mode = min(int((count + 1) * probability), count)
    low, high = max(0, math.floor(mode - reach)), min(count, math.ceil(mode + reach))
    k = np.arange(low, high, dtype=np.float64)  # the ratio of k + 1 to k
    ratios = np.log((count - k) / (k + 1)) + (math.log(probability) - math.log1p(-probability))
    logs = np.append(0.0, np.cumsum(ratios))
    weights = np.exp(logs - logs[mode - low])
    middle = mode - low
    below = np.cumsum(weights[: middle + 1])  # up to and with the mode
    above = np.cumsum(weights[:middle:-1])  # beyond it, from the far end
    total = below[-1] + (above[-1] if len(above) else 0.0)
    lower = float(uniform(bits)[0]) * total
    if lower <= below[-1]:
        return low + int(np.searchsorted(below, lower))
    upper = float(uniform(~bits)[0]) * total  # 1 - U, with full precision
    return high - min(int(np.searchsorted(above, upper)), len(above) - 1)


_MOST_DRAWN = 1 << 18  # at a time: memory, not the result


def geometric_ranks(size: int, probability: float, prf: Prf, stratum: int) -> Array:
    """Ranks of [0, size), each with `probability`: geometric gaps floor(ln(1-U) / ln(1-p)) + 1."""
    log_miss = math.log1p(-probability)
    ranks, last, drawn = [], -1, 0
    while last < size:
        expected = (size - last) * probability
        batch = int(min(expected + 6 * math.sqrt(expected) + 16, _MOST_DRAWN))
        counter = np.arange(drawn, drawn + batch, dtype=np.uint64)
        gaps = np.floor(_log_complement(prf.blocks(counter, stratum)) / log_miss) + 1
        # A gap beyond the end is the last one; cut it before the sum can overflow.
        steps = np.cumsum(np.minimum(gaps, float(size) + 1).astype(np.int64)[: _safe_length(size)]) + last
        ranks.append(steps[steps < size])
        last, drawn = int(steps[-1]), drawn + batch
    return np.concatenate(ranks)


def _log_complement(bits: Array) -> Array:
    """ln(1 - U), with full relative precision at both ends: long gaps take all the values that they should."""
    upper = bits[:, 0] >> np.uint64(63) != 0
    logs: Array = np.empty(len(bits))
    logs[~upper] = np.log1p(-uniform(bits[~upper]))
    logs[upper] = np.log(uniform(~bits[upper]))  # 1 - (U + 1/2)/2^128 = (~U + 1/2)/2^128
    return logs


def _safe_length(size: int) -> int:
    return max(1, (1 << 62) // (size + 1))

"""Laws of chance from keyed bits: uniform, normal, tails, binomial, sets of ranks.

How exact they must be is in `dpngram.accounting.numerics`; docs/privacy.md, *Numbers*, shows that they are.
"""

import math
from typing import Any

import numpy as np
from scipy import special

from dpngram.transforms.blocks.columns import Array
from dpngram.transforms.randomness.prf import Bits128, Prf

__all__ = ["binomial", "distinct_ranks", "standard_normal", "tail_normal", "uniform"]

# Draws whose first word is below this, one in 2^40, are in the far tail: they get 128 bits more.
_FAR = np.uint64(1 << 24)


def uniform(bits: Bits128) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Random bits, w words a row, as the midpoint (U + 1/2) / 2^(64 w), with full relative precision near zero."""
    midpoint = np.full(len(bits), 0.5)
    for word in bits.T[::-1]:
        midpoint = (word + midpoint) * 2.0**-64
    return midpoint


def standard_normal(bits: Bits128, prf: Prf) -> np.ndarray[Any, np.dtype[np.float64]]:
    """N(0, 1) by inversion of 128 random bits, and of 256 in the tails; the same in both, |z| <= 18.7, never infinite.

    The upper half is computed from the complement of the bits, 1 - (U + 1/2)/2^128 = (~U + 1/2)/2^128.

    Args:
        bits: 128 for each draw, values of `prf`.
        prf: the function that they come from. The further bits of a draw are its value at the first ones.
    """
    upper = bits[:, 0] >> np.uint64(63) != 0
    z = special.ndtri(_tail(np.where(upper[:, None], ~bits, bits), bits, prf))
    return np.where(upper, -z, z)


def _tail(folded: Bits128, bits: Bits128, prf: Prf) -> Array:
    """The uniforms of the folded bits. Those near zero have 128 bits more, or steps far out would have few draws."""
    tail = uniform(folded)
    far = np.flatnonzero(folded[:, 0] < _FAR)
    if len(far):
        tail[far] = uniform(np.hstack([folded[far], prf.encrypt(bits[far])]))
    return tail


def tail_normal(bits: Bits128, bound: Any, prf: Prf) -> np.ndarray[Any, np.dtype[np.float64]]:
    """N(0, 1) given that it is at least `bound` (one for all, or one for each), by inversion of the tail.

    Args:
        bits, prf: see `standard_normal`.
        bound: at least -2.4; where nearly all noise is above the bound, too few digits would be left of the lower tail.
    """
    tail = np.log(_tail(bits, bits, prf)) + special.log_ndtr(-bound)
    small = tail < math.log(0.5)
    z = np.empty(len(tail))
    z[small] = -special.ndtri_exp(tail[small])
    z[~small] = -special.ndtri(np.exp(tail[~small]))
    reached: np.ndarray[Any, np.dtype[np.float64]] = np.maximum(z, bound)
    return reached


def binomial(bits: Array, count: int, probability: float) -> int:
    """Binomial(count, probability) from 256 random bits (one row of four words), by inversion.

    Probabilities are products of their ratios, outwards from the mode, and are summed from the ends inwards, in blocks.
    So each keeps a relative accuracy of 2^-24 where it is above 2^-224 (measured: 2e-11). The range is cut where a
    probability of 2^-280 is left. For variances up to 2^31, where that is two million terms.
    """
    if count <= 0:
        return 0
    variance = count * probability * (1 - probability) if 0 < probability < 1 else math.inf
    if not variance <= 1 << 31:
        raise ValueError("binomial is for variances up to 2^31 and probabilities inside (0, 1).")
    reach = 20 * math.sqrt(variance) + 400
    mode = min(int((count + 1) * probability), count)
    low, high = max(0, math.floor(mode - reach)), min(count, math.ceil(mode + reach))
    odds = probability / (1 - probability)
    k = np.arange(mode, high, dtype=np.float64)  # from k to k + 1
    up = np.cumprod((count - k) / (k + 1) * odds)
    k = np.arange(mode, low, -1, dtype=np.float64)  # from k to k - 1
    down = np.cumprod(k / (count - k + 1) / odds)
    below = _running_sums(np.append(down[::-1], 1.0))  # up to and with the mode
    above = _running_sums(up[::-1])  # beyond it, from the far end
    total = below[-1] + (above[-1] if len(above) else 0.0)
    lower = float(uniform(bits)[0]) * total
    if lower <= below[-1]:
        return low + int(np.searchsorted(below, lower))
    upper = float(uniform(~bits)[0]) * total  # 1 - U, with full precision
    return high - min(int(np.searchsorted(above, upper)), len(above) - 1)


def _running_sums(terms: Array) -> Array:
    """Cumulative sums in blocks of the square root of their number, so that few roundings add up in each."""
    width = math.isqrt(len(terms)) + 1
    rows = np.zeros((len(terms) // width + 1, width))
    rows.ravel()[: len(terms)] = terms
    sums = np.cumsum(rows, axis=1)
    sums[1:] += np.cumsum(sums[:-1, -1])[:, None]
    running: Array = sums.ravel()[: len(terms)]
    return running


_MOST_DRAWN = 1 << 18  # at a time: memory, not the result


def distinct_ranks(size: int, count: int, prf: Prf, stream: int) -> Array:
    """`count` different ranks of [0, size), every set of them equally probable; sorted.

    The ranks are words of AES(counter, stream), modulo `size`. Words beyond the last multiple of `size` are left out,
    so all ranks are equally probable, exactly. The first `count` that differ are taken. Of more than half of all
    ranks, those that are left out are drawn.
    """
    if 2 * count > size:
        kept = np.ones(size, bool)
        kept[distinct_ranks(size, size - count, prf, stream)] = False
        return np.flatnonzero(kept)
    found = np.zeros(0, np.int64)
    last, drawn = np.uint64((1 << 64) // size * size - 1), 0
    while len(found) < count:
        batch = min(count - len(found) + 8, _MOST_DRAWN)
        words = prf.blocks(np.arange(drawn, drawn + batch, dtype=np.uint64), stream).ravel()
        words = words[words <= last]
        found = np.concatenate([found, (words % np.uint64(size)).astype(np.int64)])
        found = found[np.sort(np.unique(found, return_index=True)[1])[:count]]
        drawn += batch
    return np.sort(found)

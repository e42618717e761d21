"""Randomness as a function: AES under a derived key, applied to the name of what is drawn for.

A runner may run a bundle twice, or twice at once. A generator would then draw again, and a second draw is a second
release. Here every draw is AES_key(id): the same wherever, whenever and however often it is computed.
Everything below is vectorised over columns of 128-bit values, held as arrays of shape (n, 2) of 64-bit words.
"""

import hashlib
import hmac
import math
import sys
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import special

__all__ = ["Prf", "binomial", "derive_key", "standard_normal", "tail_normal", "uniform"]

Words = np.ndarray[Any, np.dtype[np.uint64]]

_HEAD = 12  # bytes of a string that share the first AES block with its length
_LONG = 4096  # bytes of a string from where on it is digested by itself
_BYTE_MASKS = np.array([(1 << (8 * n)) - 1 for n in range(9)], np.uint64)

if sys.byteorder != "little":  # the layout of every keyed block is fixed; a big-endian worker would draw otherwise
    raise ImportError("dpngram runs on little-endian machines only.")


def derive_key(key: bytes, *names: bytes | str | int) -> bytes:
    """A 32-byte key for one purpose: HMAC-SHA-256 over the names, each with its length."""
    mac = hmac.new(key, digestmod=hashlib.sha256)
    for name in names:
        part = name if isinstance(name, bytes) else str(name).encode()
        mac.update(len(part).to_bytes(8, "little") + part)
    return mac.digest()


class Prf:
    """AES-256 as a pseudo-random function on 128-bit words and, through a MAC, on strings and sequences."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._cipher = Cipher(algorithms.AES256(key), modes.ECB())

    def words(self, first: Words, second: Words | int) -> Words:
        """AES of the blocks (first_i, second_i)."""
        blocks = np.empty((len(first), 2), np.uint64)
        blocks[:, 0] = first
        blocks[:, 1] = second
        return self.encrypt(blocks)

    def encrypt(self, blocks: Words) -> Words:
        blocks = np.ascontiguousarray(blocks, np.uint64)
        out = np.empty(blocks.nbytes + 15, np.uint8)
        if blocks.size:
            self._cipher.encryptor().update_into(blocks.data.cast("B"), out.data)
        return out[: blocks.nbytes].view(np.uint64).reshape(blocks.shape)

    def strings(self, offsets: np.ndarray[Any, Any], data: np.ndarray[Any, Any]) -> Words:
        """A 128-bit digest of each string.

        CBC-MAC over the length followed by the bytes. With the length in front no message is a prefix of
        another, and CBC-MAC of prefix-free messages is a PRF (Petrank & Rackoff 2000).
        """
        starts = np.asarray(offsets[:-1], np.int64)
        left = np.diff(offsets).astype(np.int64)
        if len(left) and left.max() >= 1 << 32:
            raise ValueError("a string of 4 GiB or more cannot be digested.")
        padded = np.zeros(len(data) + 32, np.uint8)
        padded[: len(data)] = data
        at = np.ndarray((len(data) + 24,), "<u8", buffer=padded, strides=(1,))  # unaligned eight-byte loads
        blocks = np.empty((len(left), 2), np.uint64)
        blocks[:, 0] = left.astype(np.uint64) | (_load(at, starts, np.minimum(left, 4)) << np.uint64(32))
        blocks[:, 1] = _load(at, starts + 4, np.clip(left - 4, 0, 8))
        state = self.encrypt(blocks)
        starts, left = starts + _HEAD, left - _HEAD
        for row in np.flatnonzero(left > _LONG).tolist():
            state[row] = self._chain(state[row], padded[starts[row] : starts[row] + left[row]])
            left[row] = 0
        rows = np.flatnonzero(left > 0)
        while len(rows):
            blocks = state[rows]
            blocks[:, 0] ^= _load(at, starts[rows], np.clip(left[rows], 0, 8))
            blocks[:, 1] ^= _load(at, starts[rows] + 8, np.clip(left[rows] - 8, 0, 8))
            state[rows] = self.encrypt(blocks)
            starts[rows] += 16
            left[rows] -= 16
            rows = rows[left[rows] > 0]
        return state

    def _chain(self, state: Words, data: np.ndarray[Any, Any]) -> Words:
        """CBC-MAC of one string from this state on: the last block of its ciphertext, some megabytes at a time."""
        for start in range(0, len(data), 1 << 20):
            part = data[start : start + (1 << 20)].tobytes()
            part += b"\0" * (-len(part) % 16)
            encryptor = Cipher(algorithms.AES256(self._key), modes.CBC(state.tobytes())).encryptor()
            state = np.frombuffer(encryptor.update(part)[-16:], np.uint64)
        return state

    def sequences(self, items: Words, bounds: np.ndarray[Any, Any]) -> Words:
        """A 128-bit digest of each run items[bounds[i]:bounds[i+1]] of 128-bit items; no run is empty.

        The XOR over the run of AES(96 bits of the item, its place). Different runs differ in at least one
        (place, item), so two digests agree with probability 2^-128, plus 2^-96 for each pair of distinct items.
        The caller puts the result through another PRF and never shows it.
        """
        lengths = np.diff(bounds)
        if not len(lengths):
            return np.zeros((0, 2), np.uint64)
        place = np.arange(len(items), dtype=np.uint64) - np.repeat(bounds[:-1].astype(np.uint64), lengths)
        blocks = items.copy()
        blocks[:, 1] = (blocks[:, 1] & np.uint64(0xFFFFFFFF)) | (place << np.uint64(32))
        return np.bitwise_xor.reduceat(self.encrypt(blocks), bounds[:-1], axis=0)

    def pairs(self, first: Words, second: Words) -> Words:
        """A 128-bit digest of each pair of 128-bit values: CBC-MAC over two blocks."""
        return self.encrypt(self.encrypt(first) ^ second)


def _load(at: Any, starts: Any, count: Any) -> Words:
    loaded: Words = at[starts] & _BYTE_MASKS[count]
    return loaded


def uniform(words: Words) -> np.ndarray[Any, np.dtype[np.float64]]:
    """128 random bits as the midpoint (U + 1/2) / 2^128, with full relative precision near zero."""
    return (words[:, 0] + (words[:, 1] + 0.5) * 2.0**-64) * 2.0**-64


def standard_normal(words: Words) -> np.ndarray[Any, np.dtype[np.float64]]:
    """N(0, 1) from 128 random bits by inversion, the same in both tails; |z| <= 13.2, never infinite.

    The upper half is computed from the complement of the bits, 1 - (U + 1/2)/2^128 = (~U + 1/2)/2^128.
    """
    upper = words[:, 0] >> np.uint64(63) != 0
    lower_tail = uniform(np.where(upper[:, None], ~words, words))
    z = special.ndtri(lower_tail)
    return np.where(upper, -z, z)


def tail_normal(words: Words, bound: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """N(0, 1) given that it is at least `bound` (one for all, or one for each), by inversion of the tail."""
    tail = np.log(uniform(words)) + special.log_ndtr(-bound)
    small = tail < math.log(0.5)
    z = np.empty(len(tail))
    z[small] = -special.ndtri_exp(tail[small])
    z[~small] = -special.ndtri(np.exp(tail[~small]))
    reached: np.ndarray[Any, np.dtype[np.float64]] = np.maximum(z, bound)
    return reached


def binomial(words: Words, count: int, probability: float) -> int:
    """Binomial(count, probability) from 128 random bits (one row of words), by inversion.

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
    lower = float(uniform(words)[0]) * total
    if lower <= below[-1]:
        return low + int(np.searchsorted(below, lower))
    upper = float(uniform(~words)[0]) * total  # 1 - U, with full precision
    return high - min(int(np.searchsorted(above, upper)), len(above) - 1)

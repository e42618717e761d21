"""Randomness as a function: AES under a derived key, applied to the name of what is drawn for.

A runner may run a bundle twice, or twice at once. A generator would then draw again, and a second draw is a second
release. Here every draw is AES_key(id): the same wherever, whenever and however often it is computed.
Everything below is vectorised over columns of 128-bit values, held as arrays of shape (n, 2) of 64-bit words.
"""

import hashlib
import hmac
import sys
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dpngram.transforms.messages import Message

__all__ = ["Prf", "derive_key"]


Bits128 = np.ndarray[Any, np.dtype[np.uint64]]
_HEAD = 12  # bytes of a string that share the first AES block with its length
_LONG = 4096  # bytes of a string from where on it is digested by itself
_BYTE_MASKS = np.array([(1 << (8 * n)) - 1 for n in range(9)], np.uint64)


if sys.byteorder != "little":  # the layout of every keyed block is fixed; a big-endian worker would draw otherwise
    raise ImportError(Message.BIG_ENDIAN.format())


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

    def blocks(self, first: Bits128, second: Bits128 | int) -> Bits128:
        """AES of the blocks (first_i, second_i)."""
        blocks = np.empty((len(first), 2), np.uint64)
        blocks[:, 0] = first
        blocks[:, 1] = second
        return self.encrypt(blocks)

    def encrypt(self, blocks: Bits128) -> Bits128:
        blocks = np.ascontiguousarray(blocks, np.uint64)
        out = np.empty(blocks.nbytes + 15, np.uint8)
        if blocks.size:
            self._cipher.encryptor().update_into(blocks.data.cast("B"), out.data)
        return out[: blocks.nbytes].view(np.uint64).reshape(blocks.shape)

    def strings(self, offsets: np.ndarray[Any, Any], data: np.ndarray[Any, Any]) -> Bits128:
        """A 128-bit digest of each string.

        CBC-MAC over the length followed by the bytes. With the length in front no message is a prefix of
        another, and CBC-MAC of prefix-free messages is a PRF (Petrank & Rackoff 2000).
        """
        starts = np.asarray(offsets[:-1], np.int64)
        left = np.diff(offsets).astype(np.int64)
        if len(left) and left.max() >= 1 << 32:
            raise ValueError(Message.STRING_TOO_LONG.format())
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

    def _chain(self, state: Bits128, data: np.ndarray[Any, Any]) -> Bits128:
        """CBC-MAC of one string from this state on: the last block of its ciphertext, some megabytes at a time."""
        for start in range(0, len(data), 1 << 20):
            part = data[start : start + (1 << 20)].tobytes()
            part += b"\0" * (-len(part) % 16)
            encryptor = Cipher(algorithms.AES256(self._key), modes.CBC(state.tobytes())).encryptor()
            state = np.frombuffer(encryptor.update(part)[-16:], np.uint64)
        return state

    def sequences(self, items: Bits128, bounds: np.ndarray[Any, Any]) -> Bits128:
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

    def pairs(self, first: Bits128, second: Bits128) -> Bits128:
        """A 128-bit digest of each pair of 128-bit values: CBC-MAC over two blocks."""
        return self.encrypt(self.encrypt(first) ^ second)


def _load(at: Any, starts: Any, count: Any) -> Bits128:
    loaded: Bits128 = at[starts] & _BYTE_MASKS[count]
    return loaded

"""S_k as columns: the released grams of one length, and the arithmetic of V_{k+1} on them.

A gram is a row. Its key is `parent << 32 | last`: the row of its prefix in S_{k-1}, and the row of its last token in
S_1. Keys are sorted, so rows are in the order of the tokens' bytes, and a gram is decoded by walking up. Level 1
has S_0, the one empty gram, as its parent. All of it is a function of the release, and public.
"""

import dataclasses

import numpy as np

from dpngram.transforms.blocks.columns import Array, Block, register_block
from dpngram.transforms.messages import Message

__all__ = ["EMPTY_LEVEL", "Level", "find_digests", "pack_keys"]

_LAST = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
# No more rows than this in a level: a row must fit 31 bits, and |V_k| must fit 63.
MAX_ROWS = 1 << 31


def pack_keys(parent: Array, last: Array) -> Array:
    """The keys of these grams."""
    keys: Array = (parent.astype(np.uint64) << _SHIFT) | last.astype(np.uint64)
    return keys


def find_digests(known: Array, wanted: Array) -> Array:
    """The row of each wanted 128-bit digest among known ones, sorted by their first halves; -1 if it is not there."""
    found = np.full(len(wanted), -1, np.int64)
    if not len(known):
        return found
    at = np.searchsorted(known[:, 0], wanted[:, 0])
    open_rows = np.arange(len(wanted))
    # One pass, unless two known ones share 64 bits.
    while len(open_rows):
        open_rows = open_rows[at[open_rows] < len(known)]
        same = known[at[open_rows]] == wanted[open_rows]
        hit = same.all(axis=1)
        found[open_rows[hit]] = at[open_rows[hit]]
        open_rows = open_rows[same[:, 0] & ~hit]
        at[open_rows] += 1
    return found


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class Level(Block):
    """S_k: sorted keys, suffix links, noisy weights in units of the grid, and for k = 1 the tokens."""

    keys: Array  # uint64, sorted, distinct
    suffix: Array  # int32: row in S_{k-1} of the gram without its first token (both-side pruning only)
    weight: Array  # int64: noisy weight in grid units
    n: Array  # int64 scalar: k
    parents: Array  # int64 scalar: |S_{k-1}|
    words: Array  # int64 scalar: |S_1|
    grid: Array  # float64 scalar: one unit of weight
    rho: Array  # float64 scalar: the lowest threshold
    # Policy plus only (empty otherwise): see guide.py.
    log_weight: Array  # int32
    left: Array  # int32
    right: Array  # int32
    # Level 1 only (empty otherwise): the tokens, and their digests in digest order for looking them up.
    token_offsets: Array
    token_bytes: Array
    digests: Array  # (n, 2) uint64, sorted
    digest_rows: Array  # int32

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def parent(self) -> Array:
        rows: Array = (self.keys >> _SHIFT).astype(np.int64)
        return rows

    @property
    def last(self) -> Array:
        rows: Array = (self.keys & _LAST).astype(np.int32)
        return rows

    def find(self, keys: Array) -> Array:
        """The row of each key, -1 where it was not released. Sorted keys are looked up fastest."""
        if not len(self.keys):
            return np.full(len(keys), -1, np.int32)
        rows = np.searchsorted(self.keys, keys).astype(np.int32)
        np.minimum(rows, len(self.keys) - 1, out=rows)
        rows[self.keys[rows] != keys] = -1
        return rows

    def find_tokens(self, digests: Array) -> Array:
        """Level 1: the row of each token, given by its digest, -1 where it was not released."""
        rows = find_digests(self.digests, digests)
        return np.where(rows >= 0, np.append(self.digest_rows, np.int32(-1))[rows], np.int32(-1))

    def valid(self, pruning: str) -> int:
        """|V_{k+1}|, exactly. For both-side pruning the sum over middles y of #{xy} * #{yz}: linear in |S_k|."""
        if not len(self):
            return 0
        if pruning == "single":
            return len(self) * int(self.words)
        left = np.bincount(self.suffix, minlength=int(self.parents))
        return int((left * np.bincount(self.parent, minlength=int(self.parents))).sum())

    def suffix_rows(self, keys: Array) -> Array:
        """For members of V_{k+1}: the row here of the gram without its first token, a child of suffix(prefix)."""
        prefix = (keys >> _SHIFT).astype(np.int64)
        return self.find(pack_keys(np.take(self.suffix, prefix), keys & _LAST))

    def extend(self, keys: Array, weight: Array, grid: float, rho: float, pruning: str) -> "Level":
        """S_{k+1} from its sorted keys."""
        if len(keys) >= MAX_ROWS:
            raise OverflowError(Message.LEVEL_TOO_LARGE.format(n=int(self.n) + 1, grams=len(keys), most=MAX_ROWS))
        suffix = self.suffix_rows(keys) if pruning == "both" else np.zeros(0, np.int32)
        return dataclasses.replace(
            EMPTY_LEVEL,
            keys=keys,
            suffix=suffix,
            weight=weight,
            n=self.n + 1,
            parents=np.int64(len(self)),
            words=self.words,
            grid=np.float64(grid),
            rho=np.float64(rho),
        )

    @classmethod
    def first(cls, offsets: Array, data: Array, digests: Array, weight: Array, grid: float, rho: float) -> "Level":
        """S_1 from its tokens, which are sorted by their bytes."""
        order = np.lexsort((digests[:, 1], digests[:, 0]))
        return dataclasses.replace(
            EMPTY_LEVEL,
            keys=np.arange(len(weight), dtype=np.uint64),
            suffix=np.zeros(len(weight), np.int32),
            weight=weight,
            n=np.int64(1),
            parents=np.int64(1),
            words=np.int64(len(weight)),
            grid=np.float64(grid),
            rho=np.float64(rho),
            token_offsets=offsets,
            token_bytes=data,
            digests=digests[order],
            digest_rows=order.astype(np.int32),
        )


EMPTY_LEVEL = Level(
    keys=np.zeros(0, np.uint64),
    suffix=np.zeros(0, np.int32),
    weight=np.zeros(0, np.int64),
    n=np.int64(0),
    parents=np.int64(0),
    words=np.int64(0),
    grid=np.float64(0),
    rho=np.float64(0),
    log_weight=np.zeros(0, np.int32),
    left=np.zeros(0, np.int32),
    right=np.zeros(0, np.int32),
    token_offsets=np.zeros(1, np.int64),
    token_bytes=np.zeros(0, np.uint8),
    digests=np.zeros((0, 2), np.uint64),
    digest_rows=np.zeros(0, np.int32),
)

"""S_k as columns: the released grams of one length, and the arithmetic of V_{k+1} on them.

A gram is a row. Its key is `parent << 32 | last`: the row of its prefix in S_{k-1}, and the row of its last token in
S_1. Keys are sorted, so rows are in the order of the tokens' bytes, and a gram is decoded from its parents. Level 1
has S_0, the one empty gram, as its parent. All of it is a function of the release, and public.
"""

import dataclasses

import numpy as np

from dpngram.transforms.blocks.columns import Array, Block, empty_column, find_keys, register_block
from dpngram.transforms.messages import Message

__all__ = ["EMPTY_LEVEL", "Level", "find_digests", "pack_keys", "unpack_keys"]

_LAST = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
# No more rows than this in a level: a row must fit 31 bits, and |V_k| must fit 63.
MAX_ROWS = 1 << 31


def pack_keys(parent: Array, last: Array) -> Array:
    """The keys of these grams."""
    keys: Array = (parent.astype(np.uint64) << _SHIFT) | last.astype(np.uint64)
    return keys


def unpack_keys(keys: Array) -> tuple[Array, Array]:
    """The inverse of `pack_keys`: the row of the prefix in S_{k-1}, and the row of the last token in S_1; int64.

    >>> unpack_keys(pack_keys(np.array([5]), np.array([2])))
    (array([5]), array([2]))
    """
    return (keys >> _SHIFT).astype(np.int64), (keys & _LAST).astype(np.int64)


def find_digests(known: Array, wanted: Array) -> Array:
    """The row of each wanted 128-bit digest among known ones, sorted by their first halves; -1 if it is not there."""
    found = np.full(len(wanted), -1, np.int64)
    if not len(known):
        return found
    first = np.ascontiguousarray(known[:, 0])
    rows = np.argsort(wanted[:, 0])  # sorted ones are found four times as fast, sorting included
    at = np.searchsorted(first, wanted[rows, 0])
    # One pass, unless two known ones share 64 bits.
    while len(rows):
        within = at < len(known)
        rows, at = rows[within], at[within]
        same = first[at] == wanted[rows, 0]
        rows, at = rows[same], at[same]
        hit = known[at, 1] == wanted[rows, 1]
        found[rows[hit]] = at[hit]
        rows, at = rows[~hit], at[~hit] + 1
    return found


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class Level(Block):
    """S_k: sorted keys, suffix links, noisy weights in units of the grid, and for k = 1 the tokens."""

    keys: Array = empty_column(np.uint64)  # sorted, distinct
    weight: Array = empty_column(np.int64)  # noisy weight in grid units
    n: int = 0  # k
    parents: int = 0  # |S_{k-1}|
    vocabulary_size: int = 0  # |S_1|
    grid: float = 0.0  # one unit of weight
    rho: float = 0.0  # the lowest threshold
    name: int = 0  # where the noise of what follows is drawn under a name, see `surveys.name_of`
    # int32: row in S_{k-1} of the gram without its first token. Both-side pruning only.
    suffix: Array = empty_column(np.int32)
    # Empty where the policy has no guide (see policies/guide.py).
    log_weight: Array = empty_column(np.int32)
    left: Array = empty_column(np.int16)
    right: Array = empty_column(np.int16)
    # Level 1 only: the tokens, and their digests in digest order for looking them up.
    token_offsets: Array = empty_column(np.int64, shape=(1,))
    token_bytes: Array = empty_column(np.uint8)
    digests: Array = empty_column(np.uint64, shape=(0, 2))  # sorted
    digest_rows: Array = empty_column(np.int32)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def parent(self) -> Array:
        rows: Array = (self.keys >> _SHIFT).view(np.int64)
        return rows

    @property
    def last(self) -> Array:
        """As int32: the last four bytes of each key."""
        rows: Array = self.keys.view(np.int32)[::2]
        return rows

    def only_keys(self) -> "Level":
        """What is needed to decode later levels: the keys, and the tokens of level 1."""
        return Level(keys=self.keys, n=self.n, token_offsets=self.token_offsets, token_bytes=self.token_bytes)

    @property
    def has_guide(self) -> bool:
        """Whether the policy gave it the columns that predict the next level."""
        return len(self.left) > 0

    def find(self, keys: Array) -> Array:
        """The row of each key, -1 where it was not released. Sorted keys are looked up fastest."""
        return find_keys(self.keys, keys)

    def find_tokens(self, digests: Array) -> Array:
        """Level 1: the row of each token, given by its digest, -1 where it was not released."""
        rows = find_digests(self.digests, digests)
        return np.where(rows >= 0, np.append(self.digest_rows, np.int32(-1))[rows], np.int32(-1))

    def valid(self, pruning: str) -> int:
        """|V_{k+1}|, exactly. For both-side pruning the sum over middles y of #{xy} * #{yz}: linear in |S_k|."""
        if not len(self):
            return 0
        if pruning == "single":
            return len(self) * self.vocabulary_size
        left = np.bincount(self.suffix, minlength=self.parents)
        return int((left * np.bincount(self.parent, minlength=self.parents)).sum())

    def suffix_rows(self, keys: Array) -> Array:
        """For members of V_{k+1}: the row here of the gram without its first token, a child of suffix(prefix)."""
        prefix, last = unpack_keys(keys)
        return self.find(pack_keys(np.take(self.suffix, prefix), last))

    def extend(self, keys: Array, weight: Array, grid: float, rho: float, pruning: str) -> "Level":
        """S_{k+1} from its sorted keys."""
        if len(keys) >= MAX_ROWS:
            raise OverflowError(Message.LEVEL_TOO_LARGE.format(n=self.n + 1, grams=len(keys), most=MAX_ROWS))
        suffix = self.suffix_rows(keys) if pruning == "both" else EMPTY_LEVEL.suffix
        if (suffix < 0).any():
            raise ValueError(Message.GRAM_NOT_VALID.format())
        return Level(
            keys=keys,
            weight=weight,
            n=self.n + 1,
            parents=len(self),
            vocabulary_size=self.vocabulary_size,
            grid=grid,
            rho=rho,
            suffix=suffix,
        )

    @classmethod
    def first(cls, offsets: Array, data: Array, digests: Array, weight: Array, grid: float, rho: float) -> "Level":
        """S_1 from its tokens, which are sorted by their bytes."""
        order = np.lexsort((digests[:, 1], digests[:, 0]))
        return cls(
            keys=np.arange(len(weight), dtype=np.uint64),
            weight=weight,
            n=1,
            parents=1,
            vocabulary_size=len(weight),
            grid=grid,
            rho=rho,
            suffix=np.zeros(len(weight), np.int32),
            token_offsets=offsets,
            token_bytes=data,
            digests=digests[order],
            digest_rows=order.astype(np.int32),
        )


EMPTY_LEVEL = Level()

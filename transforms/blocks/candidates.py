"""Candidates as columns: where each gram of one length stands in the text of a block of users.

Postings: for each distinct gram, sorted, the positions at which it starts. Each level reads the postings of the one
before and writes its own, so that after level 1 no token is seen again.
"""

import dataclasses

import numpy as np
import pyarrow as pa

from dpngram.transforms.blocks.columns import (
    Array,
    binary_array,
    empty_column,
    register_block,
    run_starts,
    split_binary,
)
from dpngram.transforms.blocks.levels import EMPTY_LEVEL, Level, pack_keys
from dpngram.transforms.blocks.users import UserBlock, Users

__all__ = ["CandidateBlock", "all_tokens", "listed_tokens", "make_postings", "open_candidates"]


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class CandidateBlock(Users):
    """The users of a `UserBlock`, and the grams of level k that they may contribute."""

    grams: Array  # uint64, sorted, distinct: keys; at level 1 the first halves of token digests, in any order
    gram_start: Array  # int32, grams + 1: ranges of `positions`
    positions: Array  # int32: where each gram starts, ascending within a gram
    # uint16, one per gram: lambda_1 in units of 2^-12; empty where the policy has no guide (see policies/guide.py)
    guide_weight: Array = empty_column(np.uint16)
    # One-side pruning only: `ids` and `digests` of the UserBlock, to look the tokens up in S_1.
    token_ids: Array = empty_column(np.uint8)
    token_digests: Array = empty_column(np.uint64, shape=(0, 2))
    # Level 1 only: the tokens behind `grams`. (Baselines keep the digests at every level.)
    digests: Array = empty_column(np.uint64, shape=(0, 2))
    token_offsets: Array = empty_column(np.int64, shape=(1,))
    token_bytes: Array = empty_column(np.uint8)

    @property
    def length(self) -> int:
        """The number of positions."""
        return int(self.user_start[-1])

    def owners(self) -> Array:
        """The user, as a row of this block, of each posting."""
        rows = np.repeat(np.arange(len(self.user), dtype=np.int32), np.diff(self.user_start))
        return np.take(rows, self.positions)

    def occupied(self) -> Array:
        occupied = np.zeros(self.length, bool)
        occupied[self.positions] = True
        return occupied

    def rows_at(self, level: Level) -> Array:
        rows = np.full(self.length, -1, np.int32)
        rows[self.positions] = np.repeat(level.find(self.grams), np.diff(self.gram_start))
        return rows

    def tokens(self) -> tuple[Array, Array]:
        return self.token_ids, self.token_digests


def open_candidates(users: Users, earlier: Level) -> CandidateBlock:
    """What these users may still contribute at this level: all but what its earlier rounds have released."""
    if isinstance(users, UserBlock):
        return all_tokens(users, earlier)
    if not isinstance(users, CandidateBlock):
        raise TypeError(f"users must be a UserBlock or a CandidateBlock, got {type(users).__name__}.")
    if not len(earlier):
        return users
    fresh = earlier.find(users.grams) < 0
    counts = np.diff(users.gram_start)
    return dataclasses.replace(
        users,
        grams=users.grams[fresh],
        gram_start=np.append(0, np.cumsum(counts[fresh])).astype(np.int32),
        positions=users.positions[np.repeat(fresh, counts)],
        guide_weight=users.guide_weight[fresh] if len(users.guide_weight) else users.guide_weight,
    )


def all_tokens(block: UserBlock, earlier: Level = EMPTY_LEVEL) -> CandidateBlock:
    """Level 1: every token is a candidate, unless it is released already."""
    return _tokens(block, earlier.find_tokens(block.digests) < 0 if len(earlier) else None)


def listed_tokens(block: UserBlock, vocabulary: Level) -> CandidateBlock:
    """Level 1 with a public vocabulary: the tokens that it lists are candidates, and no others."""
    return _tokens(block, vocabulary.find_tokens(block.digests) >= 0)


def _tokens(block: UserBlock, keep: Array | None) -> CandidateBlock:
    """The tokens of the dictionary that `keep` says, or all of them."""
    ids, digests = block.ids, block.digests
    offsets, data = block.token_offsets, block.token_bytes
    occupied = block.occupied()
    if keep is not None:
        renumbered = np.append(np.cumsum(keep) - 1, 0)
        occupied &= np.append(keep, False)[ids]
        ids, digests = renumbered[ids], digests[keep]
        offsets, data = split_binary(binary_array(offsets, data).take(pa.array(np.flatnonzero(keep))))
    positions = np.flatnonzero(occupied).astype(np.int32)
    _, gram_start, positions = _sorted_postings(
        np.take(ids, positions).astype(np.uint64), len(digests), positions, len(block.ids)
    )
    return CandidateBlock(
        user=block.user,
        user_start=block.user_start,
        grams=digests[:, 0],  # every row of the dictionary occurs
        gram_start=gram_start,
        positions=positions,
        budget=block.budget,
        allowance=block.allowance,
        digests=digests,
        token_offsets=offsets,
        token_bytes=data,
    )


def make_postings(
    prefix: Array, last: Array, positions: Array, *, prefixes: int, lasts: int, length: int
) -> tuple[Array, Array, Array]:
    """Sorted (keys, ranges, positions) from one entry per position.

    A bigram (7, 2) that starts at positions 0 and 4, and (7, 1) at position 2:

    >>> keys, ranges, positions = make_postings(
    ...     np.array([7, 7, 7]), np.array([2, 1, 2]), np.array([0, 2, 4], np.int32), prefixes=8, lasts=3, length=6)
    >>> [(int(key) >> 32, int(key) & 0xFFFFFFFF) for key in keys], ranges, positions
    ([(7, 1), (7, 2)], array([0, 1, 3], dtype=int32), array([2, 0, 4], dtype=int32))

    Args:
        prefix: the row of the gram's prefix, all below `prefixes`.
        last: the row of the gram's last token, all below `lasts`.
        positions: where the gram starts, ascending, all below `length`.

    Gram and position are packed into one 64-bit number, so that one sort does it. Where they do not fit, prefixes and
    last tokens are first renumbered within the block, which keeps their order.
    """
    renumber = _bits(prefixes) + _bits(lasts) + _bits(length) > 64
    if renumber:
        prefix_names, prefix = _renumber(prefix)
        last_names, last = _renumber(last)
        prefixes, lasts = len(prefix_names), len(last_names)
    shift = np.uint64(_bits(lasts))
    gram = (prefix.astype(np.uint64) << shift) | last.astype(np.uint64)
    grams, gram_start, positions = _sorted_postings(gram, 1 << (_bits(prefixes) + _bits(lasts)), positions, length)
    parent, child = grams >> shift, grams & ((np.uint64(1) << shift) - np.uint64(1))
    if renumber:
        parent, child = prefix_names[parent.astype(np.int64)], last_names[child.astype(np.int64)]
    return pack_keys(parent, child), gram_start, positions


def _sorted_postings(gram: Array, grams: int, positions: Array, length: int) -> tuple[Array, Array, Array]:
    shift = np.uint64(_bits(length))
    if _bits(grams) + _bits(length) <= 64:
        packed = (gram << shift) | positions.astype(np.uint64)
        packed.sort()
        gram = packed >> shift
        positions = (packed & ((np.uint64(1) << shift) - np.uint64(1))).astype(np.int32)
    else:  # more distinct pairs than 64 bits can name: slower, but right
        order = np.argsort(gram, kind="stable")
        gram, positions = gram[order], positions[order]
    first = np.flatnonzero(run_starts(gram))
    return gram[first], np.append(first, len(gram)).astype(np.int32), positions


def _renumber(values: Array) -> tuple[Array, Array]:
    ordered = np.sort(values)
    names = ordered[run_starts(ordered)]
    return names, np.searchsorted(names, values)


def _bits(count: int) -> int:
    """How many bits hold the numbers 0, ..., count - 1."""
    return max(int(count) - 1, 1).bit_length()

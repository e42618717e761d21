"""Candidates as columns: where each gram of one length stands in the text of a block of users.

Postings: for each distinct gram, sorted, the positions at which it starts. Each level reads the postings of the one
before and writes its own, so that after level 1 no token is seen again.
"""

import dataclasses

import numpy as np
import pyarrow as pa

from dpngram.transforms.blocks.columns import Array, Block, binary_array, register_block, split_binary
from dpngram.transforms.blocks.levels import EMPTY_LEVEL, Level, pack_keys
from dpngram.transforms.blocks.users import UserBlock

__all__ = ["CandidateBlock", "all_tokens", "make_postings", "open_candidates"]


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class CandidateBlock(Block):
    """The users of a `UserBlock`, and the grams of level k that they may contribute."""

    user: Array  # uint64, one per user
    user_start: Array  # int32, users + 1: ranges of positions
    grams: Array  # uint64, sorted, distinct: keys; at level 1 the first halves of token digests, in any order
    gram_start: Array  # int32, grams + 1: ranges of `positions`
    positions: Array  # int32: where each gram starts, ascending within a gram
    words: Array  # int32 per position, the row in S_1 or -1; empty unless one-side pruning needs it
    # Policy plus only, empty otherwise:
    guide: Array  # uint32, one per gram: lambda in units of 2^-16; see guide.py
    budget: Array  # uint64, one per user: what is left; see budgets.py
    allowance: Array  # uint64, one per user: what this level may spend of it
    # Level 1 only, empty afterwards: the tokens behind `grams`.
    digests: Array
    token_offsets: Array
    token_bytes: Array

    def __len__(self) -> int:
        return len(self.user)

    @property
    def length(self) -> int:
        """The number of positions."""
        return int(self.user_start[-1])

    def owners(self) -> Array:
        """The user, as a row of this block, of each posting."""
        rows = np.repeat(np.arange(len(self.user), dtype=np.int32), np.diff(self.user_start))
        return np.take(rows, self.positions)

    def held(self) -> Array:
        """Which positions hold a candidate."""
        held = np.zeros(self.length, bool)
        held[self.positions] = True
        return held


def open_candidates(block: UserBlock | CandidateBlock, released: Level) -> CandidateBlock:
    """What these users may still contribute at this level: all but what its earlier rounds have released."""
    if isinstance(block, UserBlock):
        return all_tokens(block, released)
    if not len(released):
        return block
    fresh = released.find(block.grams) < 0
    counts = np.diff(block.gram_start)
    return dataclasses.replace(
        block,
        grams=block.grams[fresh],
        gram_start=np.append(0, np.cumsum(counts[fresh])).astype(np.int32),
        positions=block.positions[np.repeat(fresh, counts)],
        guide=block.guide[fresh] if len(block.guide) else block.guide,
    )


def all_tokens(block: UserBlock, released: Level = EMPTY_LEVEL) -> CandidateBlock:
    """Level 1: every token is a candidate, unless it is released already."""
    ids, digests = block.ids, block.digests
    offsets, data = block.token_offsets, block.token_bytes
    held = block.held()
    if len(released):
        fresh = released.find_tokens(digests) < 0
        renumbered = np.append(np.cumsum(fresh) - 1, 0)
        held &= np.append(fresh, False)[ids]
        ids, digests = renumbered[ids], digests[fresh]
        offsets, data = split_binary(binary_array(offsets, data).take(pa.array(np.flatnonzero(fresh))))
    positions = np.flatnonzero(held).astype(np.int32)
    _, gram_start, positions = _sorted_postings(
        np.take(ids, positions).astype(np.uint64), len(digests), positions, len(block.ids)
    )
    return CandidateBlock(
        user=block.user,
        user_start=block.user_start,
        grams=digests[:, 0],  # every row of the dictionary occurs
        gram_start=gram_start,
        positions=positions,
        words=np.zeros(0, np.int32),
        guide=np.zeros(0, np.uint32),
        budget=block.budget,
        allowance=block.allowance,
        digests=digests,
        token_offsets=offsets,
        token_bytes=data,
    )


def make_postings(
    prefix: Array, last: Array, positions: Array, rows: int, words: int, length: int
) -> tuple[Array, Array, Array]:
    """Sorted (keys, ranges, positions) from one entry per position; `rows` and `words` bound prefix and last.

    Gram and position are packed into one 64-bit word, so that one sort does it. Where they do not fit, prefixes and
    last tokens are first renumbered within the block, which keeps their order.
    """
    renumber = _bits(rows) + _bits(words) + _bits(length) > 64
    if renumber:
        prefix_names, prefix = _renumber(prefix)
        last_names, last = _renumber(last)
        rows, words = len(prefix_names), len(last_names)
    shift = np.uint64(_bits(words))
    gram = (prefix.astype(np.uint64) << shift) | last.astype(np.uint64)
    grams, gram_start, positions = _sorted_postings(gram, 1 << (_bits(rows) + _bits(words)), positions, length)
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
    else:  # more distinct pairs than a word can name: slower, but right
        order = np.argsort(gram, kind="stable")
        gram, positions = gram[order], positions[order]
    first = np.flatnonzero(np.append(True, gram[1:] != gram[:-1])[: len(gram)])
    return gram[first], np.append(first, len(gram)).astype(np.int32), positions


def _renumber(values: Array) -> tuple[Array, Array]:
    ordered = np.sort(values)
    names = ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
    return names, np.searchsorted(names, values)


def _bits(count: int) -> int:
    """How many bits hold the numbers 0, ..., count - 1."""
    return max(int(count) - 1, 1).bit_length()

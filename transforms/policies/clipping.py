"""Which of a user's grams count, and how much: the bound on what one user can change."""

import dataclasses
import functools

import numpy as np

from dpngram.transforms.blocks.candidates import CandidateBlock
from dpngram.transforms.blocks.columns import Array, run_starts
from dpngram.transforms.randomness.noise import UNIT
from dpngram.transforms.randomness.prf import Prf

__all__ = ["Pairs", "clip_grams", "distinct_pairs", "equal_weights", "sum_by_gram", "weight_table"]


@functools.lru_cache(maxsize=32)
def weight_table(cap: int) -> Array:
    """The weight floor(2^32 / sqrt(t)) of each of a user's t <= cap grams; entry 0 is unused.

    floor(sqrt(2^64 / t)) in integers: a floating-point guess, corrected by comparing squares. t * weight^2 <= 2^64.
    """
    t = np.arange(1, cap + 1, dtype=np.uint64)
    # 2^64 // t without 2^64: one more than (2^64 - 1) // t when t is a power of two.
    quotient = np.uint64(2**64 - 1) // t + ((t & (t - np.uint64(1))) == 0)
    root = np.floor(2.0**32 / np.sqrt(t.astype(np.float64))).astype(np.uint64)
    root[1:] -= root[1:] * root[1:] > quotient[1:]
    root[1:] += (root[1:] + np.uint64(1)) ** 2 <= quotient[1:]
    root[0] = UNIT  # t = 1, whose quotient does not fit
    return np.append(0, root.astype(np.int64))


def equal_weights(block: CandidateBlock, cap: int, clip: Prf) -> Array:
    """The weight of each gram of the block, summed over its users, in units of 2^-32.

    A user with t grams gives floor(2^32/sqrt(t)) to each; one with more than `cap` keeps `cap` of them.

    Privacy: t squares of floor(2^32/sqrt(t)) sum to at most 2^64, so the vector of a user has norm at most 1, exactly.
    """
    user, kept, given = clip_grams(block, cap, clip)
    weight = np.take(np.take(weight_table(cap), given), user)
    return sum_by_gram(block, weight * kept)


def clip_grams(block: CandidateBlock, cap: int | None, clip: Prf) -> tuple[Array, Array, Array]:
    """For each posting its user and whether it counts: once for each gram of the user, and for `cap` grams at most.

    A user with more than `cap` grams keeps those with the smallest keyed values of (user, gram): a uniform choice,
    the same in any order and on any worker. The third column is the number of grams that each user keeps.
    """
    user, first, given = distinct_pairs(block)
    if cap is not None and (given > cap).any():
        _clip(block, user, first, given, cap, clip)
        given = np.minimum(given, cap)
    return user, first, given


def distinct_pairs(block: CandidateBlock) -> tuple[Array, Array, Array]:
    """For each posting its user and whether it is the first of this user and gram; and the grams that each user has."""
    user, first = _first_postings(block)
    return user, first, np.bincount(user[first], minlength=len(block))


def _first_postings(block: CandidateBlock) -> tuple[Array, Array]:
    user = block.owners()
    # Within a gram positions ascend, and users with them: repeats are neighbours.
    first = run_starts(user)
    first[block.gram_start[:-1]] = True
    return user, first


@dataclasses.dataclass(frozen=True)
class Pairs:
    """The distinct (user, gram) pairs of a block, gram by gram."""

    user: Array  # the row of the user
    gram: Array  # the row of the gram
    start: Array  # int32, one per gram: its first pair

    @classmethod
    def of(cls, block: CandidateBlock) -> "Pairs":
        user, first = _first_postings(block)
        end = np.cumsum(first, dtype=np.int32)[block.gram_start[1:] - 1] if len(first) else np.zeros(0, np.int32)
        counts = np.diff(end, prepend=np.int32(0))
        gram = np.repeat(np.arange(len(end), dtype=np.int32), counts)
        return cls(user[first], gram, end - counts)

    def sum_by_gram(self, weight: Array) -> Array:
        """The sum over each gram's users."""
        return np.add.reduceat(weight, self.start) if len(weight) else np.zeros(0, np.int64)


def sum_by_gram(block: CandidateBlock, weight: Array) -> Array:
    """The sum over each gram's postings."""
    return np.add.reduceat(weight, block.gram_start[:-1]) if len(weight) else np.zeros(0, np.int64)


def _clip(block: CandidateBlock, user: Array, first: Array, given: Array, cap: int, clip: Prf) -> None:
    """For each user above the cap, keeps the `cap` grams with the smallest keyed draws; clears `first` of all others.

    User and draw are packed into 64 bits, so that one sort finds each user's last draw within the cap. If two draws
    agree in the bits that fit, at that very place, the sort is made again on all bits.
    """
    over = given > cap
    crowded = np.flatnonzero(first & np.take(over, user))
    owner = np.take(np.cumsum(over) - 1, user[crowded])
    gram = np.searchsorted(block.gram_start, crowded, side="right") - 1
    draw = clip.blocks(block.user[user[crowded]], block.grams[gram])[:, 0]
    bits = np.uint64(int(over.sum()).bit_length())
    packed = (owner.astype(np.uint64) << (np.uint64(64) - bits)) | (draw >> bits)
    ordered = np.sort(packed)
    last = np.cumsum(given[over]) - given[over] + cap - 1
    if (ordered[last] == ordered[last + 1]).any():
        packed = np.empty(len(draw), np.uint64)
        packed[np.lexsort((draw, owner))] = np.arange(len(draw), dtype=np.uint64)
        ordered = np.arange(len(draw), dtype=np.uint64)
    first[crowded[packed > ordered[last][owner]]] = False

"""What each user gives: which distinct grams, and how much weight to each."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np

from dpngram.transforms.candidates import CandidateBlock, open_candidates
from dpngram.transforms.columns import Block
from dpngram.transforms.histogram import CellBlock, SumCells, split_cells, weighted_cells
from dpngram.transforms.keyed import Prf
from dpngram.transforms.levels import EMPTY_LEVEL, Array, Level
from dpngram.transforms.noise import weight_table
from dpngram.transforms.rounds import Round, RoundDoFn

__all__ = ["ClipAndWeight", "clip_and_weight", "clip_grams", "distinct_pairs", "sum_by_gram"]


def clip_and_weight(block: CandidateBlock, cap: int, clip: Prf) -> Array:
    """The weight of each gram of the block, summed over its users, in units of 2^-32.

    A user with t grams gives floor(2^32/sqrt(t)) to each; one with more than `cap` keeps `cap` of them.
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
    user = block.owners()
    # Within a gram positions ascend, and users with them: repeats are neighbours.
    first = np.append(True, user[1:] != user[:-1])[: len(user)]
    first[block.gram_start[:-1]] = True
    return user, first, np.bincount(user[first], minlength=len(block))


def sum_by_gram(block: CandidateBlock, weight: Array) -> Array:
    """The sum over each gram's postings."""
    return np.add.reduceat(weight, block.gram_start[:-1]) if len(weight) else np.zeros(0, np.int64)


def _clip(block: CandidateBlock, user: Array, first: Array, given: Array, cap: int, clip: Prf) -> None:
    """Unmarks, among the postings that are the first of their user and gram, those beyond the `cap` smallest draws.

    User and draw are packed into one word, so that one sort finds each user's last draw within the cap. Should two
    draws agree in the bits that fit, at that very place, the sort is made again on all of them.
    """
    over = given > cap
    crowded = np.flatnonzero(first & np.take(over, user))
    owner = np.take(np.cumsum(over) - 1, user[crowded])
    gram = np.searchsorted(block.gram_start, crowded, side="right") - 1
    draw = clip.words(block.user[user[crowded]], block.grams[gram])[:, 0]
    bits = np.uint64(int(over.sum()).bit_length())
    packed = (owner.astype(np.uint64) << (np.uint64(64) - bits)) | (draw >> bits)
    ordered = np.sort(packed)
    last = np.cumsum(given[over]) - given[over] + cap - 1
    if (ordered[last] == ordered[last + 1]).any():
        packed = np.empty(len(draw), np.uint64)
        packed[np.lexsort((draw, owner))] = np.arange(len(draw), dtype=np.uint64)
        ordered = np.arange(len(draw), dtype=np.uint64)
    first[crowded[packed > ordered[last][owner]]] = False


class ClipAndWeight(beam.PTransform):
    """Users -> (users, (shard, CellBlock)): H_k, the weighted histogram of one round of a level.

    Level 1 takes UserBlocks, later levels the CandidateBlocks of `ValidityFilter`; the users that come out are those
    that went in, with what this round took from their budgets (policy `plus`). With `users_only` there is no
    histogram: for a round whose release is known already.

    Privacy: a user is in one block. Under `paper` it gives t <= Delta_k grams floor(2^32/sqrt(t)) each, so the
    user's vector has L2 norm at most 1, exactly. Under `plus` it pays for what it gives from its budget
    (budgets.py), so all its vectors together have norm at most 1. What it gives depends on its own text, its own
    keyed draws and earlier releases. Nothing is released here. Windowing: one histogram per window.
    """

    USERS, CELLS = "users", "cells"

    def __init__(
        self,
        round_: Round,
        binding: beam.PCollection[bytes],
        shards: int,
        released: beam.PCollection[Level] | None = None,
        *,
        users_only: bool = False,
    ) -> None:
        super().__init__()
        self._round, self._binding, self._shards, self._released = round_, binding, shards, released
        self._users_only = users_only

    def expand(self, users: beam.PCollection[Block]) -> Any:  # (PCollection[Block], PCollection[(int, CellBlock)])
        if self._users_only and not self._round.policy.keeps_budgets:
            return users, None
        weighed = users | "Weigh" >> beam.ParDo(
            _WeighDoFn(self._round, self._shards), **self._round.sides(self._binding, released=self._released)
        ).with_outputs(self.USERS, main=self.CELLS)  # (shard, cells of one block)
        weighed[self.CELLS].element_type = beam.typehints.Tuple[int, CellBlock]
        weighed[self.USERS].element_type = Block
        if self._users_only:
            return weighed[self.USERS], None
        histogram = weighed[self.CELLS] | "Sum" >> SumCells()  # (shard, cells of all users)
        if not self._round.policy.keeps_budgets:
            return users, histogram
        return weighed[self.USERS], histogram


class _WeighDoFn(RoundDoFn):
    def __init__(self, round_: Round, shards: int) -> None:
        super().__init__(round_)
        self._shards = shards

    def process(
        self,
        users: Block,
        window: Any = beam.DoFn.WindowParam,
        binding: bytes = b"",
        released: Any = EMPTY_LEVEL,
    ) -> Iterator[Any]:
        policy = self._round.policy
        block = policy.allow(users, self._round) if self._round.number == 0 else users
        candidates = open_candidates(block, released)  # type: ignore[arg-type]
        weight, users_after = policy.weigh(block, candidates, self._round, self.draws(window, binding)("clip"))
        cells = weighted_cells(candidates, weight)
        if len(cells):
            yield from split_cells(cells, self._shards)
        if users_after is not None:
            yield beam.pvalue.TaggedOutput(ClipAndWeight.USERS, users_after)

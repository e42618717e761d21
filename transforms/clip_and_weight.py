"""What each user gives: which distinct grams, and how much weight to each."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam

from dpngram.transforms.blocks.candidates import open_candidates
from dpngram.transforms.blocks.cells import CellBlock, split_cells, weighted_cells
from dpngram.transforms.blocks.columns import Block
from dpngram.transforms.blocks.levels import EMPTY_LEVEL, Level
from dpngram.transforms.keyed_dofn import RoundDoFn
from dpngram.transforms.policies.base import Round
from dpngram.transforms.sum_cells import SumCells

__all__ = ["ClipAndWeight"]


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

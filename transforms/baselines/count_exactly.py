"""Exact counts of users, posts and grams: NOT private, for public and research data only.

Nothing in the library builds these steps into a graph unless the caller asks for exact counts by name. What they
give must be kept apart from releases, and marked.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np

from dpngram.transforms.baselines.named_grams import NamedGrams, NamingDoFn, name_grams
from dpngram.transforms.beam_workarounds import with_element_type
from dpngram.transforms.blocks.candidates import CandidateBlock
from dpngram.transforms.blocks.cells import CellBlock, merge_cells, split_cells, weighted_cells
from dpngram.transforms.blocks.columns import Array, Block, register_block
from dpngram.transforms.blocks.levels import find_digests
from dpngram.transforms.blocks.users import UserBlock
from dpngram.transforms.policies.clipping import distinct_pairs, sum_by_gram
from dpngram.transforms.randomness.noise_key import Randomness

__all__ = ["CountExactly", "GramUsers", "Tally", "count_users", "tally_cells", "tally_sequences", "tally_users"]

# ((kind, run or -1, n or 0, K or 0), count); counts under one name add up.
Tally = tuple[tuple[str, int, int, int], int]


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class GramUsers(Block):
    """Grams of one length and how many users have them. Most grams have one user, so it is kept small."""

    digests: Array  # (grams, 2) uint64, sorted by their first halves
    users: Array  # int64

    def cells(self) -> CellBlock:
        return CellBlock(keys=self.digests[:, 0], weight=self.users, digests=self.digests)


def count_users(grams: CandidateBlock) -> Array:
    """How many users of a block have each of its grams."""
    _, first, _ = distinct_pairs(grams)
    return sum_by_gram(grams, first.astype(np.int64))


def tally_users(block: UserBlock) -> Iterator[Tally]:
    """Users and posts of a block. A post without a token is none."""
    yield ("users", -1, 0, 0), len(block)
    yield ("posts", -1, 0, 0), int((~block.occupied()).sum())


def tally_sequences(n: int, grams: CandidateBlock) -> Tally:
    """Sequences of n tokens, as often as they occur: the paper's tables count repeats."""
    return ("sequences", -1, n, 0), len(grams.positions)


def tally_cells(
    n: int, cells: CellBlock, released: Sequence[tuple[int, NamedGrams]], anonymity: Sequence[int]
) -> Iterator[Tally]:
    """Of the grams of length n: how many there are (`unique`), how many K users have (`held`), and for each run how
    many of its released grams are among them (`present`) and among those that K users have (`recovered`).
    """
    yield ("unique", -1, n, 0), len(cells)
    for k in anonymity:
        yield ("held", -1, n, k), int((cells.weight >= k).sum())
    for run, grams in released:
        rows = find_digests(cells.digests, grams.digests)
        users = cells.weight[rows[rows >= 0]]
        yield ("present", run, n, 0), len(users)
        for k in anonymity:
            yield ("recovered", run, n, k), int((users >= k).sum())


class CountExactly(beam.PTransform):
    """UserBlock -> tallies, summed by name. NOT private.

    `released` holds ((run, n), NamedGrams): the releases that are looked for among the exact grams. Users and posts
    are those of `everybody`; `counted` are the users whose sequences are counted.
    """

    def __init__(
        self,
        naming: Randomness,
        max_n: int,
        anonymity: Sequence[int],
        released: beam.PCollection[tuple[tuple[int, int], NamedGrams]],
        shards: int,
        everybody: beam.PCollection[UserBlock],
    ) -> None:
        super().__init__()
        self._naming, self._max_n, self._anonymity = naming, max_n, tuple(anonymity)
        self._released, self._shards, self._everybody = released, shards, everybody

    def expand(self, users: beam.PCollection[UserBlock]) -> beam.PCollection[Tally]:
        counted = users | "Count" >> beam.ParDo(_CountDoFn(self._naming, self._max_n, self._shards)).with_outputs(
            _CountDoFn.TALLIES, main=_CountDoFn.CELLS
        )
        tallies = counted[_CountDoFn.TALLIES]
        cells = with_element_type(
            counted[_CountDoFn.CELLS], beam.typehints.Tuple[beam.typehints.Tuple[int, int], GramUsers]
        )
        compared = (
            cells
            | "ByShard" >> beam.GroupByKey()  # (n, shard) -> grams of all blocks, with their numbers of users
            | "Compare" >> beam.FlatMap(_tally, self._anonymity, released=beam.pvalue.AsIter(self._released))
        )
        users_and_posts = self._everybody | "Users" >> beam.FlatMap(tally_users)
        return (tallies, users_and_posts, compared) | "All" >> beam.Flatten() | "Add" >> beam.CombinePerKey(sum)


class _CountDoFn(NamingDoFn):
    CELLS, TALLIES = "cells", "tallies"

    def __init__(self, naming: Randomness, max_n: int, shards: int) -> None:
        super().__init__(naming, max_n)
        self._shards = shards

    def process(self, block: UserBlock) -> Iterator[Any]:
        yield beam.pvalue.TaggedOutput(self.TALLIES, (("counted", -1, 0, 0), len(block)))
        for n, grams in enumerate(name_grams(block, self._prfs), 1):
            yield beam.pvalue.TaggedOutput(self.TALLIES, tally_sequences(n, grams))
            if len(grams.grams):
                for shard, cells in split_cells(weighted_cells(grams, count_users(grams)), self._shards):
                    yield (n, shard), GramUsers(digests=cells.digests, users=cells.weight)


def _tally(
    shard: tuple[tuple[int, int], Iterable[GramUsers]], anonymity: tuple[int, ...], released: Iterable[Any] = ()
) -> Iterator[Tally]:
    (n, _), parts = shard
    cells = merge_cells([part.cells() for part in parts])
    mine = [(run, grams) for (run, length), grams in released if length == n]
    yield from tally_cells(n, cells, mine, anonymity)

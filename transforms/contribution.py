"""What each user gives: at most Delta_k distinct grams, weights of L2 norm at most 1."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np

from dpngram.accounting import LevelPlan
from dpngram.transforms.candidates import CandidateBlock, all_tokens
from dpngram.transforms.columns import Block
from dpngram.transforms.histogram import CellBlock, MergeCells, split_cells, weighted_cells
from dpngram.transforms.keyed import Prf
from dpngram.transforms.keys import KeySource, Randomness
from dpngram.transforms.levels import Array
from dpngram.transforms.noise import weight_table
from dpngram.transforms.users import UserBlock
from dpngram.transforms.windows import window_name

__all__ = ["ClipAndWeight", "clip_and_weight"]


def clip_and_weight(block: CandidateBlock, cap: int, clip: Prf) -> Array:
    """The weight of each gram of the block, summed over its users, in units of 2^-32.

    A user with t grams gives floor(2^32/sqrt(t)) to each; one with more than `cap` keeps the `cap` grams with
    the smallest keyed values of (user, gram): a uniform choice, the same in any order and on any worker.
    """
    user = block.owners()
    # Within a gram positions ascend, and users with them: repeats are neighbours.
    first = np.append(True, user[1:] != user[:-1])[: len(user)]
    first[block.gram_start[:-1]] = True
    given = np.bincount(user[first], minlength=len(block))
    if (given > cap).any():
        _clip(block, user, first, given, cap, clip)
    weight = np.take(np.take(weight_table(cap), np.minimum(given, cap)), user)
    return np.add.reduceat(weight * first, block.gram_start[:-1]) if len(user) else np.zeros(0, np.int64)


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
    """UserBlock (level 1) or CandidateBlock -> (shard, CellBlock): H_k, the weighted histogram of the level.

    Privacy: a user is in one block and gives t <= Delta_k grams floor(2^32/sqrt(t)) each, so the user's vector has
    L2 norm at most 1, exactly. Nothing is released here. Windowing: one histogram per window.
    """

    def __init__(self, level: LevelPlan, randomness: Randomness, binding: beam.PCollection[bytes], shards: int) -> None:
        super().__init__()
        self._level, self._randomness, self._binding, self._shards = level, randomness, binding, shards

    def expand(self, users: beam.PCollection[Block]) -> beam.PCollection[tuple[int, CellBlock]]:
        return (
            users
            | "Weigh"
            >> beam.ParDo(
                _WeighDoFn(self._level, self._randomness, self._shards),
                binding=beam.pvalue.AsSingleton(self._binding),
            )  # (shard, cells of one block)
            | "Sum" >> beam.CombinePerKey(MergeCells())  # (shard, cells of all users)
        )


class _WeighDoFn(beam.DoFn):
    _source: KeySource

    def __init__(self, level: LevelPlan, randomness: Randomness, shards: int) -> None:
        self._level, self._randomness, self._shards = level, randomness, shards

    def setup(self) -> None:
        self._source = self._randomness.open()

    def process(
        self, users: Block, window: Any = beam.DoFn.WindowParam, binding: bytes = b""
    ) -> Iterator[tuple[int, CellBlock]]:
        # At level 1 every token is a candidate; sorting them here keeps what the level reads small.
        block: Any = all_tokens(users) if isinstance(users, UserBlock) else users
        clip = self._source.prf("clip", self._level.n, 0, window_name(window), binding)
        weight = clip_and_weight(block, self._level.max_contributions, clip)
        yield from split_cells(weighted_cells(block, weight), self._shards)

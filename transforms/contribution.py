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
    gram = np.repeat(np.arange(len(block.grams), dtype=np.int32), np.diff(block.gram_start))
    user = block.owners()
    # Within a gram positions ascend, and users with them: repeats are neighbours.
    first = np.append(True, (gram[1:] != gram[:-1]) | (user[1:] != user[:-1]))[: len(gram)]
    gram, user = gram[first], user[first]
    given = np.bincount(user, minlength=len(block))
    over = given > cap
    if over.any():
        kept = _smallest(block, gram, user, over, cap, clip)
        gram, user = gram[kept], user[kept]
        given = np.minimum(given, cap)
    weight = np.take(weight_table(cap), np.take(given, user))
    total = np.append(0, np.cumsum(weight))
    ends = np.searchsorted(gram, np.arange(len(block.grams) + 1))
    return np.diff(total[ends])


def _smallest(block: CandidateBlock, gram: Array, user: Array, over: Array, cap: int, clip: Prf) -> Array:
    """Which (gram, user) pairs stay: all of a user within the cap, else those with the `cap` smallest draws."""
    kept = np.ones(len(gram), bool)
    crowded = np.flatnonzero(np.take(over, user))
    owner = user[crowded]
    draw = clip.words(block.user[owner], block.grams[gram[crowded]])[:, 0]
    order = np.lexsort((draw, owner))
    place = np.arange(len(order))
    heads = np.append(True, owner[order][1:] != owner[order][:-1])
    rank = place - np.maximum.accumulate(np.where(heads, place, 0))
    kept[crowded[order[rank >= cap]]] = False
    return kept


class ClipAndWeight(beam.PTransform):
    """UserBlock (level 1) or CandidateBlock -> (shard, CellBlock): H_k, the weighted histogram of the level.

    Privacy: a user is in one block and gives t <= Delta_k grams floor(2^32/sqrt(t)) each, so the user's vector has
    L2 norm at most 1, exactly. Nothing is released here. Windowing: one histogram per window.
    """

    def __init__(
        self, level: LevelPlan, randomness: Randomness, fingerprint: beam.PCollection[bytes], shards: int
    ) -> None:
        super().__init__()
        self._level, self._randomness, self._fingerprint, self._shards = level, randomness, fingerprint, shards

    def expand(self, users: beam.PCollection[Block]) -> beam.PCollection[tuple[int, CellBlock]]:
        return (
            users
            | "Weigh"
            >> beam.ParDo(
                _WeighDoFn(self._level, self._randomness, self._shards),
                fingerprint=beam.pvalue.AsSingleton(self._fingerprint),
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
        self, users: Block, window: Any = beam.DoFn.WindowParam, fingerprint: bytes = b""
    ) -> Iterator[tuple[int, CellBlock]]:
        # At level 1 every token is a candidate; sorting them here keeps what the level reads small.
        block: Any = all_tokens(users) if isinstance(users, UserBlock) else users
        clip = self._source.prf("clip", self._level.n, 0, window_name(window), fingerprint)
        weight = clip_and_weight(block, self._level.max_contributions, clip)
        yield from split_cells(weighted_cells(block, weight), self._shards)

"""Pruning: which grams of a user's text belong to V_k."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np

from dpngram.transforms.blocks.candidates import CandidateBlock, make_postings
from dpngram.transforms.blocks.columns import Array, Block
from dpngram.transforms.blocks.levels import EMPTY_LEVEL, Level
from dpngram.transforms.blocks.users import UserBlock
from dpngram.transforms.policies.guide import guide
from dpngram.transforms.side_inputs import for_sides

__all__ = ["PRUNINGS", "ValidityFilter", "filter_valid"]

# both:   V_k = (S_1 x S_{k-1}) n (S_{k-1} x S_1), the paper's rule
# single: V_k = S_{k-1} x S_1
PRUNINGS = ("both", "single")


def filter_valid(block: UserBlock | CandidateBlock, previous: Level, pruning: str) -> CandidateBlock:
    """The postings of the k-grams that are valid, from the users or the postings of (k-1)-grams, and S_{k-1}.

    Every position learns which row of S_{k-1} starts there, if any. Under `both` a k-gram at p is valid exactly
    when p and p+1 both hold one; an empty position closes each post, so p and p+1 are of one post.
    """
    n = int(previous.n)
    at = _rows_at(block, previous)
    words = np.zeros(0, np.int32)
    if pruning == "both":
        held = at >= 0
        positions = np.flatnonzero(held[:-1] & held[1:])
        last = np.take(previous.last, np.take(at, positions + 1))
    else:
        words = at if isinstance(block, UserBlock) else block.words
        positions = np.flatnonzero(at[: len(at) - n] >= 0)
        positions = positions[words[positions + n] >= 0]
        last = words[positions + n]
    grams, gram_start, starts = make_postings(
        np.take(at, positions),
        last,
        positions.astype(np.int32),
        rows=len(previous),
        words=int(previous.words),
        length=len(at),
    )
    factor = np.zeros(0, np.uint32)
    if len(previous.left):  # policy plus: the rows of prefix and suffix are at hand, in each gram's first place
        place = starts[gram_start[:-1]]
        factor = guide(previous, np.take(at, place), np.take(at, place + 1))
    return CandidateBlock(
        user=block.user,
        user_start=block.user_start,
        grams=grams,
        gram_start=gram_start,
        positions=starts,
        words=words,
        guide=factor,
        budget=block.budget,
        allowance=block.allowance,
        digests=np.zeros((0, 2), np.uint64),
        token_offsets=np.zeros(1, np.int64),
        token_bytes=np.zeros(0, np.uint8),
    )


def _rows_at(block: UserBlock | CandidateBlock, previous: Level) -> Array:
    """The row of S_{k-1} that starts at each position, -1 where there is none."""
    if isinstance(block, UserBlock):
        return np.take(np.append(previous.find_tokens(block.digests), np.int32(-1)), block.ids)
    at = np.full(block.length, -1, np.int32)
    at[block.positions] = np.repeat(previous.find(block.grams), np.diff(block.gram_start))
    return at


class ValidityFilter(beam.PTransform):
    """Users -> CandidateBlock: what each user may contribute at level k.

    Level 2 takes the UserBlocks, with S_1; level k > 2 the candidates of level k-1, with S_{k-1}. Level 1 has no
    filter: every token is a candidate.

    Privacy: S_{k-1} is public, so what a user may contribute is a function of the user's own text and of earlier
    releases; nothing is released here. Windowing: S_{k-1} of the same window; a window without one has an empty one.
    """

    def __init__(self, previous: beam.PCollection[Level], pruning: str = "both") -> None:
        super().__init__()
        self._previous, self._pruning = previous, pruning

    def expand(self, users: beam.PCollection[Block]) -> beam.PCollection[CandidateBlock]:
        side = beam.pvalue.AsSingleton(for_sides(self._previous, "Previous"), default_value=EMPTY_LEVEL)
        return users | "Prune" >> beam.ParDo(_PruneDoFn(self._pruning), previous=side)


class _PruneDoFn(beam.DoFn):
    def __init__(self, pruning: str) -> None:
        self._pruning = pruning

    def process(self, block: Block, previous: Any = None) -> Iterator[CandidateBlock]:
        if len(previous):  # an empty S_{k-1} makes V_k empty: no user has anything to give
            pruned = filter_valid(block, previous, self._pruning)  # type: ignore[arg-type]
            if len(pruned.grams):
                yield pruned

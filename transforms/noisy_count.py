"""NoisyCount: the end of a level that counts. One noisy number decides how far down the ranking the release goes."""

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam

from dpngram.transforms.beam_workarounds import gather
from dpngram.transforms.blocks.cells import CellBlock
from dpngram.transforms.blocks.levels import EMPTY_LEVEL, Level
from dpngram.transforms.blocks.pieces import Piece
from dpngram.transforms.blocks.surveys import EMPTY_SURVEY, Survey
from dpngram.transforms.checkpoints import EndDoFn
from dpngram.transforms.context import ReleaseContext
from dpngram.transforms.messages import Message
from dpngram.transforms.noisy_threshold import claim_round
from dpngram.transforms.policies.plus import PlusCount

__all__ = ["NoisyCount"]


class NoisyCount(beam.PTransform):
    """(shard, CellBlock) -> Piece: S_k in pieces, at least one for each window with users, also if it is empty.

    The cells say how much of each gram its users vouch for. A gram counts for min(1, that sum), and the sum over all
    grams is the count.

    Privacy: the exact count is private; the noise is drawn in every level that has a count, also if nobody vouches for
    anything. `PlusCount` bounds what a user can move. Windowing: one count per window.

    Args:
        policy: the round.
        context: the key, S_{k-1}, and the survey after the second look.
    """

    def __init__(self, policy: PlusCount, context: ReleaseContext) -> None:
        super().__init__()
        self._policy, self._context = policy, context

    def expand(self, histogram: beam.PCollection[tuple[int, CellBlock]]) -> beam.PCollection[Piece]:
        claim_round(histogram.pipeline, self._context.randomness, self._policy)
        counts = histogram | "Count" >> beam.Map(_count, policy=self._policy).with_output_types(int)  # of each shard
        every = gather(counts, self._context.start, 0, "Counts")
        return every | "Release" >> beam.ParDo(
            _ReleaseDoFn(self._policy, self._context),
            **self._context.sides("binding", "previous", "earlier"),
        ).with_output_types(Piece)


def _count(shard: tuple[int, CellBlock], policy: PlusCount) -> int:
    return policy.count(shard[1])


class _ReleaseDoFn(EndDoFn):
    _policy: PlusCount

    def process(
        self,
        counts: Iterable[int],
        window: Any = beam.DoFn.WindowParam,
        binding: bytes = b"",
        previous: Level = EMPTY_LEVEL,
        earlier: Survey = EMPTY_SURVEY,
    ) -> Iterator[Piece]:
        every = list(counts)
        if not every:
            raise ValueError(Message.PIECES_MISSING.format())
        level = EMPTY_LEVEL
        if len(earlier):
            draw = self.draws(window, binding, earlier.name)
            level = self._policy.release(sum(every), previous, earlier, draw("count"))
        past = earlier.name or previous.name
        yield from self.hand_on(level if len(level) else EMPTY_LEVEL, binding, past)

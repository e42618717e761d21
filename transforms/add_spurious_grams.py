"""The end of a round: zero cells join the noisy ones, thresholds are settled, and what passes is S_k so far."""

from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpngram.transforms.blocks.columns import Array, binary_array, split_binary
from dpngram.transforms.blocks.levels import EMPTY_LEVEL, Level
from dpngram.transforms.blocks.parts import ReleasedPart, name_zero_cells
from dpngram.transforms.keyed_dofn import RoundDoFn
from dpngram.transforms.messages import Message
from dpngram.transforms.policies.base import Draw, Round
from dpngram.transforms.policies.cutoffs import Cutoffs

__all__ = ["AddSpuriousGrams", "CollectTokens", "collect_tokens", "complete_level"]


def complete_level(parts: Sequence[ReleasedPart], previous: Level, released: Level, round_: Round, draw: Draw) -> Level:
    """S_k: what earlier rounds released, and every cell of V_k, users' or zero, that reaches its threshold.

    Zero cells above the floor are drawn by the same walk as in every shard of `threshold_cells`, which told those
    that some user had. Their noisy values follow the law of a zero cell that reaches its floor. Should processors
    disagree about a logarithm, and so about the walk, the run stops: a gram might else be in S_k twice.
    """
    cut = round_.policy.cut(round_, previous, released)
    zero, stratum = cut.zero_cells(draw("zero cells"))
    if any(int(part.walk) != int(name_zero_cells(zero)) for part in parts):
        raise ValueError(Message.ZERO_CELLS_DIFFER.format())
    taken = np.concatenate([released.keys, *(part.taken for part in parts)])
    kept = ~np.isin(zero, taken)
    zero, stratum = zero[kept], stratum[kept]
    below = np.zeros(len(cut.size), np.int64)
    if cut.tallied:
        present = sum((part.present for part in parts), below)
        above = np.bincount(stratum, minlength=len(cut.size))
        zeros_below = cut.zeros_below(present, above, draw("zero cells below"))
        below = sum((part.below for part in parts), zeros_below)
    zero_noisy = cut.noise.zero_cells(draw("zero weights").blocks(zero, 0), cut.floor[stratum])
    keys = np.concatenate([zero, *(part.keys for part in parts)])
    noisy = np.concatenate([zero_noisy, *(part.noisy for part in parts)])
    stratum = cut.strata.of(keys)
    least = round_.policy.thresholds(cut, below, stratum, noisy)
    passed = noisy >= least[stratum]
    keys, noisy, stratum = keys[passed], noisy[passed], stratum[passed]
    weight = round_.policy.publish(noisy, keys, previous, round_)
    rho = _lowest(released, cut, least[np.unique(stratum)])
    keys, weight = np.append(released.keys, keys), np.append(released.weight, weight)
    order = np.argsort(keys)
    level = previous.extend(keys[order], weight[order], cut.noise.grid, rho, round_.pruning)
    return round_.policy.finish(level, previous)


def collect_tokens(parts: Sequence[ReleasedPart], released: Level, round_: Round) -> Level:
    """S_1: the released tokens of all shards and rounds, sorted by their bytes. Level 1 has no spurious tokens."""
    cut = round_.policy.cut(round_, EMPTY_LEVEL, released)
    tokens = pa.chunked_array(
        [
            binary_array(released.token_offsets, released.token_bytes),
            *(binary_array(part.token_offsets, part.token_bytes) for part in parts),
        ]
    ).combine_chunks()
    order = pc.array_sort_indices(tokens).to_numpy()
    offsets, data = split_binary(tokens.take(pa.array(order)))
    known = np.empty_like(released.digests)
    known[released.digest_rows] = released.digests
    digests = np.concatenate([known, *(part.digests.reshape(-1, 2) for part in parts)])[order]
    noisy = np.concatenate([np.zeros(0, np.int64), *(part.noisy for part in parts)])
    fresh = round_.policy.publish(noisy, np.zeros(0, np.uint64), EMPTY_LEVEL, round_)
    weight = np.append(released.weight, fresh)[order]
    rho = _lowest(released, cut, cut.floor)
    first = Level.first(offsets, data, digests, weight, cut.noise.grid, rho)
    return round_.policy.finish(first, EMPTY_LEVEL)


def _lowest(released: Level, cut: Cutoffs, least: Array) -> float:
    """The lowest threshold of the rounds so far: one fixed in advance, or chosen ones that something reached."""
    mine = [float(value) * cut.noise.grid for value in least] if cut.rho is None else [cut.rho]
    return min([*mine, float(released.rho)] if len(released) else mine, default=float("inf"))


class CollectTokens(beam.PTransform):
    """ReleasedPart of level 1 -> S_1 so far, one element, or none if nothing was released.

    The binding's one element of a window is what starts it: earlier rounds' tokens go on even if this one has no part.
    Privacy: post-processing. A window in which nothing is released leaves nothing behind.
    """

    def __init__(
        self, round_: Round, binding: beam.PCollection[bytes], released: beam.PCollection[Level] | None = None
    ) -> None:
        super().__init__()
        self._round, self._binding, self._released = round_, binding, released

    def expand(self, parts: beam.PCollection[ReleasedPart]) -> beam.PCollection[Level]:
        sides = self._round.sides(None, released=self._released)
        return self._binding | "Sort" >> beam.ParDo(
            _CollectDoFn(self._round), parts=beam.pvalue.AsIter(parts), **sides
        ).with_output_types(Level)


class _CollectDoFn(beam.DoFn):
    def __init__(self, round_: Round) -> None:
        self._round = round_

    def process(self, _binding: bytes, parts: Any = (), released: Any = EMPTY_LEVEL) -> Iterator[Level]:
        first = collect_tokens(list(parts), released, self._round)
        if len(first):
            yield first


class AddSpuriousGrams(beam.PTransform):
    """S_{k-1}, with the ReleasedParts of level k at its side -> S_k so far, one element, or none if it is empty.

    Privacy: Algorithm 1 draws noise for all of V_k, also for grams that nobody has; leaving those out would tell
    released grams apart from impossible ones. They are added at the end of *every* level: S_k with them is what
    level k+1 prunes with, and it must be the released set. Their weights follow the law of a released zero cell.
    Thresholds (policy `plus`) are chosen from the noisy values of all of V_k, zero cells included: post-processing.
    Sorted together, nothing tells the two kinds apart. Windowing: S_{k-1} and parts of the same window.
    """

    def __init__(
        self,
        round_: Round,
        binding: beam.PCollection[bytes],
        parts: beam.PCollection[ReleasedPart],
        released: beam.PCollection[Level] | None = None,
    ) -> None:
        super().__init__()
        self._round, self._binding, self._parts, self._released = round_, binding, parts, released

    def expand(self, previous: beam.PCollection[Level]) -> beam.PCollection[Level]:
        sides = self._round.sides(self._binding, released=self._released)
        return previous | "Complete" >> beam.ParDo(
            _CompleteDoFn(self._round), parts=beam.pvalue.AsIter(self._parts), **sides
        )


class _CompleteDoFn(RoundDoFn):
    def process(
        self,
        previous: Level,
        window: Any = beam.DoFn.WindowParam,
        binding: bytes = b"",
        parts: Any = (),
        released: Any = EMPTY_LEVEL,
    ) -> Iterator[Level]:
        level = complete_level(list(parts), previous, released, self._round, self.draws(window, binding))
        if len(level):
            yield level

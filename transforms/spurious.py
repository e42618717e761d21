"""The end of a level: spurious grams join the released ones, and together they are S_k."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpngram.accounting import ExtractionPlan
from dpngram.transforms.columns import binary_array, split_binary
from dpngram.transforms.keyed import Prf
from dpngram.transforms.keys import KeySource, Randomness
from dpngram.transforms.levels import Level
from dpngram.transforms.noise import NoisyCut, spurious_keys
from dpngram.transforms.threshold import ReleasedPart, level_cut
from dpngram.transforms.windows import window_name

__all__ = ["AddSpuriousGrams", "CollectTokens", "add_spurious", "collect_tokens"]


def add_spurious(
    parts: Sequence[ReleasedPart], previous: Level, cut: NoisyCut, walk: Prf, weigh: Prf, pruning: str
) -> Level:
    """S_k: the released cells of all shards, and each zero cell of V_k with probability Phi(-rho_k/sigma_k).

    The walk gives the same keys here as in every shard of `release_cells`, which told those that some user had.
    """
    zero = spurious_keys(previous, cut.zero_probability, walk, pruning)
    taken = np.concatenate([np.zeros(0, np.uint64), *(part.taken for part in parts)])
    zero = np.setdiff1d(zero, taken, assume_unique=True)
    keys = np.concatenate([zero, *(part.keys for part in parts)])
    weight = np.concatenate([cut.zero_cells(weigh.words(zero, 0)), *(part.weight for part in parts)])
    order = np.argsort(keys)
    return previous.extend(keys[order], weight[order], cut.grid, pruning)


def collect_tokens(parts: Sequence[ReleasedPart], cut: NoisyCut) -> Level:
    """S_1: the released tokens of all shards, sorted by their bytes. Level 1 has no spurious tokens."""
    tokens = pa.chunked_array([binary_array(part.token_offsets, part.token_bytes) for part in parts]).combine_chunks()
    order = pc.array_sort_indices(tokens).to_numpy()
    offsets, data = split_binary(tokens.take(pa.array(order)))
    digests = np.concatenate([part.digests.reshape(-1, 2) for part in parts])[order]
    weight = np.concatenate([part.weight for part in parts])[order]
    return Level.first(offsets, data, digests, weight, cut.grid)


class CollectTokens(beam.PTransform):
    """ReleasedPart of level 1 -> S_1, one element, or none if nothing was released.

    Privacy: post-processing. A window in which nothing is released leaves nothing behind.
    """

    def __init__(self, plan: ExtractionPlan) -> None:
        super().__init__()
        self._plan = plan

    def expand(self, parts: beam.PCollection[ReleasedPart]) -> beam.PCollection[Level]:
        return (
            parts
            | "Gather" >> beam.WithKeys(0).with_output_types(tuple[int, ReleasedPart])
            | "Together" >> beam.GroupByKey()
            | "Sort" >> beam.ParDo(_CollectDoFn(self._plan))
        )


class _CollectDoFn(beam.DoFn):
    def __init__(self, plan: ExtractionPlan) -> None:
        self._plan = plan

    def process(self, gathered: tuple[int, Iterable[ReleasedPart]]) -> Iterator[Level]:
        level = self._plan.level(1)
        first = collect_tokens(list(gathered[1]), NoisyCut(level.sigma, self._plan.threshold(1, 0, 0)))
        if len(first):
            yield first


class AddSpuriousGrams(beam.PTransform):
    """S_{k-1}, with the ReleasedParts of level k at its side -> S_k, one element, or none if it is empty.

    Privacy: Algorithm 1 draws noise for all of V_k, also for grams that nobody has; leaving those out would tell
    released grams apart from impossible ones. They are added at the end of *every* level: S_k with them is what
    level k+1 prunes with, and it must be the released set. Their weights follow the law of a released zero cell.
    Sorted together, nothing tells the two kinds apart. Windowing: S_{k-1} and parts of the same window.
    """

    def __init__(
        self,
        plan: ExtractionPlan,
        n: int,
        randomness: Randomness,
        binding: beam.PCollection[bytes],
        parts: beam.PCollection[ReleasedPart],
        pruning: str = "both",
    ) -> None:
        super().__init__()
        self._plan, self._n, self._randomness, self._pruning = plan, n, randomness, pruning
        self._binding, self._parts = binding, parts

    def expand(self, previous: beam.PCollection[Level]) -> beam.PCollection[Level]:
        return previous | "Complete" >> beam.ParDo(
            _CompleteDoFn(self._plan, self._n, self._randomness, self._pruning),
            binding=beam.pvalue.AsSingleton(self._binding),
            parts=beam.pvalue.AsIter(self._parts),
        )


class _CompleteDoFn(beam.DoFn):
    _source: KeySource

    def __init__(self, plan: ExtractionPlan, n: int, randomness: Randomness, pruning: str) -> None:
        self._plan, self._n, self._randomness, self._pruning = plan, n, randomness, pruning

    def setup(self) -> None:
        self._source = self._randomness.open()

    def process(
        self,
        previous: Level,
        window: Any = beam.DoFn.WindowParam,
        binding: bytes = b"",
        parts: Any = (),
    ) -> Iterator[Level]:
        name = window_name(window)
        level = add_spurious(
            list(parts),
            previous,
            level_cut(self._plan, self._n, previous, self._pruning),
            self._source.prf("zero cells", self._n, 0, name, binding),
            self._source.prf("zero weights", self._n, 0, name, binding),
            self._pruning,
        )
        if len(level):
            yield level

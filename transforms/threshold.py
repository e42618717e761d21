"""Noise on the histogram, and what exceeds the threshold."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np

from dpngram.accounting import ExtractionPlan
from dpngram.transforms.columns import Block, register_block
from dpngram.transforms.histogram import CellBlock
from dpngram.transforms.keyed import Prf
from dpngram.transforms.keys import KeySource, Randomness
from dpngram.transforms.levels import EMPTY_LEVEL, Array, Level
from dpngram.transforms.noise import NoisyCut, spurious_keys
from dpngram.transforms.windows import window_name

__all__ = ["NoisyThreshold", "ReleasedPart", "level_cut", "release_cells"]


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleasedPart(Block):
    """What one shard releases, and which drawn zero cells it found to be no zero cells."""

    keys: Array  # uint64, sorted
    weight: Array  # int64: noisy, in grid steps
    digests: Array  # level 1: (cells, 2) uint64
    token_offsets: Array
    token_bytes: Array
    taken: Array  # uint64: drawn as zero cells, but some user contributed them. Private; dropped in the next step.


def level_cut(plan: ExtractionPlan, n: int, previous: Level, pruning: str) -> NoisyCut:
    """The noise and threshold of level n: a function of the plan and of what is public."""
    return NoisyCut(plan.level(n).sigma, plan.threshold(n, len(previous), previous.valid(pruning)))


def release_cells(cells: CellBlock, cut: NoisyCut, noise: Prf, zero_cells: Array) -> ReleasedPart:
    """Noise for every cell, keyed by the gram; what reaches the threshold is released with its noisy weight."""
    words = noise.encrypt(cells.digests) if cells.has_tokens else noise.words(cells.keys, 0)
    rows = cut.likely(cells.weight, words)
    noisy = cut.noisy(cells.weight[rows], words[rows])
    rows, noisy = rows[noisy >= cut.least], noisy[noisy >= cut.least]
    released = cells.take(rows)
    return ReleasedPart(
        keys=released.keys,
        weight=noisy,
        digests=released.digests,
        token_offsets=released.token_offsets,
        token_bytes=released.token_bytes,
        taken=zero_cells[_contains(cells.keys, zero_cells)],
    )


def _contains(keys: Array, wanted: Array) -> Array:
    """Which of the wanted keys are among these sorted ones."""
    at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    return keys[at] == wanted if len(keys) else np.zeros(len(wanted), bool)


class NoisyThreshold(beam.PTransform):
    """(shard, CellBlock) -> ReleasedPart: the cells of H_k whose noisy weight reaches rho_k.

    Privacy: the Gaussian mechanism of sigma_k on a histogram of L2 sensitivity 1, over a domain that is a function of
    earlier releases (V_k), and for level 1 the threshold rho_1 that hides tokens of a single user (the theorem of
    the paper; docs/privacy.md). The noise of a cell is a keyed function of the gram, so a bundle run twice
    gives the same release. Used alone: `taken` of the parts is private, and goes to `AddSpuriousGrams` only.
    Windowing: noise, S_{k-1} and rho_k are of the window.
    """

    def __init__(
        self,
        plan: ExtractionPlan,
        n: int,
        randomness: Randomness,
        binding: beam.PCollection[bytes],
        previous: beam.PCollection[Level] | None = None,
        pruning: str = "both",
    ) -> None:
        super().__init__()
        self._plan, self._n, self._randomness, self._pruning = plan, n, randomness, pruning
        self._binding, self._previous = binding, previous

    def expand(self, histogram: beam.PCollection[tuple[int, CellBlock]]) -> beam.PCollection[ReleasedPart]:
        sides = {"binding": beam.pvalue.AsSingleton(self._binding)}
        if self._previous is not None:
            sides["previous"] = beam.pvalue.AsSingleton(self._previous, default_value=EMPTY_LEVEL)
        release = _ReleaseDoFn(self._plan, self._n, self._randomness, self._pruning)
        return histogram | "Release" >> beam.ParDo(release, **sides)


class _ReleaseDoFn(beam.DoFn):
    _source: KeySource

    def __init__(self, plan: ExtractionPlan, n: int, randomness: Randomness, pruning: str) -> None:
        self._plan, self._n, self._randomness, self._pruning = plan, n, randomness, pruning

    def setup(self) -> None:
        self._source = self._randomness.open()

    def process(
        self,
        shard: tuple[int, CellBlock],
        window: Any = beam.DoFn.WindowParam,
        binding: bytes = b"",
        previous: Any = EMPTY_LEVEL,
    ) -> Iterator[ReleasedPart]:
        name = window_name(window)
        cut = level_cut(self._plan, self._n, previous, self._pruning)
        walk = self._source.prf("zero cells", self._n, 0, name, binding)
        zero_cells = spurious_keys(previous, cut.zero_probability, walk, self._pruning)
        noise = self._source.prf("noise", self._n, 0, name, binding)
        yield release_cells(shard[1], cut, noise, zero_cells)

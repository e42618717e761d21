"""Noise on the histogram, and what reaches the threshold."""

import operator
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np

from dpngram.transforms.blocks.cells import CellBlock
from dpngram.transforms.blocks.columns import Array
from dpngram.transforms.blocks.levels import EMPTY_LEVEL, Level
from dpngram.transforms.blocks.parts import ReleasedPart, name_zero_cells
from dpngram.transforms.keyed_dofn import RoundDoFn
from dpngram.transforms.policies.base import Draw, Round
from dpngram.transforms.policies.cutoffs import Cutoffs

__all__ = ["NoisyThreshold", "threshold_cells"]


def threshold_cells(cells: CellBlock, cut: Cutoffs, draw: Draw, zero_cells: Array | None = None) -> ReleasedPart:
    """Noise for every cell, keyed by the gram; what reaches its floor goes on with its noisy weight.

    `zero_cells`: those of this cut and draw, where they are at hand; they are the same for all shards.
    """
    noise, floor = cut.noise, cut.floor
    prf = draw("noise")
    words = prf.encrypt(cells.digests) if cells.has_digests else prf.blocks(cells.keys, 0)
    present = below = np.zeros(0, np.int64)
    if cut.tallied:
        noisy = noise.noisy(cells.weight, words)
        stratum = cut.strata.of(cells.keys)
        present = np.bincount(stratum, minlength=len(floor))
        below = np.bincount(stratum[noisy < 0], minlength=len(floor))
        rows = np.flatnonzero(noisy >= floor[stratum])
        noisy = noisy[rows]
    else:
        least = int(floor[0])
        rows = noise.likely(cells.weight, words, least)
        noisy = noise.noisy(cells.weight[rows], words[rows])
        rows, noisy = rows[noisy >= least], noisy[noisy >= least]
    reached = cells.take(rows)
    if zero_cells is None:
        zero_cells, _ = cut.zero_cells(draw("zero cells"))
    return ReleasedPart(
        keys=reached.keys,
        noisy=noisy,
        digests=reached.digests,
        token_offsets=reached.token_offsets,
        token_bytes=reached.token_bytes,
        taken=zero_cells[_contains(cells.keys, zero_cells)],
        walk=name_zero_cells(zero_cells),
        present=present,
        below=below,
    )


def _contains(keys: Array, wanted: Array) -> Array:
    """Which of the wanted keys are among these sorted ones."""
    at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    return keys[at] == wanted if len(keys) else np.zeros(len(wanted), bool)


class NoisyThreshold(beam.PTransform):
    """(shard, CellBlock) -> ReleasedPart: the cells of H_k whose noisy weight reaches the floor of their stratum.

    Under `paper` there is one stratum, and its floor is the threshold rho_k. Under `plus`, from level 2 on, the parts
    also tally their cells by stratum, and `AddSpuriousGrams` settles the thresholds when it has all parts.

    Privacy: Gaussian noise on every cell of a histogram whose users are bounded by `ClipAndWeight`, over a domain
    that is a function of earlier releases (V_k), and for level 1 the threshold that hides tokens of a single user
    (the theorem of the paper; docs/privacy.md). The noise of a cell is a keyed function of the gram, so a bundle run
    twice gives the same release. Used alone: the parts are private, and go to `AddSpuriousGrams` only.
    Windowing: noise, S_{k-1} and floors are of the window.
    """

    def __init__(
        self,
        round_: Round,
        binding: beam.PCollection[bytes],
        previous: beam.PCollection[Level] | None = None,
        released: beam.PCollection[Level] | None = None,
    ) -> None:
        super().__init__()
        self._round, self._binding, self._previous, self._released = round_, binding, previous, released

    def expand(self, histogram: beam.PCollection[tuple[int, CellBlock]]) -> beam.PCollection[ReleasedPart]:
        sides = self._round.sides(self._binding, previous=self._previous, released=self._released)
        return histogram | "Release" >> beam.ParDo(_ReleaseDoFn(self._round), **sides)


class _ReleaseDoFn(RoundDoFn):
    """Makes cut and zero cells once for all shards of a bundle that share window and levels; keeps them no longer."""

    _names: Any
    _levels: tuple[Any, ...]
    _cut: Any
    _zero_cells: Any

    def start_bundle(self) -> None:
        self._forget()

    def process(
        self,
        shard: tuple[int, CellBlock],
        window: Any = beam.DoFn.WindowParam,
        binding: bytes = b"",
        previous: Any = EMPTY_LEVEL,
        released: Any = EMPTY_LEVEL,
    ) -> Iterator[ReleasedPart]:
        draw = self.draws(window, binding)
        names, levels = (window, binding), (previous, released)
        if self._names != names or any(map(operator.is_not, self._levels, levels)):
            self._forget()
            self._cut = self._round.policy.cut(self._round, previous, released)
            self._zero_cells, _ = self._cut.zero_cells(draw("zero cells"))
            self._names, self._levels = names, levels
        yield threshold_cells(shard[1], self._cut, draw, self._zero_cells)

    def finish_bundle(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._names, self._levels, self._cut, self._zero_cells = None, (), None, None

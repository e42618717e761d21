"""NoisyThreshold: noise on the histogram, and what reaches the floor."""

import dataclasses
import weakref
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np

from dpngram.accounting import ParameterError
from dpngram.transforms.blocks.cells import CellBlock
from dpngram.transforms.blocks.columns import Array, find_keys
from dpngram.transforms.blocks.levels import EMPTY_LEVEL, Level
from dpngram.transforms.blocks.parts import ReleasedPart, name_zero_cells, split_part
from dpngram.transforms.context import ReleaseContext
from dpngram.transforms.keyed_dofn import RoundDoFn
from dpngram.transforms.policies.base import RoundPolicy
from dpngram.transforms.policies.cutoffs import GROUPS, Cutoffs
from dpngram.transforms.randomness.noise_key import Draw, Randomness

__all__ = ["NoisyThreshold", "claim_round", "threshold_cells"]


class NoisyThreshold(beam.PTransform):
    """(shard, CellBlock) -> ReleasedPart: the cells of H_k whose noisy weight reaches the floor of their stratum.

    Under `paper` there is one stratum, and its floor is the threshold rho_k. Under `plus`, from level 2 on, the parts
    also tally their cells by stratum, and `AddSpuriousGrams` chooses the thresholds when it has all parts.

    Every shard also draws the candidate spurious grams of the whole level. The draw is keyed, so all shards and
    `AddSpuriousGrams` get the same set. Each shard reports which of them some user really has, so that nothing needs
    to be joined.

    Privacy: Gaussian noise on every cell of a histogram whose users are bounded by `ClipAndWeight`, over a domain
    that is a function of earlier releases (V_k), and for level 1 the threshold that hides tokens of a single user
    (the theorem of the paper; docs/privacy.md). The noise of a cell is a keyed function of the gram, so a bundle run
    twice gives the same release. The parts are private, and must go to `AddSpuriousGrams`.
    Windowing: noise, S_{k-1} and floors are of the window.

    Args:
        policy: the round.
        context: the key, S_{k-1}, and what earlier rounds of this level have released.
    """

    def __init__(self, policy: RoundPolicy, context: ReleaseContext) -> None:
        super().__init__()
        self._policy, self._context = policy, context

    def expand(self, histogram: beam.PCollection[tuple[int, CellBlock]]) -> beam.PCollection[ReleasedPart]:
        claim_round(histogram.pipeline, self._context.randomness, self._policy)
        return histogram | "Release" >> beam.ParDo(
            _ThresholdDoFn(self._policy, self._context.randomness),
            **self._context.sides("binding", "previous", "earlier"),
        )


# The rounds of each graph that have noise already.
_CLAIMED: "weakref.WeakKeyDictionary[beam.Pipeline, set[tuple[str, str, str, int, int]]]" = weakref.WeakKeyDictionary()


def claim_round(pipeline: beam.Pipeline, randomness: Randomness, policy: RoundPolicy) -> None:
    """An error if the graph has a round with the same noise already.

    Privacy: noise is named by the key, the settings, the place in the graph, the level and the round. Two histograms
    that share all of these share their noise, and the difference of what they release is exact. The key is left out
    here: it may have several names, and two names of one key are one key.
    """
    claimed = _CLAIMED.setdefault(pipeline, set())
    name = (randomness.release, randomness.application, randomness.settings, policy.n, policy.number)
    if name in claimed:
        raise ParameterError(
            f"level {policy.n}, round {policy.number + 1} is in this graph already, with the same randomness: both "
            "would have the same noise. Make another randomness, in a transform with another label."
        )
    claimed.add(name)


def threshold_cells(
    cells: CellBlock, cutoffs: Cutoffs, draw: Draw, zero_cells: Array | None = None, past: int = 0
) -> ReleasedPart:
    """Noise for every cell, keyed by the gram; what reaches its floor goes on with its noisy weight.

    Args:
        cells: one shard of the histogram.
        cutoffs: of this round.
        draw: the keyed functions of this round.
        zero_cells: those of these cutoffs and this draw, where they are at hand; the same for all shards.
        past: names what the round goes on from.
    """
    noise, floor = cutoffs.noise, cutoffs.floor
    prf = draw("noise")
    bits = prf.encrypt(cells.digests) if cells.has_digests else prf.blocks(cells.keys, 0)
    present: Array = np.zeros(0, np.int64)
    below: Array = np.zeros((0, 0), np.int64)
    if cutoffs.rho is None:
        noisy = noise.noisy(cells.weight, bits, prf)
        stratum, least = cutoffs.floors_of(cells.keys)
        reached = noisy >= least
        if cutoffs.tallied:
            present = np.bincount(stratum, minlength=len(floor))
            group = stratum[~reached] * GROUPS + cutoffs.groups_of(noisy[~reached])
            below = np.bincount(group, minlength=len(floor) * GROUPS).reshape(-1, GROUPS)
        rows = np.flatnonzero(reached)
        noisy = noisy[rows]
    else:
        # Most cells are far below the one threshold: compute quantiles only for those that may reach it.
        rho = int(floor[0])
        rows = noise.likely(cells.weight, bits, rho)
        noisy = noise.noisy(cells.weight[rows], bits[rows], prf)
        rows, noisy = rows[noisy >= rho], noisy[noisy >= rho]
    passed = cells.take(rows)
    if zero_cells is None:
        zero_cells, _ = cutoffs.zero_cells(draw("zero cells"))
    return ReleasedPart(
        keys=passed.keys,
        noisy=noisy,
        taken=zero_cells[find_keys(cells.keys, zero_cells) >= 0],
        zero_cells_name=name_zero_cells(zero_cells),
        past=past,
        digests=passed.digests,
        token_offsets=passed.token_offsets,
        token_bytes=passed.token_bytes,
        present=present,
        below=below,
    )


@dataclasses.dataclass(frozen=True, repr=False)
class _Prepared:
    """Cutoffs and zero cells, and what they were made from."""

    window: Any
    binding: bytes
    previous: Level
    earlier: Any
    cutoffs: Cutoffs
    zero_cells: Array

    def fits(self, window: Any, binding: bytes, previous: Level, earlier: Any) -> bool:
        same_names = (self.window, self.binding) == (window, binding)
        return same_names and self.previous is previous and self.earlier is earlier


class _ThresholdDoFn(RoundDoFn):
    """Makes cutoffs and zero cells once for all shards of a bundle that share window and levels; keeps them no longer.

    They can be large, and cost as much as a shard.
    """

    _prepared: _Prepared | None

    def start_bundle(self) -> None:
        self._prepared = None

    def process(
        self,
        shard: tuple[int, CellBlock],
        window: Any = beam.DoFn.WindowParam,
        binding: bytes = b"",
        previous: Level = EMPTY_LEVEL,
        earlier: Any = EMPTY_LEVEL,
    ) -> Iterator[ReleasedPart]:
        draw = self.draws(window, binding, earlier.name or previous.name)
        prepared = self._prepared
        if prepared is None or not prepared.fits(window, binding, previous, earlier):
            self._prepared = prepared = None  # the old ones go before new ones are made
            cutoffs = self._policy.cutoffs(previous, earlier)
            zero_cells, _ = cutoffs.zero_cells(draw("zero cells"))
            self._prepared = prepared = _Prepared(window, binding, previous, earlier, cutoffs, zero_cells)
        past = earlier.name or previous.name
        yield from split_part(threshold_cells(shard[1], prepared.cutoffs, draw, prepared.zero_cells, past))

    def finish_bundle(self) -> None:
        self._prepared = None

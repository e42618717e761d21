"""AddSpuriousGrams: the end of a round. Zero cells join the noisy ones, and what passes its threshold is S_k so far."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpngram.transforms.blocks.columns import Array, binary_array, split_binary
from dpngram.transforms.blocks.levels import EMPTY_LEVEL, Level
from dpngram.transforms.blocks.parts import ReleasedPart, name_zero_cells
from dpngram.transforms.context import ReleaseContext
from dpngram.transforms.keyed_dofn import RoundDoFn
from dpngram.transforms.messages import Message
from dpngram.transforms.policies.base import RoundPolicy
from dpngram.transforms.policies.cutoffs import Cutoffs
from dpngram.transforms.policies.selection import MAX_TALLIED
from dpngram.transforms.randomness.noise_key import Draw

__all__ = ["AddSpuriousGrams", "collect_tokens", "complete_level"]


class AddSpuriousGrams(beam.PTransform):
    """ReleasedPart -> Level: S_k so far, one element for each window, or none if it is empty.

    All parts of a window are a side input of one call, which the one element of `context.start` starts: what earlier
    rounds released goes on even if this round has no part.

    Privacy: Algorithm 1 draws noise for all of V_k, also for grams that nobody has; leaving those out would tell
    released grams apart from impossible ones. They are added at the end of *every* level: S_k with them is what
    level k+1 prunes with, and it must be the released set. Their weights follow the law of a released zero cell.
    Thresholds (policy `plus`) are chosen from the noisy values of all of V_k, zero cells included: post-processing.
    Sorted together, nothing tells the two kinds apart. Level 1 has no spurious tokens: its threshold alone hides what
    a single user has. A window in which nothing is released leaves nothing behind.
    Windowing: S_{k-1} and parts are of the same window.

    Args:
        policy: the round.
        context: the key, S_{k-1}, and what earlier rounds of this level have released.
    """

    def __init__(self, policy: RoundPolicy, context: ReleaseContext) -> None:
        super().__init__()
        self._policy, self._context = policy, context

    def expand(self, parts: beam.PCollection[ReleasedPart]) -> beam.PCollection[Level]:
        return self._context.start | "Complete" >> beam.ParDo(
            _CompleteDoFn(self._policy, self._context.randomness),
            parts=beam.pvalue.AsIter(parts),
            **self._context.sides("binding", "previous", "earlier"),
        ).with_output_types(Level)


class _CompleteDoFn(RoundDoFn):
    def process(
        self,
        _start: bytes,
        window: Any = beam.DoFn.WindowParam,
        parts: Iterable[ReleasedPart] = (),
        binding: bytes = b"",
        previous: Level = EMPTY_LEVEL,
        earlier: Level = EMPTY_LEVEL,
    ) -> Iterator[Level]:
        if self._policy.n == 1 or len(previous):  # an empty S_{k-1} makes V_k empty
            level = complete_level(list(parts), previous, earlier, self._policy, self.draws(window, binding))
            if len(level):
                yield level


def complete_level(
    parts: Sequence[ReleasedPart], previous: Level, earlier: Level, policy: RoundPolicy, draw: Draw
) -> Level:
    """S_k so far: what earlier rounds released, and every cell of V_k, users' or zero, that reaches its threshold.

    The zero cells above the floor are drawn here by the same keyed draw as in every shard of `threshold_cells`, which
    reported those that some user has. Their noisy values follow the law of a zero cell that reaches its floor. Should
    processors disagree about a logarithm, and so about the draw, the run stops: a gram might otherwise be in S_k twice.

    Args:
        parts: of all shards.
        previous: S_{k-1}; empty at level 1.
        earlier: what earlier rounds of this level have released.
        policy: the round.
        draw: the keyed functions of this round.
    """
    if policy.n == 1:
        return collect_tokens(parts, earlier, policy)
    cutoffs = policy.cutoffs(previous, earlier)

    # The zero cells that reached the floor: drawn from all of V_k, without what users or earlier rounds have.
    zero, stratum = cutoffs.zero_cells(draw("zero cells"))
    if any(part.zero_cells_name != name_zero_cells(zero) for part in parts):
        raise ValueError(Message.ZERO_CELLS_DIFFER.format())
    taken = np.concatenate([earlier.keys, *(part.taken for part in parts)])
    is_zero = ~np.isin(zero, taken)
    zero, stratum = zero[is_zero], stratum[is_zero]
    weights = draw("zero weights")
    zero_noisy = cutoffs.noise.zero_cells(weights.blocks(zero, 0), cutoffs.floor[stratum], weights)

    # How many cells of V_k have a noisy weight below 0: where thresholds are chosen from tallies.
    below = np.zeros(len(cutoffs.size), np.int64)
    if cutoffs.tallied:
        present = sum((part.present for part in parts), below)
        above = np.bincount(stratum, minlength=len(cutoffs.size))
        zeros_below = cutoffs.zeros_below(present, above, draw("zero cells below"))
        below = sum((part.below for part in parts), zeros_below)
        below = np.where(cutoffs.size > MAX_TALLIED, 0, below)  # there, only users' cells were counted

    # From here on users' cells and zero cells are one column, sorted by key: their order says nothing of who is who.
    keys = np.concatenate([zero, *(part.keys for part in parts)])
    noisy = np.concatenate([zero_noisy, *(part.noisy for part in parts)])
    order = np.argsort(keys)
    keys, noisy = keys[order], noisy[order]
    stratum = cutoffs.strata.of(keys)
    least = policy.thresholds(cutoffs, below, stratum, noisy)
    passed = noisy >= least[stratum]
    keys, noisy, stratum = keys[passed], noisy[passed], stratum[passed]
    weight = policy.publish(noisy, keys, previous)

    rho = _lowest_threshold(earlier, cutoffs, least[np.unique(stratum)])
    keys, weight = np.append(earlier.keys, keys), np.append(earlier.weight, weight)
    order = np.argsort(keys)
    level = previous.extend(keys[order], weight[order], cutoffs.noise.grid, rho, policy.pruning)
    return policy.finish(level, previous)


def collect_tokens(parts: Sequence[ReleasedPart], earlier: Level, policy: RoundPolicy) -> Level:
    """S_1 so far: the released tokens of all shards and rounds, sorted by their bytes. None of them is spurious."""
    cutoffs = policy.cutoffs(EMPTY_LEVEL, earlier)
    tokens = pa.chunked_array(
        [
            binary_array(earlier.token_offsets, earlier.token_bytes),
            *(binary_array(part.token_offsets, part.token_bytes) for part in parts),
        ]
    ).combine_chunks()
    order = pc.array_sort_indices(tokens).to_numpy()
    offsets, data = split_binary(tokens.take(pa.array(order)))
    known = np.empty_like(earlier.digests)
    known[earlier.digest_rows] = earlier.digests
    digests = np.concatenate([known, *(part.digests.reshape(-1, 2) for part in parts)])[order]
    noisy = np.concatenate([np.zeros(0, np.int64), *(part.noisy for part in parts)])
    fresh = policy.publish(noisy, np.zeros(0, np.uint64), EMPTY_LEVEL)
    weight = np.append(earlier.weight, fresh)[order]
    rho = _lowest_threshold(earlier, cutoffs, cutoffs.floor)
    return policy.finish(Level.first(offsets, data, digests, weight, cutoffs.noise.grid, rho), EMPTY_LEVEL)


def _lowest_threshold(earlier: Level, cutoffs: Cutoffs, least: Array) -> float:
    """The lowest threshold applied so far. Thresholds chosen from tallies count only if something was released by them.

    `least` are those of the strata from which something was released, in steps.
    """
    mine = [float(value) * cutoffs.noise.grid for value in least] if cutoffs.rho is None else [cutoffs.rho]
    return min([*mine, earlier.rho] if len(earlier) else mine, default=float("inf"))

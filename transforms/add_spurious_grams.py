"""AddSpuriousGrams: the end of a round. Zero cells join the noisy ones, and what passes its threshold is S_k so far."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpngram.transforms.beam_workarounds import gather
from dpngram.transforms.blocks.columns import binary_array, find_keys, split_binary
from dpngram.transforms.blocks.levels import EMPTY_LEVEL, Level, find_digests
from dpngram.transforms.blocks.parts import NO_PART, ReleasedPart, name_zero_cells
from dpngram.transforms.blocks.pieces import Piece
from dpngram.transforms.blocks.surveys import name_after
from dpngram.transforms.checkpoints import EndDoFn
from dpngram.transforms.context import ReleaseContext
from dpngram.transforms.messages import Message
from dpngram.transforms.policies.base import RoundPolicy
from dpngram.transforms.policies.cutoffs import GROUPS, MAX_TALLIED, Cells, Cutoffs
from dpngram.transforms.randomness.noise_key import Draw

__all__ = ["AddSpuriousGrams", "collect_tokens", "complete_level", "join_zero_cells", "weigh_vocabulary"]


class AddSpuriousGrams(beam.PTransform):
    """ReleasedPart -> Piece: S_k so far, or a survey, in pieces.

    All parts of a window come together in one call, with a marker made from the one element of `context.start`: what
    earlier rounds released goes on even if this round has no part. Each window with users has at least one piece, also
    if nothing is released: later steps must not wait for what never comes.

    Privacy: Algorithm 1 draws noise for all of V_k, also for grams that nobody has; leaving those out would tell
    released grams apart from impossible ones. They are added at the end of *every* level: S_k with them is what
    level k+1 prunes with, and it must be the released set. Their weights follow the law of a released zero cell.
    Thresholds (policy `plus`) are chosen from the noisy values of all of V_k, zero cells included: post-processing.
    Sorted together, nothing tells the two kinds apart. Level 1 has no spurious tokens: its threshold alone hides what
    a single user has. An empty level goes to the next steps, and not into the output: `DecodeGrams` makes no table of
    it, so a window in which nothing is released leaves nothing behind.
    Windowing: S_{k-1} and parts are of the same window.

    Args:
        policy: the round.
        context: the key, S_{k-1}, and what earlier rounds of this level have released.
    """

    def __init__(self, policy: RoundPolicy, context: ReleaseContext) -> None:
        super().__init__()
        self._policy, self._context = policy, context

    def expand(self, parts: beam.PCollection[ReleasedPart]) -> beam.PCollection[Piece]:
        every = gather(parts, self._context.start, NO_PART, "Parts")
        return every | "Complete" >> beam.ParDo(
            _CompleteDoFn(self._policy, self._context),
            **self._context.sides("binding", "previous", "earlier"),
        ).with_output_types(Piece)


class _CompleteDoFn(EndDoFn):
    def process(
        self,
        parts: Iterable[ReleasedPart],
        window: Any = beam.DoFn.WindowParam,
        binding: bytes = b"",
        previous: Level = EMPTY_LEVEL,
        earlier: Any = EMPTY_LEVEL,
    ) -> Iterator[Piece]:
        every = list(parts)
        theirs = [part for part in every if not part.marker]
        if len(theirs) == len(every):
            raise ValueError(Message.PIECES_MISSING.format())
        found: Any = self._policy.nothing
        past = earlier.name or previous.name
        if self._policy.n == 1 or len(previous):  # an empty S_{k-1} makes V_k empty
            draw = self.draws(window, binding, past)
            found = complete_level(theirs, previous, earlier, self._policy, draw)
            if isinstance(found, Level) and not len(found):
                found = EMPTY_LEVEL
        yield from self.hand_on(found, binding, past)


def complete_level(
    parts: Sequence[ReleasedPart], previous: Level, earlier: Any, policy: RoundPolicy, draw: Draw
) -> Any:
    """What the round has found out, from the parts of all shards: S_k, or what the next round of the level must know.

    Args:
        parts: of all shards.
        previous: S_{k-1}; empty at level 1.
        earlier: what earlier rounds of this level have found out.
        policy: the round.
        draw: the keyed functions of this round.
    """
    if any(part.past != (earlier.name or previous.name) for part in parts):
        raise ValueError(Message.PARTS_DIFFER.format())
    if policy.n == 1 and policy.plan.public_vocabulary:
        return weigh_vocabulary(parts, earlier, policy, draw)
    if policy.n == 1:
        return collect_tokens(parts, earlier, policy)
    cutoffs = policy.cutoffs(previous, earlier)
    return policy.settle(join_zero_cells(parts, cutoffs, draw), cutoffs, previous, earlier)


def join_zero_cells(parts: Sequence[ReleasedPart], cutoffs: Cutoffs, draw: Draw) -> Cells:
    """Every cell of V_k, users' or zero, that the round looks at, with its noisy value, sorted by key.

    The zero cells above the floors are drawn here by the same keyed draw as in every shard of `threshold_cells`, which
    reported those that some user has. Their noisy values follow the law of a zero cell that reaches its floor. Should
    processors disagree about a logarithm, and so about the draw, the run stops: a gram might otherwise be in S_k twice.
    Where all cells are looked at, zero cells get noise under their own names, as users' cells do.

    Privacy: with these zero cells the result has the law of noise on all of V_k (docs/privacy.md, *Zero cells*). Sorted
    together, nothing tells the two kinds apart.
    """
    zero, stratum = cutoffs.zero_cells(draw("zero cells"))
    if any(part.zero_cells_name != name_zero_cells(zero) for part in parts):
        raise ValueError(Message.ZERO_CELLS_DIFFER.format())
    members, member_stratum = cutoffs.members()
    taken = np.sort(np.concatenate([np.zeros(0, np.uint64), *(part.taken for part in parts)]))
    is_zero = (find_keys(taken, zero) < 0) & (find_keys(members, zero) < 0)
    zero, stratum = zero[is_zero], stratum[is_zero]
    weights = draw("zero weights")
    zero_noisy = cutoffs.noise.zero_cells(weights.blocks(zero, 0), cutoffs.floor[stratum], weights)

    below = np.zeros((len(cutoffs.floor), GROUPS), np.int64)
    if cutoffs.tallied:
        present = sum((part.present for part in parts), np.zeros(len(cutoffs.floor), np.int64))
        above = np.bincount(stratum, minlength=len(cutoffs.floor))
        zeros_below = cutoffs.zeros_below(present, above, draw("zero cells below"))
        users_below = sum((part.below for part in parts), below)
        # In strata too large for a tally `zeros_below` has all cells already.
        below = zeros_below + np.where(cutoffs.size[:, None] > MAX_TALLIED, 0, users_below)

    theirs = np.concatenate([np.zeros(0, np.uint64), *(part.keys for part in parts)])
    order = np.argsort(theirs, kind="stable")  # merges sorted runs
    theirs = theirs[order]
    their_noisy = np.concatenate([np.zeros(0, np.int64), *(part.noisy for part in parts)])[order]
    silent = find_keys(theirs, members) < 0
    members, member_stratum = members[silent], member_stratum[silent]
    noise = draw("noise")
    member_noisy = cutoffs.noise.noisy(np.zeros(len(members), np.int64), noise.blocks(members, 0), noise)

    keys = np.concatenate([zero, members, theirs])
    noisy = np.concatenate([zero_noisy, member_noisy, their_noisy])
    stratum = np.concatenate([stratum, member_stratum, cutoffs.floors_of(theirs)[0]])
    order = np.argsort(keys, kind="stable")
    return Cells(keys=keys[order], noisy=noisy[order], stratum=stratum[order], below=below)


def weigh_vocabulary(parts: Sequence[ReleasedPart], words: Level, policy: RoundPolicy, draw: Draw) -> Level:
    """S_1 where it is a public vocabulary: all of its words, each with its noisy weight.

    Privacy: a word that nobody has is a cell like any other: it gets noise under its own name, as `threshold_cells`
    does. Without it, a weight of exactly 0 would tell that nobody has the word.
    """
    noise, prf = policy.cutoffs(EMPTY_LEVEL, words).noise, draw("noise")
    noisy = noise.noisy(np.zeros(len(words), np.int64), prf.encrypt(words.digests), prf)  # in the order of digests
    for part in parts:
        noisy[find_digests(words.digests, part.digests)] = part.noisy
    weight = np.empty_like(noisy)
    weight[words.digest_rows] = noisy
    level = dataclasses.replace(words, weight=policy.publish(weight), grid=noise.grid)
    return policy.finish(level, EMPTY_LEVEL)


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
    fresh = policy.publish(noisy)
    weight = np.append(earlier.weight, fresh)[order]
    thresholds = [
        level_rho for level_rho in (cutoffs.rho, earlier.rho if len(earlier) else None) if level_rho is not None
    ]
    rho = min(thresholds, default=float("inf"))
    level = policy.finish(Level.first(offsets, data, digests, weight, cutoffs.noise.grid, rho), EMPTY_LEVEL)
    return dataclasses.replace(level, name=name_after(earlier.name, level.name)) if level.name else level

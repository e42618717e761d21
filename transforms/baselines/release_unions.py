"""Differentially private set union over n-grams (DPSU): the baselines that the paper compares with.

Many unions (systems, lengths, repeats) are computed side by side from one pass over the users, since naming the grams
is most of the work. Nearly all grams of a text have one user and are never released; they need not travel: see
`Ceilings`.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np

from dpngram.accounting import UnionPlan, UnionQuery
from dpngram.transforms.baselines.named_grams import NamedGrams, NamingDoFn, gram_digests, join_lengths, name_grams
from dpngram.transforms.blocks.candidates import CandidateBlock
from dpngram.transforms.blocks.cells import CellBlock, split_cells, weighted_cells
from dpngram.transforms.blocks.columns import Array, Block, register_block
from dpngram.transforms.blocks.levels import EMPTY_LEVEL
from dpngram.transforms.blocks.users import UserBlock
from dpngram.transforms.noisy_threshold import threshold_cells
from dpngram.transforms.policies.clipping import distinct_pairs, equal_weights, sum_by_gram, weight_table
from dpngram.transforms.policies.cutoffs import Cutoffs
from dpngram.transforms.policies.strata import Strata
from dpngram.transforms.randomness.noise import Noise
from dpngram.transforms.randomness.noise_key import KeySource, Randomness
from dpngram.transforms.randomness.prf import Prf
from dpngram.transforms.sum_cells import SumCells
from dpngram.transforms.windowing import window_name

__all__ = ["Ceilings", "ReleaseUnions", "UnionRun", "add_ceilings", "bucket_weights", "union_cells", "union_cutoffs"]

_BUCKET_BITS = 20


@dataclasses.dataclass(frozen=True)
class UnionRun:
    """One plan, released once, with noise that no other run shares."""

    plan: UnionPlan
    randomness: Randomness


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class Ceilings(Block):
    """Upper bounds of the weights of a union's cells: all that users could give to the grams of a bucket.

    Buckets are the first bits of a gram's digest. A cell whose bucket's total, with the cell's own keyed noise, stays
    below the threshold cannot be released, so its block leaves it out; the others meet and are decided as always.
    Which cells are released is the same with and without this. Private, and seen by nobody.
    """

    totals: Array  # int64, in units of 2^-32, one per bucket

    def of(self, digests: Array) -> Array:
        return np.take(self.totals, _buckets(digests))


def bucket_weights(grams: CandidateBlock, cap: int) -> Ceilings:
    """What the users of a block could give to each bucket, if nobody were clipped but weighed as with `cap`.

    It bounds every union with caps of at least `cap`, also one that has other lengths beside this one: a user's
    weight for a gram falls with the number of grams that the user gives.
    """
    user, first, given = distinct_pairs(grams)
    weight = np.take(np.take(weight_table(cap), np.minimum(given, cap)), user)
    totals = np.zeros(1 << _BUCKET_BITS, np.int64)
    np.add.at(totals, _buckets(grams.digests), sum_by_gram(grams, weight * first))
    return Ceilings(totals=totals)


def add_ceilings(ceilings: Iterable[Ceilings]) -> Ceilings:
    total = np.zeros(1 << _BUCKET_BITS, np.int64)
    for part in ceilings:
        total += part.totals
    return Ceilings(totals=total)


def union_cutoffs(query: UnionQuery) -> Cutoffs:
    """Noise and threshold of a union. It has no cells but the users': none is spurious."""
    return Cutoffs.fixed(Noise(query.sigma), Strata(EMPTY_LEVEL, "both"), query.rho)


def union_cells(
    grams: Sequence[CandidateBlock], ceilings: Sequence[Ceilings], query: UnionQuery, clip: Prf, noises: Sequence[Prf]
) -> Iterator[CellBlock]:
    """For each length of a union the weights of its grams, summed over the users of a block; hopeless cells left out.

    A user gives at most `max_contributions` grams, of all lengths together, floor(2^32/sqrt(t)) each.
    """
    together = grams[0] if len(grams) == 1 else join_lengths(grams)
    weight = equal_weights(together, query.max_contributions, clip)
    noise = Noise(query.sigma)
    least = noise.least(query.rho)
    ends = np.cumsum([len(part.grams) for part in grams])
    for part, ceiling, prf, end in zip(grams, ceilings, noises, ends, strict=True):
        mine = weight[end - len(part.grams) : end]
        words = prf.encrypt(part.digests)
        bound = np.where(mine > 0, ceiling.of(part.digests), 0)
        rows = noise.likely(bound, words, least)
        rows = rows[(mine[rows] > 0) & (noise.noisy(bound[rows], words[rows], prf) >= least)]
        kept = dataclasses.replace(part, grams=part.grams[rows], digests=part.digests[rows])
        yield weighted_cells(kept, mine[rows])


def _buckets(digests: Array) -> Array:
    buckets: Array = (digests[:, 0] >> np.uint64(64 - _BUCKET_BITS)).astype(np.int64)
    return buckets


class ReleaseUnions(beam.PTransform):
    """UserBlock -> ((run, n), NamedGrams): what each run's set unions release, by length; several parts for each.

    Privacy: each run is (epsilon, delta)-DP by its plan: users give vectors of L2 norm at most 1 to each query
    (`equal_weights`), every cell gets keyed Gaussian noise that no other run shares, and rho hides what only one user
    has. The number of parts, and which shard a gram is in, must not be shown. `bindings` holds (run, binding).
    """

    def __init__(
        self, runs: Sequence[UnionRun], naming: Randomness, bindings: beam.PCollection[tuple[int, bytes]], shards: int
    ) -> None:
        super().__init__()
        self._runs, self._naming, self._bindings, self._shards = list(runs), naming, bindings, shards

    def expand(self, users: beam.PCollection[UserBlock]) -> beam.PCollection[Any]:
        queries = [query for run in self._runs for query in run.plan.queries]
        max_n = max(n for query in queries for n in query.lengths)
        cap = min(query.max_contributions for query in queries)
        bindings = beam.pvalue.AsDict(self._bindings)
        ceilings = (
            users
            | "Bound" >> beam.ParDo(_CeilingsDoFn(self._naming, max_n, cap))  # (n, ceilings of one block)
            | "Add" >> beam.CombinePerKey(_AddCeilings())  # (n, ceilings)
        )
        return (
            users
            | "Weigh"
            >> beam.ParDo(
                _WeighDoFn(self._runs, self._naming, max_n, self._shards),
                bindings=bindings,
                ceilings=beam.pvalue.AsDict(ceilings),
            )  # ((run, n, shard), cells of one block)
            | "Sum" >> SumCells()  # ((run, n, shard), cells of all users)
            | "Release" >> beam.ParDo(_ReleaseDoFn(self._runs), bindings=bindings)
        )


class _CeilingsDoFn(NamingDoFn):
    def __init__(self, naming: Randomness, max_n: int, cap: int) -> None:
        super().__init__(naming, max_n)
        self._cap = cap

    def process(self, block: UserBlock) -> Iterator[tuple[int, Ceilings]]:
        for n, grams in enumerate(name_grams(block, self._prfs), 1):
            yield n, bucket_weights(grams, self._cap)


@beam.typehints.with_input_types(Ceilings)
@beam.typehints.with_output_types(Ceilings)
class _AddCeilings(beam.CombineFn):
    def create_accumulator(self) -> Ceilings | None:
        return None

    def add_input(self, accumulator: Ceilings | None, value: Ceilings) -> Ceilings:
        return value if accumulator is None else add_ceilings([accumulator, value])

    def merge_accumulators(self, accumulators: Iterable[Ceilings | None]) -> Ceilings:
        return add_ceilings(part for part in accumulators if part is not None)

    def extract_output(self, accumulator: Ceilings | None) -> Ceilings:
        return add_ceilings([]) if accumulator is None else accumulator


class _RunsDoFn(beam.DoFn):
    """Opens the keys of all runs when a worker sets it up."""

    _sources: list[KeySource]

    def __init__(self, runs: Sequence[UnionRun]) -> None:
        self._runs = runs

    def setup(self) -> None:
        self._sources = [run.randomness.open() for run in self._runs]

    def prf(self, run: int, purpose: str, n: int, window: Any, bindings: Mapping[int, bytes]) -> Prf:
        return self._sources[run].prf(purpose, n, 0, window_name(window), bindings[run])


class _WeighDoFn(_RunsDoFn):
    def __init__(self, runs: Sequence[UnionRun], naming: Randomness, max_n: int, shards: int) -> None:
        super().__init__(runs)
        self._naming, self._max_n, self._shards = naming, max_n, shards

    def setup(self) -> None:
        super().setup()
        self._prfs = gram_digests(self._naming.open(), self._max_n)

    def process(
        self,
        block: UserBlock,
        window: Any = beam.DoFn.WindowParam,
        bindings: Any = None,
        ceilings: Any = None,
    ) -> Iterator[tuple[tuple[int, int, int], CellBlock]]:
        waiting: dict[int, CandidateBlock] = {}
        wide = {n for run in self._runs for query in run.plan.queries if len(query.lengths) > 1 for n in query.lengths}
        for n, grams in enumerate(name_grams(block, self._prfs), 1):
            if n in wide:
                waiting[n] = grams
            yield from self._weigh({n: grams}, (n,), window, bindings, ceilings)
        for lengths in {q.lengths for run in self._runs for q in run.plan.queries if len(q.lengths) > 1}:
            yield from self._weigh(waiting, lengths, window, bindings, ceilings)

    def _weigh(
        self, grams: Mapping[int, CandidateBlock], lengths: tuple[int, ...], window: Any, bindings: Any, ceilings: Any
    ) -> Iterator[tuple[tuple[int, int, int], CellBlock]]:
        """The cells of every query that has exactly these lengths."""
        for number, run in enumerate(self._runs):
            for query in run.plan.queries:
                if query.lengths != lengths:
                    continue
                clip = self.prf(number, "clip", lengths[0] if len(lengths) == 1 else 0, window, bindings)
                noises = [self.prf(number, "noise", n, window, bindings) for n in lengths]
                parts = [grams[n] for n in lengths]
                bounds = [ceilings[n] for n in lengths]
                for n, cells in zip(lengths, union_cells(parts, bounds, query, clip, noises), strict=True):
                    if len(cells):
                        for shard, piece in split_cells(cells, self._shards):
                            yield (number, n, shard), piece


class _ReleaseDoFn(_RunsDoFn):
    def process(
        self,
        shard: tuple[tuple[int, int, int], CellBlock],
        window: Any = beam.DoFn.WindowParam,
        bindings: Any = None,
    ) -> Iterator[tuple[tuple[int, int], NamedGrams]]:
        (number, n, _), cells = shard
        (query,) = [query for query in self._runs[number].plan.queries if n in query.lengths]
        part = threshold_cells(
            cells, union_cutoffs(query), lambda purpose: self.prf(number, purpose, n, window, bindings)
        )
        if len(part.noisy):
            yield (number, n), NamedGrams(digests=part.digests)

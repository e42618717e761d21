"""H_k as columns: sorted cells with integer weights, cut into shards and merged exactly, in any order."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.utils.windowed_value import WindowedValue

from dpngram.transforms.candidates import CandidateBlock
from dpngram.transforms.columns import Block, BlockCoder, binary_array, register_block, split_binary
from dpngram.transforms.levels import Array

__all__ = ["CellBlock", "MergeCells", "SumCells", "merge_cells", "split_cells", "weighted_cells"]

_MIX = np.uint64(0x9E3779B97F4A7C15)
_MOST_CELLS = 1 << 21  # that one bundle holds before it hands them on


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class CellBlock(Block):
    """Cells of a histogram: key and weight; where grams are named by digests, these; and for level 1 the token."""

    keys: Array  # uint64, sorted
    weight: Array  # int64, positive, in units of 2^-32
    digests: Array  # (cells, 2) uint64 at level 1 and in set unions, else empty; their first halves are the keys
    token_offsets: Array  # level 1 only
    token_bytes: Array

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def has_digests(self) -> bool:
        return len(self.digests) > 0

    @property
    def has_tokens(self) -> bool:
        return len(self.token_offsets) > 1

    def take(self, rows: Array) -> "CellBlock":
        """The cells of these rows, in that order."""
        digests, offsets, data = self.digests, self.token_offsets, self.token_bytes
        if self.has_digests:
            digests = np.take(digests, rows, axis=0)
        if self.has_tokens:
            offsets, data = split_binary(binary_array(offsets, data).take(pa.array(rows)))
        return CellBlock(
            keys=np.take(self.keys, rows),
            weight=np.take(self.weight, rows),
            digests=digests,
            token_offsets=offsets,
            token_bytes=data,
        )


def weighted_cells(block: CandidateBlock, weight: Array) -> CellBlock:
    """The grams of a block with these weights, sorted; a gram that every user clipped away is no cell."""
    cells = CellBlock(
        keys=block.grams,
        weight=weight,
        digests=block.digests,
        token_offsets=block.token_offsets,
        token_bytes=block.token_bytes,
    )
    if cells.has_digests:  # digests are in no order
        order = np.argsort(cells.keys)
        return cells.take(order[weight[order] > 0])
    return cells if weight.all() else cells.take(np.flatnonzero(weight))


def split_cells(cells: CellBlock, shards: int) -> Iterator[tuple[int, CellBlock]]:
    """Cuts cells by a hash of their key; each part stays sorted."""
    if shards == 1:
        yield 0, cells
        return
    shard = ((cells.keys * _MIX) >> np.uint64(32)) % np.uint64(shards)
    order = np.argsort(shard.astype(np.uint16 if shards <= 1 << 16 else np.uint64), kind="stable")
    ends = np.cumsum(np.bincount(shard.astype(np.int64), minlength=shards))
    for number, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        if start < end:
            yield number, cells.take(order[start:end])


def merge_cells(blocks: Sequence[CellBlock]) -> CellBlock:
    """The sum of several blocks: exact, since weights are integers."""
    if len(blocks) == 1:
        return blocks[0]
    keys = np.concatenate([block.keys for block in blocks])
    weight = np.concatenate([block.weight for block in blocks])
    order = np.argsort(keys, kind="stable")  # merges sorted runs
    keys = keys[order]
    first = np.append(True, keys[1:] != keys[:-1])[: len(keys)]
    if blocks[0].has_digests:
        digests = np.concatenate([block.digests for block in blocks])
        second = digests[order, 1]
        if (~first[1:] & (second[1:] != second[:-1])).any():  # two tokens share half of their digests
            order = np.lexsort((digests[:, 1], digests[:, 0]))
            keys, second = digests[order, 0], digests[order, 1]
            first = np.append(True, (keys[1:] != keys[:-1]) | (second[1:] != second[:-1]))
    starts = np.flatnonzero(first)
    total = np.add.reduceat(weight[order], starts)
    if not blocks[0].has_digests:
        return dataclasses.replace(blocks[0], keys=keys[starts], weight=total)
    kept = order[starts]
    if not blocks[0].has_tokens:
        return dataclasses.replace(blocks[0], keys=keys[starts], weight=total, digests=digests[kept])
    tokens = pa.chunked_array([binary_array(block.token_offsets, block.token_bytes) for block in blocks])
    offsets, data = split_binary(tokens.take(pa.array(kept)).combine_chunks())
    return CellBlock(keys=keys[starts], weight=total, digests=digests[kept], token_offsets=offsets, token_bytes=data)


class _Pile(list[CellBlock]):
    """An accumulator that knows how many cells wait to be merged with its first block: no adding up for each block."""

    waiting = 0


@beam.typehints.with_input_types(CellBlock)
@beam.typehints.with_output_types(CellBlock)
class MergeCells(beam.CombineFn):
    """Merges the cells of one shard; associative and exact, so runners may lift and reorder it.

    Blocks pile up until they hold twice what the last merge left, so each cell is merged O(log) times.
    """

    def create_accumulator(self) -> list[CellBlock]:
        return _Pile()

    def add_input(self, accumulator: list[CellBlock], value: CellBlock) -> list[CellBlock]:
        pile = accumulator if isinstance(accumulator, _Pile) else _Pile(accumulator)  # a coder makes plain lists
        pile.append(value)
        pile.waiting += len(value) if len(pile) > 1 else 0
        if pile.waiting > max(2 * len(pile[0]), 1 << 18):
            pile[:] = [merge_cells(pile)]
            pile.waiting = 0
        return pile

    def merge_accumulators(self, accumulators: Iterable[list[CellBlock]]) -> list[CellBlock]:
        merged = self.create_accumulator()
        for accumulator in accumulators:
            for block in accumulator:
                merged = self.add_input(merged, block)
        return merged

    def compact(self, accumulator: list[CellBlock]) -> list[CellBlock]:
        return [merge_cells(accumulator)] if accumulator else accumulator

    def extract_output(self, accumulator: list[CellBlock]) -> CellBlock:
        return merge_cells(accumulator)

    def get_accumulator_coder(self) -> beam.coders.Coder:
        return beam.coders.IterableCoder(BlockCoder())


class SumCells(beam.PTransform):
    """(shard, CellBlock) -> (shard, CellBlock): the sum of each shard, exactly.

    What `CombinePerKey` does, but for memory: a runner that lifts a combiner keeps the sums of a whole bundle, however
    large they get, and on Flink a bundle is all that a worker has. Here a bundle holds _MOST_CELLS at most, and the
    shuffle, which runners write to disk, has the rest. Windowing: one sum per shard and window.
    """

    def expand(self, cells: beam.PCollection[tuple[int, CellBlock]]) -> beam.PCollection[tuple[int, CellBlock]]:
        return (
            cells
            | "Ahead" >> beam.ParDo(_SumAheadDoFn()).with_output_types(beam.typehints.Tuple[int, CellBlock])
            | "Group" >> beam.GroupByKey()  # shard -> sums of bundles
            | "Merge" >> beam.ParDo(_MergeDoFn()).with_output_types(beam.typehints.Tuple[int, CellBlock])
        )


class _SumAheadDoFn(beam.DoFn):
    """Sums within a bundle; hands them on when they are many."""

    def start_bundle(self) -> None:
        self._merge = MergeCells()
        self._piles: dict[tuple[Any, int], list[CellBlock]] = {}
        self._held = 0

    def process(self, cells: tuple[int, CellBlock], window: Any = beam.DoFn.WindowParam) -> Iterator[WindowedValue]:
        place = (window, cells[0])
        pile = self._piles.get(place) or self._merge.create_accumulator()
        self._piles[place] = self._merge.add_input(pile, cells[1])
        self._held += len(cells[1])
        if self._held > _MOST_CELLS:
            self._piles = {place: self._merge.compact(pile) for place, pile in self._piles.items()}
            self._held = sum(len(pile[0]) for pile in self._piles.values())
            if self._held > _MOST_CELLS // 2:
                yield from self.finish_bundle()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        piles, self._piles, self._held = self._piles, {}, 0  # a runner keeps this object for its next bundle
        for (window, shard), pile in piles.items():
            yield WindowedValue((shard, self._merge.extract_output(pile)), window.max_timestamp(), (window,))


class _MergeDoFn(beam.DoFn):
    def process(self, shard: tuple[int, Iterable[CellBlock]]) -> Iterator[tuple[int, CellBlock]]:
        merge = MergeCells()
        pile = merge.create_accumulator()
        for cells in shard[1]:
            pile = merge.add_input(pile, cells)
        yield shard[0], merge.extract_output(pile)

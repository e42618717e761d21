"""H_k as one sum: the cells of all users, added exactly, in any order."""

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.utils.windowed_value import WindowedValue

from dpngram.transforms.blocks.cells import CellBlock, merge_cells
from dpngram.transforms.blocks.columns import BlockCoder

__all__ = ["MergeCells", "SumCells"]


_MOST_CELLS = 1 << 21  # that one bundle holds before it hands them on


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

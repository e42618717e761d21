"""SumCells: H_k, the cells of all users, added exactly, in any order."""

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.utils.windowed_value import WindowedValue

from dpngram.transforms.blocks.cells import CellBlock, merge_cells

__all__ = ["RunningSum", "SumCells"]

_MOST_CELLS = 1 << 21  # that one bundle holds before it hands them on
_FEW_CELLS = 1 << 18  # so many may always wait


class SumCells(beam.PTransform):
    """(key, CellBlock) -> (key, CellBlock): the sum of the cells of each key. In a round the key is the shard.

    The same as `CombinePerKey`, but bounded in memory: a runner that lifts a combiner keeps the sums of a whole bundle,
    however large they get, and on Flink a bundle is everything a worker has. Here a bundle holds at most _MOST_CELLS
    cells, and the shuffle, which runners write to disk, has the rest.

    Privacy: weights are integers, so the sum is exact, whatever the order. Nothing is released here. Windowing: one sum
    per key and window.
    """

    def expand(self, cells: beam.PCollection[tuple[Any, CellBlock]]) -> beam.PCollection[tuple[Any, CellBlock]]:
        return (
            cells
            | "Ahead" >> beam.ParDo(_SumAheadDoFn()).with_output_types(cells.element_type)  # (key, sum in a bundle)
            | "Group" >> beam.GroupByKey()  # (key, sums of bundles)
            | "Merge" >> beam.Map(_merge).with_output_types(cells.element_type)  # (key, sum)
        )


class RunningSum:
    """A sum of cells that merges its blocks now and then.

    Blocks wait until they hold twice as many cells as the sum so far. So each cell is merged O(log) times, however many
    blocks come.
    """

    def __init__(self) -> None:
        self._blocks: list[CellBlock] = []
        self._waiting = 0

    def add(self, cells: CellBlock) -> None:
        self._blocks.append(cells)
        self._waiting += len(cells) if len(self._blocks) > 1 else 0
        if self._waiting > max(2 * len(self._blocks[0]), _FEW_CELLS):
            self.total()

    def total(self) -> CellBlock:
        """The sum so far. At least one block must have been added."""
        self._blocks, self._waiting = [merge_cells(self._blocks)], 0
        return self._blocks[0]


class _SumAheadDoFn(beam.DoFn):
    """Sums within a bundle; hands the sums on when they are many."""

    def start_bundle(self) -> None:
        self._sums: dict[tuple[Any, Any], RunningSum] = {}
        self._cells = 0

    def process(self, keyed: tuple[Any, CellBlock], window: Any = beam.DoFn.WindowParam) -> Iterator[WindowedValue]:
        key, cells = keyed
        self._sums.setdefault((window, key), RunningSum()).add(cells)
        self._cells += len(cells)
        if self._cells > _MOST_CELLS:
            self._cells = sum(len(running.total()) for running in self._sums.values())
            if self._cells > _MOST_CELLS // 2:
                yield from self.finish_bundle()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        sums, self._sums, self._cells = self._sums, {}, 0  # a runner keeps this object for its next bundle
        for (window, key), running in sums.items():
            yield WindowedValue((key, running.total()), window.max_timestamp(), (window,))


def _merge(keyed: tuple[Any, Iterable[CellBlock]]) -> tuple[Any, CellBlock]:
    key, sums = keyed
    running = RunningSum()
    for cells in sums:
        running.add(cells)
    return key, running.total()

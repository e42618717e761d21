"""Sums of cells: exact, and bounded in memory."""

import dataclasses

import numpy as np
from apache_beam.transforms.window import GlobalWindow
from helpers.blocks import ONE_CELL

from dpngram.transforms.sum_cells import _SumAheadDoFn


def test_sums_of_a_bundle_are_bounded(monkeypatch):
    """What a bundle holds goes on when it is too much, nothing stays behind, and the sums are exact."""
    monkeypatch.setattr("dpngram.transforms.sum_cells._MOST_CELLS", 1000)
    random, total, handed = np.random.default_rng(1), {}, {}
    step = _SumAheadDoFn()
    step.start_bundle()

    def take(outputs):
        for output in outputs:
            shard, cells = output.value
            for cell, weight in zip(cells.keys.tolist(), cells.weight.tolist(), strict=True):
                handed[shard, cell] = handed.get((shard, cell), 0) + weight

    for block in range(200):
        shard, keys = block % 3, np.unique(random.integers(0, 5000, 90)).astype(np.uint64)
        for cell in keys.tolist():
            total[shard, cell] = total.get((shard, cell), 0) + block + 1
        cells = dataclasses.replace(ONE_CELL, keys=keys, weight=np.full(len(keys), block + 1))
        take(step.process((shard, cells), GlobalWindow()))
        assert sum(len(part) for running in step._sums.values() for part in running._blocks) <= 1000
    take(step.finish_bundle())
    assert handed == total
    assert not step._sums

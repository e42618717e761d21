"""Cells: sums of integers, cut and merged."""

import numpy as np

from dpngram.transforms.blocks.cells import CellBlock, merge_cells


def test_sums_are_exact_in_any_order():
    """Sums far beyond the 53 bits of a float, with small weights that a float would lose."""
    random = np.random.default_rng(3)
    exact, blocks = {}, []
    for _ in range(40):
        keys = np.sort(random.choice(60, 30, replace=False)).astype(np.uint64)
        weight = random.choice([1, 3, 2**32, 2**54 + 1, 2**56 + 7], 30)
        for key, value in zip(keys.tolist(), weight.tolist(), strict=True):
            exact[key] = exact.get(key, 0) + value
        empty = {"digests": np.zeros((0, 2), np.uint64), "token_bytes": np.zeros(0, np.uint8)}
        blocks.append(CellBlock(keys=keys, weight=weight, token_offsets=np.zeros(1, np.int64), **empty))
    for _ in range(5):
        random.shuffle(blocks)
        halves = [merge_cells(blocks[:17]), merge_cells(blocks[17:])]
        for merged in (merge_cells(blocks), merge_cells(halves)):
            assert dict(zip(merged.keys.tolist(), merged.weight.tolist(), strict=True)) == exact

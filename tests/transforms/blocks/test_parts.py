"""What shards hand on: a name for the zero cells that they drew."""

import numpy as np

from dpngram.transforms.blocks.parts import name_zero_cells


def test_workers_that_drew_other_cells_have_another_name():
    drawn = np.array([3, 7, 2**63 + 1], np.uint64)
    names = [name_zero_cells(drawn), name_zero_cells(drawn[:2]), name_zero_cells(drawn + np.uint64(1))]
    names += [name_zero_cells(np.zeros(count, np.uint64)) for count in range(3)]
    assert len(set(map(int, names))) == len(names)
    assert name_zero_cells(drawn[::-1]) == names[0]  # the same cells

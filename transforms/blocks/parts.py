"""What one shard of a histogram hands on after the noise."""

import dataclasses

import numpy as np

from dpngram.transforms.blocks.cells import hash_keys
from dpngram.transforms.blocks.columns import Array, Block, empty_column, register_block

__all__ = ["ReleasedPart", "name_zero_cells"]


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleasedPart(Block):
    """The noisy cells of one shard that reached the floor, plus the tallies needed to choose the final thresholds.

    Still private: it must go to `AddSpuriousGrams` before anything is released.
    """

    keys: Array  # uint64, sorted
    noisy: Array  # int64: noisy weights, in steps of the noise's grid
    taken: Array  # uint64: drawn as zero cells, but some user contributed them
    zero_cells_name: int  # checks that every worker drew the same zero cells, see `name_zero_cells`
    past: int = 0  # names what the round went on from, see `surveys.name_of`
    # Level 1 only: the tokens.
    digests: Array = empty_column(np.uint64, shape=(0, 2))
    token_offsets: Array = empty_column(np.int64, shape=(1,))
    token_bytes: Array = empty_column(np.uint8)
    # Where cells below the floors are counted, by stratum:
    present: Array = empty_column(np.int64)  # cells that some user contributed
    # (strata, groups): those of them below the floor, see `Cutoffs.groups_of`
    below: Array = empty_column(np.int64, shape=(0, 0))


def name_zero_cells(zero_cells: Array) -> int:
    """A check of drawn cells: their number and sum, mixed. Not secret, and no adversary chooses them."""
    return (len(zero_cells) + int(hash_keys(zero_cells).sum(dtype=np.uint64))) % (1 << 64)

"""What one shard of a histogram hands on after the noise."""

import dataclasses

import numpy as np

from dpngram.transforms.blocks.columns import Array, Block, register_block

__all__ = ["ReleasedPart", "name_zero_cells"]


_MIX = np.uint64(0x9E3779B97F4A7C15)


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleasedPart(Block):
    """What one shard has above the floor, and what must be known of the rest. Private: the level is not complete."""

    keys: Array  # uint64, sorted
    noisy: Array  # int64: noisy weights, in steps
    digests: Array  # level 1: (cells, 2) uint64
    token_offsets: Array
    token_bytes: Array
    taken: Array  # uint64: drawn as zero cells, but some user contributed them
    walk: Array  # uint64 scalar: names the drawn cells; every worker must have drawn the same
    # Where thresholds are chosen from tallies, empty otherwise; one per stratum:
    present: Array  # int64: cells that some user contributed
    below: Array  # int64: those of them whose noisy weight is below 0


def name_zero_cells(zero_cells: Array) -> Array:
    """A check of drawn cells: their number and sum, mixed. Not secret, and no adversary chooses them."""
    mixed: Array = np.uint64(len(zero_cells)) + (zero_cells * _MIX).sum(dtype=np.uint64)
    return mixed

"""What one shard of a histogram hands on after the noise."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from dpngram.transforms.blocks.cells import hash_keys
from dpngram.transforms.blocks.columns import Array, Block, binary_array, empty_column, register_block, split_binary

__all__ = ["NO_PART", "ReleasedPart", "name_zero_cells", "split_part"]

_MOST_ROWS = 1 << 20


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleasedPart(Block):
    """The noisy cells of one shard that reached the floor, plus the tallies needed to choose the final thresholds.

    Still private: it must go to `AddSpuriousGrams` before anything is released. A shard with many cells has several.
    """

    keys: Array  # uint64, sorted
    noisy: Array  # int64: noisy weights, in steps of the noise's grid
    taken: Array  # uint64: drawn as zero cells, but some user contributed them
    zero_cells_name: int  # checks that every worker drew the same zero cells, see `name_zero_cells`
    marker: int = 0  # 1: it is of no shard, see `NO_PART`
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


def split_part(part: ReleasedPart) -> Iterator[ReleasedPart]:
    """The same part as several, none of them with more than 2^20 cells. Only the first has the tallies."""
    for start in range(0, max(len(part.keys), len(part.taken), 1), _MOST_ROWS):
        rows = slice(start, start + _MOST_ROWS)
        offsets, data = part.token_offsets, part.token_bytes
        if len(part.digests):
            offsets, data = split_binary(binary_array(offsets, data)[rows])
        yield dataclasses.replace(
            part,
            keys=part.keys[rows],
            noisy=part.noisy[rows],
            taken=part.taken[rows],
            digests=part.digests[rows],
            token_offsets=offsets,
            token_bytes=data,
            present=part.present if not start else np.zeros_like(part.present),
            below=part.below if not start else np.zeros_like(part.below),
        )


# Among the parts of every window, so that a window in which no shard has a cell has a part, too.
NO_PART = ReleasedPart(
    keys=np.zeros(0, np.uint64), noisy=np.zeros(0, np.int64), taken=np.zeros(0, np.uint64), zero_cells_name=0, marker=1
)

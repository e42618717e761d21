"""Cells of a histogram as columns: sorted, with integer weights, cut into shards and merged exactly."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from dpngram.transforms.blocks.candidates import CandidateBlock
from dpngram.transforms.blocks.columns import (
    Array,
    Block,
    binary_array,
    empty_column,
    register_block,
    run_starts,
    split_binary,
)

__all__ = ["CellBlock", "hash_keys", "merge_cells", "split_cells", "weighted_cells"]


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class CellBlock(Block):
    """Cells of a histogram: key and weight; where grams are named by digests, these; and for level 1 the token."""

    keys: Array  # uint64, sorted
    weight: Array  # int64, positive, in units of 2^-32
    # (cells, 2) uint64 at level 1 and in set unions; their first halves are the keys
    digests: Array = empty_column(np.uint64, shape=(0, 2))
    # Level 1 only:
    token_offsets: Array = empty_column(np.int64, shape=(1,))
    token_bytes: Array = empty_column(np.uint8)

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
    """The grams of a block with these weights, sorted. A gram that every user clipped away has no cell."""
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


def hash_keys(keys: Array) -> Array:
    """Keys, mixed: for spreading and comparing them, not for hiding them."""
    mixed: Array = keys * np.uint64(0x9E3779B97F4A7C15)
    return mixed


def split_cells(cells: CellBlock, shards: int) -> Iterator[tuple[int, CellBlock]]:
    """Cuts cells by a hash of their key; each part stays sorted."""
    if shards == 1:
        yield 0, cells
        return
    shard = (hash_keys(cells.keys) >> np.uint64(32)) % np.uint64(shards)
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
    first = run_starts(keys)
    if blocks[0].has_digests:
        digests = np.concatenate([block.digests for block in blocks])
        second = digests[order, 1]
        if (~first[1:] & (second[1:] != second[:-1])).any():  # two tokens share half of their digests
            order = np.lexsort((digests[:, 1], digests[:, 0]))
            keys, second = digests[order, 0], digests[order, 1]
            first = run_starts(keys) | run_starts(second)
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

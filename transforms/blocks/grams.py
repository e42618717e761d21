"""What leaves the library: the released grams of a level, decoded, as columns or as rows."""

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dpngram.transforms.blocks.columns import Array, Block, binary_array, register_block

__all__ = ["EMPTY_TABLE", "GramTable", "Ngram", "empty_table"]


class Ngram(NamedTuple):
    """One released n-gram. The weight is noisy; nothing tells whether any user has the gram."""

    n: int
    tokens: list[str]
    weight: float


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class GramTable(Block):
    """S_n with its tokens, sorted by them. Everything in it is public."""

    n: Array  # int64 scalar
    tokens: Array  # (grams, n) int32: rows of the vocabulary
    weight: Array  # float64: noisy weights
    next_valid: Array  # int64 scalar: |V_{n+1}|
    rho: Array  # float64 scalar: the lowest threshold of the level
    token_offsets: Array  # the vocabulary, S_1
    token_bytes: Array

    def __len__(self) -> int:
        return len(self.weight)

    @property
    def vocabulary(self) -> pa.Array:
        """S_1 as an Arrow column of strings."""
        return binary_array(self.token_offsets, self.token_bytes).cast(pa.large_string())

    def rows(self) -> Iterator[Ngram]:
        words = self.vocabulary.to_pylist()
        n = int(self.n)
        for tokens, weight in zip(self.tokens.tolist(), self.weight.tolist(), strict=True):
            yield Ngram(n, [words[token] for token in tokens], weight)


EMPTY_TABLE = GramTable(
    n=np.int64(0),
    tokens=np.zeros((0, 0), np.int32),
    weight=np.zeros(0, np.float64),
    next_valid=np.int64(0),
    rho=np.float64(0),
    token_offsets=np.zeros(1, np.int64),
    token_bytes=np.zeros(0, np.uint8),
)


def empty_table(n: int) -> GramTable:
    """A level in which nothing was released."""
    return dataclasses.replace(EMPTY_TABLE, n=np.int64(n), tokens=np.zeros((0, n), np.int32))

"""What leaves the library: the released grams of a level, decoded, as columns or as rows."""

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dpngram.transforms.blocks.columns import Array, Block, binary_array, empty_column, register_block

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

    n: int = 0
    tokens: Array = empty_column(np.int32, shape=(0, 0))  # (grams, n): rows of the vocabulary
    weight: Array = empty_column(np.float64)  # noisy weights
    next_valid: int = 0  # |V_{n+1}|
    rho: float = 0.0  # the lowest threshold of the level
    token_offsets: Array = empty_column(np.int64, shape=(1,))  # the vocabulary, S_1
    token_bytes: Array = empty_column(np.uint8)

    def __len__(self) -> int:
        return len(self.weight)

    @property
    def vocabulary(self) -> pa.Array:
        """S_1 as an Arrow column of strings."""
        return binary_array(self.token_offsets, self.token_bytes).cast(pa.large_string())

    def rows(self) -> Iterator[Ngram]:
        """The n-grams one by one, in the order of their tokens' bytes."""
        words = self.vocabulary.to_pylist()
        for tokens, weight in zip(self.tokens.tolist(), self.weight.tolist(), strict=True):
            yield Ngram(self.n, [words[token] for token in tokens], weight)


EMPTY_TABLE = GramTable()


def empty_table(n: int) -> GramTable:
    """A level in which nothing was released."""
    return GramTable(n=n, tokens=np.zeros((0, n), np.int32))

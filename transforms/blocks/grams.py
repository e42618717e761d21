"""What leaves the library: the released grams of a level, decoded, as columns or as rows."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dpngram.transforms.blocks.columns import Array, Block, binary_array, empty_column, register_block
from dpngram.transforms.messages import Message

__all__ = ["EMPTY_TABLE", "TABLE_ROWS", "GramTable", "Ngram", "empty_table", "in_order"]

TABLE_ROWS = 1 << 19  # 23 MB of nine tokens each


class Ngram(NamedTuple):
    """One released n-gram. The weight is noisy; nothing tells whether any user has the gram."""

    n: int
    tokens: list[str]
    weight: float


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class GramTable(Block):
    """Some consecutive grams of S_n with their tokens, sorted by them. Everything in it is public.

    The tables of a length have at most `TABLE_ROWS` grams each, so one of them is small however large S_n is.
    """

    n: int = 0
    tokens: Array = empty_column(np.int32, shape=(0, 0))  # (grams, n): rows of the vocabulary
    weight: Array = empty_column(np.float64)  # noisy weights
    first: int = 0  # the row of its first gram in S_n
    total: int = 0  # |S_n|
    next_valid: int = 0  # |V_{n+1}|
    rho: float = 0.0  # the lowest threshold of the level
    token_offsets: Array = empty_column(np.int64, shape=(1,))  # the vocabulary: its tokens, sorted by their bytes
    token_bytes: Array = empty_column(np.uint8)

    def __len__(self) -> int:
        return len(self.weight)

    @property
    def vocabulary(self) -> pa.Array:
        """The tokens that occur here as an Arrow column of strings."""
        return binary_array(self.token_offsets, self.token_bytes).cast(pa.large_string())

    def without_rows(self) -> "GramTable":
        """Its figures alone."""
        return dataclasses.replace(empty_table(self.n), next_valid=self.next_valid, rho=self.rho)

    def rows(self) -> Iterator[Ngram]:
        """The n-grams one by one, in the order of their tokens' bytes."""
        words = self.vocabulary.to_pylist()
        for tokens, weight in zip(self.tokens.tolist(), self.weight.tolist(), strict=True):
            yield Ngram(self.n, [words[token] for token in tokens], weight)


EMPTY_TABLE = GramTable()


def in_order(tables: Iterable[GramTable]) -> Iterator[GramTable]:
    """The tables of one length one after another, however they come; those that come too early wait.

    A table that is missing is an error: whoever writes S_n must not write a part of it. Where nothing was released
    there must be an empty table.
    """
    waiting: dict[int, GramTable] = {}
    done, total = 0, -1
    for table in tables:
        total = max(total, table.total)
        if not len(table):
            continue
        waiting[table.first] = table
        while done in waiting:
            ready = waiting.pop(done)
            done += len(ready)
            yield ready
    if waiting or done != total:
        raise ValueError(Message.PIECES_MISSING.format())


def empty_table(n: int) -> GramTable:
    """A level in which nothing was released."""
    return GramTable(n=n, tokens=np.zeros((0, n), np.int32))

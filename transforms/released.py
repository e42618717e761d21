"""What leaves the library: the released grams of a level, decoded, as columns or as rows."""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa

from dpngram.transforms.columns import Block, binary_array, register_block
from dpngram.transforms.levels import Array, Level
from dpngram.transforms.sides import for_sides

__all__ = ["EMPTY_TABLE", "DecodeGrams", "GramTable", "Ngram", "decode_grams", "empty_table"]


class Ngram(NamedTuple):
    """One released n-gram. The weight is noisy; nothing tells whether any user has the gram."""

    n: int
    tokens: list[str]
    weight: float


beam.coders.registry.register_coder(Ngram, beam.coders.RowCoder)


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


def decode_grams(level: Level, previous: GramTable, pruning: str) -> GramTable:
    """The tokens of each gram: those of its prefix, and its last one."""
    last = level.last[:, None]
    first = int(level.n) == 1
    return GramTable(
        n=level.n,
        tokens=last if first else np.concatenate([previous.tokens[level.parent], last], axis=1),
        weight=level.weight * float(level.grid),
        next_valid=np.int64(level.valid(pruning)),
        rho=level.rho,
        token_offsets=level.token_offsets if first else previous.token_offsets,
        token_bytes=level.token_bytes if first else previous.token_bytes,
    )


class DecodeGrams(beam.PTransform):
    """S_k, with the table of level k-1 at its side -> the table of level k. Privacy: post-processing."""

    def __init__(self, previous: beam.PCollection[GramTable] | None, pruning: str) -> None:
        super().__init__()
        self._previous, self._pruning = previous, pruning

    def expand(self, level: beam.PCollection[Level]) -> beam.PCollection[GramTable]:
        sides = {}
        if self._previous is not None:
            sides["previous"] = beam.pvalue.AsSingleton(
                for_sides(self._previous, "Previous"), default_value=EMPTY_TABLE
            )
        return level | "Decode" >> beam.ParDo(_DecodeDoFn(self._pruning), **sides)


class _DecodeDoFn(beam.DoFn):
    def __init__(self, pruning: str) -> None:
        self._pruning = pruning

    def process(self, level: Level, previous: Any = EMPTY_TABLE) -> Iterator[GramTable]:
        yield decode_grams(level, previous, self._pruning)

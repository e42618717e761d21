"""From rows of S_k to tokens."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np

from dpngram.transforms.blocks.grams import EMPTY_TABLE, GramTable, Ngram
from dpngram.transforms.blocks.levels import Level
from dpngram.transforms.side_inputs import for_sides

__all__ = ["DecodeGrams", "decode_grams"]

beam.coders.registry.register_coder(Ngram, beam.coders.RowCoder)


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

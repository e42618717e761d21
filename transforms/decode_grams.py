"""DecodeGrams: from rows of S_k to tokens."""

import apache_beam as beam
import numpy as np

from dpngram.transforms.beam_workarounds import as_side
from dpngram.transforms.blocks.grams import EMPTY_TABLE, GramTable, Ngram
from dpngram.transforms.blocks.levels import Level

__all__ = ["DecodeGrams", "decode_grams", "decode_levels"]

beam.coders.registry.register_coder(Ngram, beam.coders.RowCoder)


class DecodeGrams(beam.PTransform):
    """Level -> GramTable: the tokens of S_k. Privacy: post-processing. Windowing: one table per window, like the level.

    Args:
        previous: the tables of level k-1; None at level 1.
        pruning: the rule that defines V_{k+1}, whose size is in the table.
    """

    def __init__(self, previous: beam.PCollection[GramTable] | None = None, pruning: str = "both") -> None:
        super().__init__()
        self._previous, self._pruning = previous, pruning

    def expand(self, level: beam.PCollection[Level]) -> beam.PCollection[GramTable]:
        sides = {} if self._previous is None else {"previous": as_side(self._previous, "Previous", EMPTY_TABLE)}
        return level | "Decode" >> beam.Map(decode_grams, pruning=self._pruning, **sides).with_output_types(GramTable)


def decode_levels(
    levels: dict[int, beam.PCollection[Level]], pruning: str, *, public_vocabulary: bool = False
) -> dict[int, beam.PCollection[GramTable]]:
    """{n: S_n} -> {n: table of S_n}. Each level reads the tables of the one before.

    With a `public_vocabulary` the table of level 1 has no rows: its words were not found in the data.
    """
    tables: dict[int, beam.PCollection[GramTable]] = {}
    for n, level in levels.items():
        tables[n] = level | f"Decode{n}" >> DecodeGrams(tables.get(n - 1), pruning)
    if public_vocabulary:
        tables[1] = tables[1] | "LeaveOutWords" >> beam.Map(GramTable.without_rows)
    return tables


def decode_grams(level: Level, previous: GramTable = EMPTY_TABLE, pruning: str = "both") -> GramTable:
    """The tokens of each gram: those of its prefix, and its last one."""
    last = level.last[:, None]
    first = level.n == 1
    return GramTable(
        n=level.n,
        tokens=last if first else np.concatenate([previous.tokens[level.parent], last], axis=1),
        weight=level.weight * level.grid,
        total=len(level),
        next_valid=level.valid(pruning),
        rho=level.rho,
        token_offsets=level.token_offsets if first else previous.token_offsets,
        token_bytes=level.token_bytes if first else previous.token_bytes,
    )

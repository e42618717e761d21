"""DecodeGrams: from rows of S_k to tokens."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from dpngram.transforms.beam_workarounds import as_pieces, with_element_type
from dpngram.transforms.blocks.columns import Array, binary_array, split_binary
from dpngram.transforms.blocks.grams import TABLE_ROWS, GramTable, Ngram
from dpngram.transforms.blocks.levels import Level, unpack_keys
from dpngram.transforms.blocks.pieces import Piece, join_pieces

__all__ = ["DecodeGrams", "decode_level"]

beam.coders.registry.register_coder(Ngram, beam.coders.RowCoder)

_COLUMNS = ("keys", "weight", "suffix", "token_offsets", "token_bytes")


class DecodeGrams(beam.PTransform):
    """{n: pieces of S_n} -> {n: GramTable}: the tokens of each level, in tables of bounded size.

    One worker decodes a window, level by level. Of the levels before it keeps the keys only, eight bytes for each gram.

    Privacy: post-processing. An empty level has a piece, and no table: where nothing is released nothing comes out.
    Windowing: kept.

    Args:
        pruning: the rule that defines V_{k+1}, whose size is in the tables.
        public_vocabulary: the table of level 1 has no rows: its words were not found in the data.
    """

    def __init__(self, pruning: str = "both", *, public_vocabulary: bool = False) -> None:
        super().__init__()
        self._pruning, self._public_vocabulary = pruning, public_vocabulary

    def expand(self, levels: Any) -> Any:  # {n: PCollection[Piece]} -> {n: PCollection[GramTable]}
        start = levels[1] | "Start" >> beam.Filter(_is_first)  # once for each window with users
        sides = {_tag(n): as_pieces(level, f"S{n}") for n, level in levels.items()}
        decode = beam.ParDo(_DecodeDoFn(self._pruning, self._public_vocabulary), **sides)
        tables = start | "Decode" >> decode.with_outputs(*(_tag(n) for n in levels if n > 1), main=_tag(1))
        return {n: with_element_type(tables[_tag(n)], GramTable) for n in levels}


def _tag(n: int) -> str:
    return f"n{n}"


def _is_first(piece: Piece) -> bool:
    return piece.is_first


class _DecodeDoFn(beam.DoFn):
    def __init__(self, pruning: str, public_vocabulary: bool) -> None:
        self._pruning, self._public_vocabulary = pruning, public_vocabulary

    def process(self, _start: Piece, **levels: Iterable[Piece]) -> Iterator[Any]:
        before: list[Level] = []
        for n in range(1, len(levels) + 1):
            level: Any = join_pieces(levels[_tag(n)], _COLUMNS)
            for table in decode_level(level, before, self._pruning):
                if n > 1:
                    yield beam.pvalue.TaggedOutput(_tag(n), table)
                elif not self._public_vocabulary:
                    yield table
                elif table.first == 0:
                    yield table.without_rows()
            before.append(level.only_keys())


def decode_level(
    level: Level, before: Sequence[Level], pruning: str = "both", rows: int = TABLE_ROWS
) -> Iterator[GramTable]:
    """The tokens of each gram: its last one, that of its prefix, and so on. Tables of at most `rows` grams.

    Args:
        level: S_n.
        before: S_1, ..., S_{n-1}; of the later ones only the keys are read.
        pruning: the rule that defines V_{n+1}.
        rows: of a table.
    """
    if not len(level):
        return
    words = before[0] if before else level
    vocabulary = binary_array(words.token_offsets, words.token_bytes)
    valid = level.valid(pruning)
    for start in range(0, len(level), rows):
        parent, last = unpack_keys(level.keys[start : start + rows])
        tokens = np.empty((len(last), level.n), np.int32)
        tokens[:, -1] = last
        for place, earlier in zip(range(level.n - 2, -1, -1), reversed(before), strict=True):
            parent, tokens[:, place] = unpack_keys(np.take(earlier.keys, parent))
        tokens, offsets, data = _own_vocabulary(tokens, vocabulary)
        yield GramTable(
            n=level.n,
            tokens=tokens,
            weight=level.weight[start : start + rows] * level.grid,
            first=start,
            total=len(level),
            next_valid=valid,
            rho=level.rho,
            token_offsets=offsets,
            token_bytes=data,
        )


def _own_vocabulary(tokens: Array, vocabulary: pa.Array) -> tuple[Array, Array, Array]:
    """Rows of a vocabulary of the tokens that occur, and that vocabulary."""
    used = np.zeros(len(vocabulary), bool)
    used[tokens] = True
    renumbered = np.cumsum(used, dtype=np.int32) - np.int32(1)
    offsets, data = split_binary(vocabulary.filter(pa.array(used)))
    return np.take(renumbered, tokens), offsets, data

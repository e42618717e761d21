"""From rows to tokens."""

import dataclasses

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from helpers.levels import first

from dpngram.transforms import DecodeGrams
from dpngram.transforms.blocks import pieces
from dpngram.transforms.blocks.levels import EMPTY_LEVEL, pack_keys
from dpngram.transforms.blocks.pieces import cut_block
from dpngram.transforms.decode_grams import decode_level


def chain():
    """S_1 has a, b, c; S_2 ab, ba, bc; S_3 aba: the row 0 of S_2 with the last token a."""
    words = first([b"a", b"b", b"c"])  # weights 0, 1, 2
    pairs = pack_keys(np.array([0, 1, 1]), np.array([1, 0, 2]))
    pairs = words.extend(pairs, np.array([6, 7, 8]), 0.5, 1.0, "both")
    return [words, pairs, pairs.extend(pack_keys(np.array([0]), np.array([0])), np.array([9]), 0.5, 1.0, "both")]


def grams(table):
    return [("".join(row.tokens), row.weight) for row in table.rows()]


def test_a_gram_has_the_tokens_of_its_prefix_and_its_last():
    levels = chain()
    tables = [next(decode_level(level, levels[:place], "both")) for place, level in enumerate(levels)]
    assert grams(tables[0]) == [("a", 0.0), ("b", 1.0), ("c", 2.0)]
    assert grams(tables[1]) == [("ab", 3.0), ("ba", 3.5), ("bc", 4.0)]
    assert grams(tables[2]) == [("aba", 4.5)]
    assert [table.n for table in tables] == [1, 2, 3]
    assert [table.next_valid for table in tables] == [9, 3, 0]  # of length 3: aba, abc, bab
    assert tables[2].vocabulary.to_pylist() == ["a", "b"]  # the tokens that occur
    assert list(decode_level(EMPTY_LEVEL, levels)) == []


def test_tables_of_bounded_size():
    words, pairs, _ = chain()
    tables = list(decode_level(pairs, [words], "both", rows=2))
    assert [grams(table) for table in tables] == [[("ab", 3.0), ("ba", 3.5)], [("bc", 4.0)]]
    assert [(table.first, len(table), table.total, table.next_valid) for table in tables] == [
        (0, 2, 3, 3),
        (2, 1, 3, 3),
    ]
    assert tables[1].vocabulary.to_pylist() == ["b", "c"]


@pytest.mark.parametrize("size", [100, 1 << 20])
def test_levels_in_pieces_become_tables(monkeypatch, size):
    monkeypatch.setattr(pieces, "PIECE_BYTES", size)
    levels = [*chain(), dataclasses.replace(EMPTY_LEVEL, n=4)]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        cut = {n: pipeline | f"S{n}" >> beam.Create(list(cut_block(level))) for n, level in enumerate(levels, 1)}
        tables = cut | DecodeGrams()
        rows = tuple(tables.values()) | beam.Flatten() | beam.Map(lambda table: (table.n, grams(table)))
        found = [(1, [("a", 0.0), ("b", 1.0), ("c", 2.0)]), (2, [("ab", 3.0), ("ba", 3.5), ("bc", 4.0)])]
        assert_that(rows, equal_to([*found, (3, [("aba", 4.5)])]))

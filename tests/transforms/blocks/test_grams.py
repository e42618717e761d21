"""Tables of released grams."""

import numpy as np

from dpngram.transforms.blocks.grams import GramTable, Ngram, empty_table


def test_rows_have_their_tokens():
    table = GramTable(
        n=2,
        tokens=np.array([[0, 2], [2, 1]], np.int32),
        weight=np.array([3.5, 1.25]),
        next_valid=0,
        rho=np.float64(1),
        token_offsets=np.array([0, 1, 3, 5]),
        token_bytes=np.frombuffer("bé\u00e4".encode(), np.uint8),
    )
    assert len(table) == 2
    assert table.vocabulary.to_pylist() == ["b", "é", "\u00e4"]
    assert list(table.rows()) == [Ngram(2, ["b", "\u00e4"], 3.5), Ngram(2, ["\u00e4", "é"], 1.25)]


def test_a_level_without_a_release():
    table = empty_table(3)
    assert (int(table.n), table.tokens.shape, len(table)) == (3, (0, 3), 0)
    assert list(table.rows()) == []

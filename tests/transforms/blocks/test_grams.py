"""Tables of released grams."""

import numpy as np
import pytest

from dpngram.transforms.blocks.grams import EMPTY_TABLE, GramTable, Ngram, empty_table, in_order


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


def part(first, rows, total):
    return GramTable(n=1, tokens=np.zeros((rows, 1), np.int32), weight=np.ones(rows), first=first, total=total)


def test_tables_come_in_any_order_and_leave_in_theirs():
    tables = [part(5, 2, 9), EMPTY_TABLE, part(0, 3, 9), part(7, 2, 9), part(3, 2, 9)]
    assert [table.first for table in in_order(tables)] == [0, 3, 5, 7]
    assert list(in_order([EMPTY_TABLE])) == []


@pytest.mark.parametrize("lost", [[0], [1], [2], [0, 1, 2]])
def test_a_lost_table_is_an_error(lost):
    tables = [part(0, 3, 7), part(3, 2, 7), part(5, 2, 7)]
    tables = [table for place, table in enumerate(tables) if place not in lost]
    with pytest.raises(ValueError, match="pieces of a level are missing"):
        list(in_order(tables))

"""From rows to tokens."""

import numpy as np
from helpers.levels import first

from dpngram.transforms.blocks.grams import EMPTY_TABLE
from dpngram.transforms.blocks.levels import pack_keys
from dpngram.transforms.decode_grams import decode_grams


def test_a_gram_has_the_tokens_of_its_prefix_and_its_last():
    level = first([b"a", b"b", b"c"])  # weights 0, 1, 2
    table = decode_grams(level, EMPTY_TABLE, "both")
    assert [(row.tokens, row.weight) for row in table.rows()] == [(["a"], 0.0), (["b"], 1.0), (["c"], 2.0)]
    assert int(table.next_valid) == 9
    # "ab", "ba", "bc": grid 0.5; then "aba", the row 0 of them with the last token "a".
    level = level.extend(pack_keys(np.array([0, 1, 1]), np.array([1, 0, 2])), np.array([6, 7, 8]), 0.5, 1.0, "both")
    table = decode_grams(level, table, "both")
    assert [("".join(row.tokens), row.weight) for row in table.rows()] == [("ab", 3.0), ("ba", 3.5), ("bc", 4.0)]
    assert int(table.next_valid) == 3  # aba, abc, bab
    level = level.extend(pack_keys(np.array([0]), np.array([0])), np.array([9]), 0.5, 1.0, "both")
    table = decode_grams(level, table, "both")
    assert [(row.n, row.tokens, row.weight) for row in table.rows()] == [(3, ["a", "b", "a"], 4.5)]

"""Which grams of a user's text are valid, by both rules."""

import numpy as np
import pytest
from helpers.blocks import post_block
from helpers.levels import first

from dpngram.transforms.blocks.levels import pack_keys
from dpngram.transforms.group_users import group_users
from dpngram.transforms.testing import key_source
from dpngram.transforms.validity_filter import filter_valid

SOURCE = key_source(b"v" * 32)


def grams_of(block):
    """{(row of the prefix, row of the last token): how often}"""
    keys = [(int(key) >> 32, int(key) & 0xFFFFFFFF) for key in block.grams]
    return dict(zip(keys, np.diff(block.gram_start).tolist(), strict=True))


@pytest.mark.parametrize("pruning", ["both", "single"])
def test_grams_of_released_parts_within_posts(pruning):
    """Released are a, b, c, then ab and bc, then, of all trigrams, what both rules make of them."""
    posts = [(1, ["a", "b", "c"]), (1, ["b", "x", "a", "b"]), (2, ["c"]), (2, ["b", "c"])]
    users = group_users([post_block(posts, SOURCE.check)], user_per_document=False, source=SOURCE)
    words = first([b"a", b"b", b"c"], SOURCE.digest("token"))
    pairs = filter_valid(users, words, words, pruning)
    assert grams_of(pairs) == {(0, 1): 2, (1, 2): 2}  # no pair with x, and none across posts
    level = words.extend(pack_keys(np.array([0]), np.array([1])), np.array([5]), 1.0, 0.0, pruning)  # ab alone
    assert grams_of(filter_valid(pairs, words, level, pruning)) == ({} if pruning == "both" else {(0, 2): 1})
    level = words.extend(pack_keys(np.array([0, 1]), np.array([1, 2])), np.array([5, 5]), 1.0, 0.0, pruning)
    assert grams_of(filter_valid(pairs, words, level, pruning)) == {(0, 2): 1}

"""Posts as columns: cut by user, and joined again."""

import numpy as np
from helpers.blocks import post_block

from dpngram.transforms.blocks.posts import concatenate_posts, narrow, spans, split_posts


def plain(block):
    """[(user, tokens)] of a block."""
    words = block.vocabulary.to_pylist()
    runs = np.split(block.ids, np.cumsum(block.lengths)[:-1])
    return [(int(user), [words[i].decode() for i in run]) for user, run in zip(block.user[:, 0], runs, strict=True)]


POSTS = [(5, ["a", "b", "a"]), (6, ["c"]), (8, ["b"]), (5, ["d", "c"]), (6, ["a", "d"])]


def test_all_posts_of_a_user_go_to_one_shard_with_the_words_they_need():
    parts = dict(split_posts(post_block(POSTS), 3))
    assert sorted(parts) == [0, 2]
    assert plain(parts[0]) == [(6, ["c"]), (6, ["a", "d"])]
    assert plain(parts[2]) == [(5, ["a", "b", "a"]), (8, ["b"]), (5, ["d", "c"])]
    assert parts[0].vocabulary.to_pylist() == [b"a", b"c", b"d"]  # and no word of the others
    ((number, whole),) = split_posts(post_block(POSTS), 1)
    assert (number, plain(whole)) == (0, POSTS)


def test_parts_are_joined_with_one_dictionary():
    joined = concatenate_posts([post_block(POSTS[:2]), post_block(POSTS[2:])])
    assert plain(joined) == POSTS
    assert joined.vocabulary.to_pylist() == [b"a", b"b", b"c", b"d"]


def test_narrow_and_spans():
    assert narrow(np.array([0, 255])).dtype == np.uint8
    assert narrow(np.array([256])).dtype == np.uint16
    assert narrow(np.zeros(0, np.int64)).dtype == np.uint8
    assert spans(np.array([7, 0, 3]), np.array([2, 0, 3])).tolist() == [7, 8, 3, 4, 5]
    assert spans(np.zeros(0, np.int64), np.zeros(0, np.int64)).tolist() == []

"""Users as columns: an empty position after each post."""

import itertools

from helpers.blocks import post_block

from dpngram.transforms.group_users import group_users
from dpngram.transforms.testing import key_source


def test_positions_that_hold_a_token():
    source = key_source(b"k" * 32)
    posts = post_block([(5, ["a", "b"]), (6, ["c"]), (5, ["a"])], source.check)
    users = group_users([posts], user_per_document=False, source=source)
    assert len(users) == 2
    held = [users.occupied()[start:end].tolist() for start, end in itertools.pairwise(users.user_start)]
    assert held == [[True, True, False, True, False], [True, False]]

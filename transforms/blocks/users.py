"""Users as columns: all posts of a user side by side.

A block lays the posts of its users out on a line of positions, with an empty position after each post, so that no gram
crosses a boundary.
"""

import abc
import dataclasses

import numpy as np

from dpngram.transforms.blocks.columns import Array, Block, empty_column, register_block
from dpngram.transforms.blocks.levels import Level

__all__ = ["UserBlock", "Users"]


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class Users(Block, abc.ABC):
    """Some users, whole: no user is in two blocks. Level 1 reads their tokens, later levels their valid grams."""

    user: Array  # uint64, one per user: names the user in the clipping draw
    user_start: Array  # int32, users + 1: ranges of positions
    # One per user; empty where the policy keeps no budgets (see policies/budgets.py):
    budget: Array = empty_column(np.uint64)  # what is left
    allowance: Array = empty_column(np.uint64)  # what this level may spend of it
    is_last: Array = empty_column(np.bool_)  # whether the user's text can reach no higher level

    def __len__(self) -> int:
        return len(self.user)

    @abc.abstractmethod
    def occupied(self) -> Array:
        """Which positions hold a candidate of this level."""

    @abc.abstractmethod
    def rows_at(self, level: Level) -> Array:
        """The row of this level that starts at each position, -1 where none does. The level is that of the block."""

    @abc.abstractmethod
    def tokens(self) -> tuple[Array, Array]:
        """The token at each position as a row of a dictionary, one past its end where a post ends; and the dictionary,
        as digests. Both are empty where nothing needs them any more.
        """


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class UserBlock(Users):
    """The users of one shard with their tokens. It is made once, and the whole release depends on its content."""

    ids: Array  # per position, the token as a row of the dictionary; one past its end where a post ends
    fingerprint: Array  # (2,) uint64: the sum over posts of a PRF of (user, tokens), and over bad records; mod 2^128
    digests: Array  # (dictionary, 2) uint64: keyed digest of the token
    token_offsets: Array  # int64, dictionary + 1
    token_bytes: Array  # uint8
    # (3,) int64, for the gate: users with a post or a bad record, those with a bad record, bad records without a user.
    # A user who has nothing but bad records is counted here and is nowhere else in the block.
    counts: Array = empty_column(np.int64, shape=(3,))

    def occupied(self) -> Array:
        occupied: Array = self.ids != len(self.digests)
        return occupied

    def rows_at(self, level: Level) -> Array:
        return np.take(np.append(level.find_tokens(self.digests), np.int32(-1)), self.ids)

    def tokens(self) -> tuple[Array, Array]:
        return self.ids, self.digests

"""Users as columns: all posts of a user side by side.

A `UserBlock` lays the posts of its users out on a line of positions, with an empty position after each post, so
that no gram crosses a boundary. It is made once, and its content is what the whole release depends on.
"""

import dataclasses

from dpngram.transforms.blocks.columns import Array, Block, register_block

__all__ = ["UserBlock"]


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class UserBlock(Block):
    """Some users, whole: no user is in two blocks."""

    user: Array  # uint64, one per user: names the user in the clipping draw
    user_start: Array  # int32, users + 1: ranges of positions
    ids: Array  # per position, the token as a row of the dictionary; one past its end where a post ends
    fingerprint: Array  # (2,) uint64: the sum over posts of a PRF of (user, tokens), mod 2^128
    digests: Array  # (dictionary, 2) uint64: keyed digest of the token
    token_offsets: Array  # int64, dictionary + 1
    token_bytes: Array  # uint8
    # Policy plus only (empty otherwise), one per user, see budgets.py:
    budget: Array  # uint64: what is left
    allowance: Array  # uint64: what this level may spend of it

    def __len__(self) -> int:
        return len(self.user)

    def held(self) -> Array:
        """Which positions hold a token."""
        held: Array = self.ids != len(self.digests)
        return held

"""Documents as columns: what a reader, or the graph of a host, hands over."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dpngram.transforms.blocks.columns import Array, Block, binary_array, empty_column, register_block, split_binary

__all__ = ["DocumentBlock"]


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class DocumentBlock(Block):
    """Documents as columns. With `token_bounds` the strings are tokens, and the bounds cut them into documents.

    A block also tells of bad records, without their content: `bad_users` has the user of each whose user is known, and
    `unnamed_bad` counts the others. The gate needs them, see `DecideRelease`.
    """

    offsets: Array  # int64: where each string begins in `data`
    data: Array  # uint8: UTF-8
    user_offsets: Array = empty_column(np.int64)  # empty if every document is a separate user
    user_bytes: Array = empty_column(np.uint8)
    token_bounds: Array = empty_column(np.int64)  # empty if the strings are texts
    bad_user_offsets: Array = empty_column(np.int64)
    bad_user_bytes: Array = empty_column(np.uint8)
    unnamed_bad: int = 0

    @classmethod
    def from_texts(cls, users: pa.Array | None, texts: pa.Array) -> "DocumentBlock":
        """From Arrow columns of strings without nulls. Without `users` every text is a separate user."""
        offsets, data = split_binary(texts)
        if users is None:
            return cls(offsets=offsets, data=data)
        user_offsets, user_bytes = split_binary(users)
        return cls(offsets=offsets, data=data, user_offsets=user_offsets, user_bytes=user_bytes)

    @classmethod
    def from_tokens(cls, users: pa.Array | None, tokens: pa.Array, bounds: Array) -> "DocumentBlock":
        """From Arrow columns: all tokens of all documents in a row, and where each document begins."""
        return dataclasses.replace(cls.from_texts(users, tokens), token_bounds=np.asarray(bounds, np.int64))

    @classmethod
    def from_bad_records(cls, users: Sequence[bytes], unnamed: int) -> "DocumentBlock":
        """A block without documents, from the users of bad records and the number of those without a user."""
        bad_user_offsets, bad_user_bytes = split_binary(pa.array(sorted(set(users)), pa.large_binary()))
        return cls(
            offsets=np.zeros(1, np.int64),
            data=np.zeros(0, np.uint8),
            bad_user_offsets=bad_user_offsets,
            bad_user_bytes=bad_user_bytes,
            unnamed_bad=unnamed,
        )

    @property
    def bad_users(self) -> pa.Array | None:
        """Users with a bad record; None if there is none."""
        return binary_array(self.bad_user_offsets, self.bad_user_bytes) if len(self.bad_user_offsets) > 1 else None

    @property
    def users(self) -> pa.Array | None:
        return binary_array(self.user_offsets, self.user_bytes) if len(self.user_offsets) else None

"""Documents as columns: what a reader, or the graph of a host, hands over."""

import dataclasses

import numpy as np
import pyarrow as pa

from dpngram.transforms.blocks.columns import Array, Block, binary_array, empty_column, register_block, split_binary

__all__ = ["DocumentBlock"]


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class DocumentBlock(Block):
    """Documents as columns. With `token_bounds` the strings are tokens, and the bounds cut them into documents."""

    offsets: Array  # int64: where each string begins in `data`
    data: Array  # uint8: UTF-8
    user_offsets: Array = empty_column(np.int64)  # empty if every document is a separate user
    user_bytes: Array = empty_column(np.uint8)
    token_bounds: Array = empty_column(np.int64)  # empty if the strings are texts

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

    @property
    def users(self) -> pa.Array | None:
        return binary_array(self.user_offsets, self.user_bytes) if len(self.user_offsets) else None

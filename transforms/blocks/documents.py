"""Documents as columns: what a reader or a host's graph hands over."""

import dataclasses

import numpy as np
import pyarrow as pa

from dpngram.transforms.blocks.columns import Array, Block, binary_array, register_block, split_binary

__all__ = ["DocumentBlock"]


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class DocumentBlock(Block):
    """Documents as columns. With `token_bounds` the strings are tokens, and the bounds cut them into documents."""

    user_offsets: Array  # int64; empty if every document is a user of its own
    user_bytes: Array
    offsets: Array  # int64
    data: Array  # uint8: UTF-8
    token_bounds: Array  # int64; empty if the strings are texts

    @classmethod
    def from_texts(cls, users: pa.Array | None, texts: pa.Array) -> "DocumentBlock":
        """From Arrow columns of strings without nulls."""
        user_offsets, user_bytes = split_binary(users) if users is not None else (np.zeros(0, np.int64), _NO_BYTES)
        offsets, data = split_binary(texts)
        return cls(
            user_offsets=user_offsets,
            user_bytes=user_bytes,
            offsets=offsets,
            data=data,
            token_bounds=np.zeros(0, np.int64),
        )

    @classmethod
    def from_tokens(cls, users: pa.Array | None, tokens: pa.Array, bounds: Array) -> "DocumentBlock":
        """From Arrow columns: all tokens of all documents in a row, and where each document begins."""
        return dataclasses.replace(cls.from_texts(users, tokens), token_bounds=np.asarray(bounds, np.int64))

    @property
    def users(self) -> pa.Array | None:
        return binary_array(self.user_offsets, self.user_bytes) if len(self.user_offsets) else None


_NO_BYTES = np.zeros(0, np.uint8)

"""Documents as columns: what a reader, or the graph of a host, hands over."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from dpngram.transforms.blocks.columns import Array, Block, binary_array, empty_column, register_block, split_binary
from dpngram.transforms.blocks.posts import spans

__all__ = ["DocumentBlock", "join_documents", "keep_order"]


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class DocumentBlock(Block):
    """Documents as columns. With `token_bounds` the strings are tokens, and the bounds cut them into documents.

    With `times` each document has its own time, and is in the windows of that time, whatever window the block is in.

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
    times: Array = empty_column(np.int64)  # milliseconds; empty if the documents have the time of the element

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
    def rows(self) -> int:
        """The number of documents."""
        return len(self.token_bounds if len(self.token_bounds) else self.offsets) - 1

    def take(self, rows: Array) -> "DocumentBlock":
        """These documents, without the bad records.

        >>> block = DocumentBlock.from_tokens(pa.array(["u", "v"]), pa.array(["a", "b", "c"]), np.array([0, 1, 3]))
        >>> taken = block.take(np.array([1, 0, 1]))
        >>> taken.users.to_pylist(), binary_array(taken.offsets, taken.data).to_pylist(), taken.token_bounds.tolist()
        ([b'v', b'u', b'v'], [b'b', b'c', b'a', b'b', b'c'], [0, 2, 3, 5])
        """
        strings, bounds = rows, self.token_bounds
        if len(bounds):
            lengths = np.diff(bounds)[rows]
            strings, bounds = spans(bounds[rows], lengths), np.append(0, np.cumsum(lengths))
        offsets, data = split_binary(binary_array(self.offsets, self.data).take(pa.array(strings)))
        user_offsets, user_bytes = self.user_offsets, self.user_bytes
        if len(user_offsets):
            user_offsets, user_bytes = split_binary(binary_array(user_offsets, user_bytes).take(pa.array(rows)))
        return DocumentBlock(
            offsets=offsets,
            data=data,
            user_offsets=user_offsets,
            user_bytes=user_bytes,
            token_bounds=bounds,
            times=self.times[rows] if len(self.times) else self.times,
        )

    @property
    def bad_users(self) -> pa.Array | None:
        """Users with a bad record; None if there is none."""
        return binary_array(self.bad_user_offsets, self.bad_user_bytes) if len(self.bad_user_offsets) > 1 else None

    @property
    def users(self) -> pa.Array | None:
        return binary_array(self.user_offsets, self.user_bytes) if len(self.user_offsets) else None


def keep_order(parts: Sequence[tuple[Array, DocumentBlock]]) -> Iterator[DocumentBlock]:
    """The same documents in blocks in which those of each user come in the order in which they arrived.

    Documents are sorted by kind, and kinds come one after another, in an order that follows from whoever was first.
    Where the order of a user's documents matters (`admission.admit`), it must not follow from other users. So a user
    whose next document is of an earlier kind begins another round of all kinds.

    Args:
        parts: documents of one kind with their users, and for each its place among all, which rises in each part.
    """
    if len(parts) < 2:
        yield from (block for _, block in parts)
        return
    users = pa.concat_arrays(
        [binary_array(block.user_offsets, block.user_bytes).cast(pa.large_binary()) for _, block in parts]
    ).dictionary_encode()
    user = users.indices.to_numpy(zero_copy_only=False)
    part = np.repeat(np.arange(len(parts)), [block.rows for _, block in parts])
    order = np.lexsort((np.concatenate([places for places, _ in parts]), user))
    user, kind = user[order], part[order]
    turns = np.append(0, np.cumsum((np.diff(user) == 0) & (np.diff(kind) < 0)))
    starts = np.flatnonzero(np.append(True, np.diff(user) != 0)[: len(user)])
    rounds = np.zeros(len(user), np.int64)
    rounds[order] = turns - np.repeat(turns[starts], np.diff(np.append(starts, len(user))))
    for number in np.unique(rounds).tolist():
        for at, (_, block) in enumerate(parts):
            rows = np.flatnonzero(rounds[part == at] == number)
            if len(rows):
                yield block if len(rows) == block.rows else block.take(rows)


def join_documents(blocks: Sequence[DocumentBlock]) -> list[DocumentBlock]:
    """The same documents and bad records, without times, in as few blocks as there are kinds of documents."""
    kinds: dict[tuple[bool, bool], list[DocumentBlock]] = {}
    for block in blocks:
        kinds.setdefault((block.users is None, len(block.token_bounds) > 0), []).append(block)
    return [same[0] if len(same) == 1 else _join(same) for same in kinds.values()]


def _join(blocks: Sequence[DocumentBlock]) -> DocumentBlock:
    offsets, data = _join_strings([binary_array(block.offsets, block.data) for block in blocks])
    users = [block.users for block in blocks if block.users is not None]
    user_offsets, user_bytes = _join_strings(users) if users else (blocks[0].user_offsets, blocks[0].user_bytes)
    bad = [block.bad_users for block in blocks if block.bad_users is not None]
    bad_user_offsets, bad_user_bytes = (
        _join_strings([pa.concat_arrays(bad).unique()]) if bad else (blocks[0].bad_user_offsets, _NO_BYTES)
    )
    bounds = blocks[0].token_bounds
    if len(bounds):
        bounds = np.append(0, np.cumsum(np.concatenate([np.diff(block.token_bounds) for block in blocks])))
    return DocumentBlock(
        offsets=offsets,
        data=data,
        user_offsets=user_offsets,
        user_bytes=user_bytes,
        token_bounds=bounds,
        bad_user_offsets=bad_user_offsets,
        bad_user_bytes=bad_user_bytes,
        unnamed_bad=sum(block.unnamed_bad for block in blocks),
    )


_NO_BYTES: Array = np.zeros(0, np.uint8)


def _join_strings(arrays: Sequence[pa.Array]) -> tuple[Array, Array]:
    return split_binary(pa.concat_arrays([array.cast(pa.large_binary()) for array in arrays]))

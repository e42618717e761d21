"""Posts as columns: who wrote them and their tokens, cut into shards so that a user's posts meet again."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from dpngram.transforms.blocks.columns import Array, Block, binary_array, empty_column, register_block, split_binary

__all__ = ["PostBlock", "concatenate_posts", "narrow", "spans", "split_posts"]


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class PostBlock(Block):
    """Posts with at least one token each; and whose records were bad, see `DocumentBlock`."""

    user: Array  # (posts, 2) uint64: keyed digest of the user id
    lengths: Array  # int32: tokens per post
    ids: Array  # tokens, as rows of the dictionary; the narrowest unsigned integers that hold them
    token_lengths: Array  # bytes of each token of the dictionary; narrow as well
    token_bytes: Array  # uint8
    key_check: int  # which key made the digests
    # (posts, 2) uint64: keyed digest of the tokens; empty where `user` is that digest
    sequence: Array = empty_column(np.uint64, shape=(0, 2))
    bad: Array = empty_column(np.uint64, shape=(0, 2))  # (users, 2) uint64: keyed digests of users with a bad record
    unnamed_bad: int = 0  # bad records without a user

    def __len__(self) -> int:
        return len(self.user)

    @property
    def vocabulary(self) -> pa.Array:
        """The dictionary as an Arrow column."""
        return binary_array(np.append(0, np.cumsum(self.token_lengths, dtype=np.int64)), self.token_bytes)


def split_posts(block: PostBlock, shards: int) -> Iterator[tuple[int, PostBlock]]:
    """Cuts a block by user, so that all posts of a user go to one shard, with the dictionary each part needs.

    A user's bad records go to the same shard. Those without a user go to the first.

    Three posts, "a b", "c" and "b", of the users 4, 7 and 4: even users go to shard 0.

    >>> posts = PostBlock(user=np.array([[4, 0], [7, 0], [4, 0]], np.uint64), lengths=np.array([2, 1, 1], np.int32),
    ...     ids=np.array([0, 1, 2, 1]), token_lengths=np.array([1, 1, 1]), token_bytes=np.frombuffer(b"abc", np.uint8),
    ...     key_check=0)
    >>> for shard, part in split_posts(posts, 2):
    ...     print(shard, part.lengths.tolist(), part.ids.tolist(), part.vocabulary.to_pylist())
    0 [2, 1] [0, 1, 1] [b'a', b'b']
    1 [1] [0] [b'c']
    """
    shard = (block.user[:, 0] % np.uint64(shards)).astype(np.int64)
    order = np.argsort(shard, kind="stable")
    ends = np.cumsum(np.bincount(shard, minlength=shards))
    begins = np.cumsum(block.lengths, dtype=np.int64) - block.lengths
    vocabulary = block.vocabulary
    used = np.empty(len(vocabulary), np.int32)
    bad_shard = block.bad[:, 0] % np.uint64(shards)
    for number, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        bad = block.bad[bad_shard == number] if len(bad_shard) else block.bad
        unnamed_bad = 0 if number else block.unnamed_bad
        if start == end and not len(bad) and not unnamed_bad:
            continue
        rows = order[start:end]
        ids = np.take(block.ids, spans(begins[rows], block.lengths[rows]))
        kept = _distinct(ids, len(vocabulary))
        used[kept] = np.arange(len(kept), dtype=np.int32)
        offsets, data = split_binary(vocabulary.take(pa.array(kept)))
        yield (
            number,
            PostBlock(
                user=block.user[rows],
                sequence=block.sequence[rows] if len(block.sequence) else block.sequence,
                lengths=block.lengths[rows],
                ids=np.take(used, ids).astype(np.min_scalar_type(len(kept))),
                token_lengths=narrow(np.diff(offsets)),
                token_bytes=data,
                key_check=block.key_check,
                bad=bad,
                unnamed_bad=unnamed_bad,
            ),
        )


def concatenate_posts(blocks: Sequence[PostBlock]) -> PostBlock:
    """One block from several. A token in several dictionaries appears once in the joint one."""
    encoded = pa.chunked_array([block.vocabulary for block in blocks]).combine_chunks().dictionary_encode()
    row = encoded.indices.to_numpy(zero_copy_only=False)
    starts = np.cumsum([0, *(len(block.token_lengths) for block in blocks)])
    offsets, data = split_binary(encoded.dictionary)
    return PostBlock(
        user=np.concatenate([block.user for block in blocks]),
        sequence=np.concatenate([block.sequence for block in blocks]),
        lengths=np.concatenate([block.lengths for block in blocks]),
        ids=np.concatenate([np.take(row[start:], block.ids) for start, block in zip(starts, blocks, strict=False)]),
        token_lengths=narrow(np.diff(offsets)),
        token_bytes=data,
        key_check=blocks[0].key_check,
        bad=np.concatenate([block.bad for block in blocks]),
        unnamed_bad=sum(block.unnamed_bad for block in blocks),
    )


def _distinct(ids: Array, vocabulary: int) -> Array:
    """The rows of the dictionary that occur, in order. A small part of many does not look at the whole dictionary."""
    if len(ids) < vocabulary >> 4:
        return np.unique(ids)
    present = np.zeros(vocabulary, bool)
    present[ids] = True
    return np.flatnonzero(present)


def narrow(lengths: Array) -> Array:
    """The same numbers in the narrowest unsigned type that holds them."""
    return lengths.astype(np.min_scalar_type(int(lengths.max(initial=0))))


def spans(starts: Array, lengths: Array) -> Array:
    """The indices starts[0], starts[0]+1, ... (lengths[0] of them), starts[1], ...: a gather of whole runs."""
    ends = np.cumsum(lengths, dtype=np.int64)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)

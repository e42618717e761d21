"""Posts as columns: who wrote them and their tokens, cut into shards so that a user's posts meet again."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dpngram.transforms.columns import Block, binary_array, register_block, split_binary
from dpngram.transforms.keyed import Prf
from dpngram.transforms.tokenizers import TokenColumn

__all__ = ["PostBlock", "PostDigests", "concatenate_posts", "make_posts", "split_posts"]

Array = np.ndarray[Any, Any]


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class PostBlock(Block):
    """Posts with at least one token each."""

    user: Array  # (posts, 2) uint64: keyed digest of the user id
    sequence: Array  # (posts, 2) uint64: keyed digest of the tokens; empty where `user` is that digest
    lengths: Array  # int32: tokens per post
    ids: Array  # tokens, as rows of the dictionary; the narrowest unsigned integers that hold them
    digests: Array  # (dictionary, 2) uint64: keyed digest of the token
    token_offsets: Array  # int64, dictionary + 1
    token_bytes: Array  # uint8

    def __len__(self) -> int:
        return len(self.user)


@dataclasses.dataclass(frozen=True)
class PostDigests:
    """The keyed functions that name users, tokens and posts before anything else is known of the content."""

    user: Prf
    token: Prf
    post: Prf


def make_posts(users: pa.Array | None, column: TokenColumn, digests: PostDigests) -> PostBlock:
    """A block from tokenised records. Without `users` every record is a user of its own.

    Such users have no id; their tokens stand in for it, and `group_users` tells equal ones apart by number.
    Nothing may depend on where in which file a record lies, or a permutation of the input would draw other noise.
    """
    offsets, data = split_binary(column.vocabulary)
    tokens = digests.token.strings(offsets, data)
    sequence = digests.post.sequences(np.take(tokens, column.ids, axis=0), column.bounds)
    if users is None:
        user, sequence = sequence, sequence[:0]
    else:
        encoded = users.dictionary_encode()
        distinct = digests.user.strings(*split_binary(encoded.dictionary))
        user = distinct[encoded.indices.to_numpy(zero_copy_only=False)[column.record]]
    return PostBlock(
        user=user,
        sequence=sequence,
        lengths=np.diff(column.bounds).astype(np.int32),
        ids=column.ids,
        digests=tokens,
        token_offsets=offsets,
        token_bytes=data,
    )


def split_posts(block: PostBlock, shards: int) -> Iterator[tuple[int, PostBlock]]:
    """Cuts a block by user, so that all posts of a user go to one shard, with the dictionary each part needs."""
    shard = (block.user[:, 0] % np.uint64(shards)).astype(np.int64)
    order = np.argsort(shard, kind="stable")
    ends = np.cumsum(np.bincount(shard, minlength=shards))
    begins = np.cumsum(block.lengths, dtype=np.int64) - block.lengths
    vocabulary = binary_array(block.token_offsets, block.token_bytes)
    used = np.empty(len(block.digests), np.int32)
    for number, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        if start == end:
            continue
        rows = order[start:end]
        ids = np.take(block.ids, spans(begins[rows], block.lengths[rows]))
        present = np.zeros(len(block.digests), bool)
        present[ids] = True
        kept = np.flatnonzero(present)
        used[kept] = np.arange(len(kept), dtype=np.int32)
        offsets, data = split_binary(vocabulary.take(pa.array(kept)))
        yield (
            number,
            PostBlock(
                user=block.user[rows],
                sequence=block.sequence[rows] if len(block.sequence) else block.sequence,
                lengths=block.lengths[rows],
                ids=np.take(used, ids).astype(np.min_scalar_type(len(kept))),
                digests=block.digests[kept],
                token_offsets=offsets,
                token_bytes=data,
            ),
        )


def concatenate_posts(blocks: Sequence[PostBlock]) -> PostBlock:
    """One block from several. A token in two dictionaries appears once in the joint one, sorted by digest."""
    digests = np.concatenate([block.digests for block in blocks])
    order = np.lexsort((digests[:, 1], digests[:, 0]))
    ordered = digests[order]
    first = np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1))[: len(ordered)]
    row = np.empty(len(digests), np.int32)
    row[order] = np.cumsum(first, dtype=np.int32) - np.int32(1)
    starts = np.cumsum([0, *(len(block.digests) for block in blocks)])
    vocabulary = pa.chunked_array([binary_array(block.token_offsets, block.token_bytes) for block in blocks])
    offsets, data = split_binary(vocabulary.take(pa.array(order[first])).combine_chunks())
    return PostBlock(
        user=np.concatenate([block.user for block in blocks]),
        sequence=np.concatenate([block.sequence for block in blocks]),
        lengths=np.concatenate([block.lengths for block in blocks]),
        ids=np.concatenate([row[start:][block.ids] for start, block in zip(starts, blocks, strict=False)]),
        digests=ordered[first],
        token_offsets=offsets,
        token_bytes=data,
    )


def spans(starts: Array, lengths: Array) -> Array:
    """The indices starts[0], starts[0]+1, ... (lengths[0] of them), starts[1], ...: a gather of whole runs."""
    ends = np.cumsum(lengths, dtype=np.int64)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)

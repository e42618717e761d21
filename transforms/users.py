"""Users as columns: all posts of a user side by side.

A `UserBlock` lays the posts of its users out on a line of positions, with an empty position after each post, so
that no gram crosses a boundary. It is made once, and its content is what the whole release depends on.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np

from dpngram.transforms.columns import Block, register_block, split_binary
from dpngram.transforms.keys import KeySource, Randomness
from dpngram.transforms.levels import Array
from dpngram.transforms.posts import PostBlock, concatenate_posts, spans
from dpngram.transforms.windows import window_name

__all__ = ["BindRelease", "FingerprintUsers", "GroupUsers", "UserBlock", "group_users", "sum_digests"]


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


def group_users(blocks: Iterable[PostBlock], *, solo: bool, source: KeySource) -> UserBlock:
    """All posts of one shard as users. `solo`: each post is a user, and equal ones are told apart by number.

    Privacy: this is where a user becomes one contribution, however many files and bundles the posts came from.
    """
    pieces = list(blocks)
    for piece in pieces:
        source.verify(int(piece.key_check))
        if len(piece.sequence) != (0 if solo else len(piece)):
            raise ValueError("documents must have users, unless every document is a user of its own.")
    posts = concatenate_posts(pieces)
    digest = source.digest("group")
    content = digest.pairs(posts.user, posts.user if solo else posts.sequence)
    order = np.lexsort((posts.user[:, 1], posts.user[:, 0]))
    user = posts.user[order]
    head = np.append(True, (user[1:] != user[:-1]).any(axis=1))[: len(user)]
    if solo:
        place = np.arange(len(user))
        copy = place - np.maximum.accumulate(np.where(head, place, 0))
        user = digest.pairs(digest.words(copy.astype(np.uint64), 0), user)
        head = np.ones(len(user), bool)
    begins = np.cumsum(posts.lengths, dtype=np.int64) - posts.lengths
    lengths = posts.lengths[order]
    starts = np.cumsum(lengths + 1, dtype=np.int64) - (lengths + 1)
    total = int(starts[-1] + lengths[-1] + 1)
    if total >= 1 << 31:
        raise OverflowError("a shard of users holds 2^31 tokens or more; use more shards.")
    vocabulary = posts.vocabulary
    offsets, data = split_binary(vocabulary)
    ids = np.full(total, len(vocabulary), np.min_scalar_type(len(vocabulary)))
    ids[spans(starts, lengths)] = np.take(posts.ids, spans(begins[order], lengths))
    return UserBlock(
        user=user[head, 0],
        user_start=np.append(starts[head], total).astype(np.int32),
        ids=ids,
        fingerprint=sum_digests(content),
        digests=source.digest("token").strings(offsets, data),
        token_offsets=offsets,
        token_bytes=data,
        budget=np.zeros(0, np.uint64),
        allowance=np.zeros(0, np.uint64),
    )


def sum_digests(digests: Array) -> Array:
    """The sum of 128-bit words mod 2^128, as two words; limbs of 32 bits carry no further than 64."""
    limbs = np.ascontiguousarray(digests).view(np.uint32).reshape(-1, 4).sum(axis=0, dtype=np.uint64)
    total = sum(int(limb) << (32 * place) for place, limb in enumerate(limbs)) % (1 << 128)
    return np.frombuffer(total.to_bytes(16, "little"), np.uint64)


class GroupUsers(beam.PTransform):
    """(shard, PostBlock) -> UserBlock: every user once, with all posts of the window.

    Windowing: one block per shard and window. Privacy: nothing is released.
    """

    def __init__(self, randomness: Randomness, *, solo: bool) -> None:
        super().__init__()
        self._randomness, self._solo = randomness, solo

    def expand(self, posts: beam.PCollection[tuple[int, PostBlock]]) -> beam.PCollection[UserBlock]:
        return (
            posts
            | "ByShard" >> beam.GroupByKey()  # shard -> its posts
            | "LayOut" >> beam.ParDo(_GroupUsersDoFn(self._randomness, self._solo))
        )


class _GroupUsersDoFn(beam.DoFn):
    _source: KeySource

    def __init__(self, randomness: Randomness, solo: bool) -> None:
        self._randomness, self._solo = randomness, solo

    def setup(self) -> None:
        self._source = self._randomness.open()

    def process(self, shard: tuple[int, Iterable[PostBlock]]) -> Iterator[UserBlock]:
        yield group_users(shard[1], solo=self._solo, source=self._source)


class FingerprintUsers(beam.PTransform):
    """UserBlock -> (0, fingerprint of all content), one element. Private, and for key derivation only."""

    def expand(self, users: beam.PCollection[UserBlock]) -> beam.PCollection[tuple[int, bytes]]:
        return (
            users
            | "Block" >> beam.Map(_keyed_fingerprint)  # (0, sum of a block)
            | "Sum" >> beam.CombinePerKey(_SumFingerprints())  # (0, sum of all)
        )


class BindRelease(beam.PTransform):
    """UserBlock -> the binding of this release: the fingerprint of its content, once the key is free for it.

    The sum over all posts of a PRF of (user, tokens), taken from the very blocks that level 1 reads: the same
    for any order, split or format of the same data, and other noise for other data. It has no default: without
    it nothing can draw noise. It is private, and goes nowhere but into key derivation.
    """

    def __init__(self, randomness: Randomness) -> None:
        super().__init__()
        self._randomness = randomness

    def expand(self, users: beam.PCollection[UserBlock]) -> beam.PCollection[bytes]:
        return (
            users
            | "Fingerprint" >> FingerprintUsers()  # (0, sum of all)
            | "Bind" >> beam.ParDo(_BindDoFn(self._randomness))
        )


def _keyed_fingerprint(block: UserBlock) -> tuple[int, bytes]:
    return 0, block.fingerprint.tobytes()


@beam.typehints.with_input_types(bytes)
@beam.typehints.with_output_types(bytes)
class _SumFingerprints(beam.CombineFn):
    def create_accumulator(self) -> bytes:
        return bytes(16)

    def add_input(self, accumulator: bytes, value: bytes) -> bytes:
        total = int.from_bytes(accumulator, "little") + int.from_bytes(value, "little")
        return (total % (1 << 128)).to_bytes(16, "little")

    def merge_accumulators(self, accumulators: Iterable[bytes]) -> bytes:
        total = bytes(16)
        for accumulator in accumulators:
            total = self.add_input(total, accumulator)
        return total

    def extract_output(self, accumulator: bytes) -> bytes:
        return accumulator


class _BindDoFn(beam.DoFn):
    _source: KeySource

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness

    def setup(self) -> None:
        self._source = self._randomness.open()

    def process(self, total: tuple[int, bytes], window: Any = beam.DoFn.WindowParam) -> Iterator[bytes]:
        yield self._source.bind(window_name(window), total[1])

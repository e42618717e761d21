"""Users as columns: all posts of a user side by side, and where each gram stands.

A `UserBlock` lays the posts of its users out on a line of positions, with an empty position after each post so
that no gram crosses a boundary, and holds *postings*: for each distinct gram of the current length, sorted, the
positions at which it starts. Each level reads the postings of the one before and writes its own, so after level 1 no
token is seen again.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np

from dpngram.transforms.columns import Block, register_block
from dpngram.transforms.keyed import Prf
from dpngram.transforms.keys import KeySource, Randomness
from dpngram.transforms.levels import Array
from dpngram.transforms.posts import PostBlock, concatenate_posts, spans
from dpngram.transforms.windows import window_name

__all__ = ["BindRelease", "GroupUsers", "UserBlock", "group_users", "make_postings"]


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class UserBlock(Block):
    """Some users, whole: no user is in two blocks."""

    user: Array  # uint64, one per user: names the user in the clipping draw
    user_start: Array  # int32, users + 1: ranges of positions
    fingerprint: Array  # (2,) uint64: sum of the posts' content digests mod 2^128
    grams: Array  # uint64, sorted, distinct: keys (level >= 2) or halves of token digests (level 1)
    gram_start: Array  # int32, grams + 1: ranges of `positions`
    positions: Array  # int32: where each gram starts, ascending within a gram
    words: Array  # int32 per position, the row in S_1 or -1; empty unless one-side pruning needs it
    # Level 1 only, empty afterwards: the tokens behind `grams`.
    digests: Array  # (grams, 2) uint64
    token_offsets: Array
    token_bytes: Array

    def __len__(self) -> int:
        return len(self.user)

    @property
    def length(self) -> int:
        """The number of positions."""
        return int(self.user_start[-1])

    def user_of(self, positions: Array) -> Array:
        """The user, as a row of this block, at each position."""
        rows = np.repeat(np.arange(len(self.user), dtype=np.int32), np.diff(self.user_start))
        return np.take(rows, positions)


def group_users(blocks: Iterable[PostBlock], *, solo: bool, copies: Prf) -> UserBlock:
    """All posts of one shard as users. `solo`: each post is a user, and equal ones are told apart by number.

    Privacy: this is where a user becomes one contribution, however many files and bundles the posts came from.
    """
    posts = concatenate_posts(list(blocks))
    order = np.lexsort((posts.user[:, 1], posts.user[:, 0]))
    user = posts.user[order]
    head = np.append(True, (user[1:] != user[:-1]).any(axis=1))[: len(user)]
    if solo:
        place = np.arange(len(user))
        copy = place - np.maximum.accumulate(np.where(head, place, 0))
        user = copies.encrypt(user ^ copies.words(copy.astype(np.uint64), 0))
        head = np.ones(len(user), bool)
    lengths = np.diff(posts.bounds)[order]
    starts = np.cumsum(lengths + 1) - (lengths + 1)
    total = int(starts[-1] + lengths[-1] + 1)
    if total >= 1 << 31:
        raise OverflowError("a shard of users holds 2^31 tokens or more; use more shards.")
    ids = posts.ids[spans(posts.bounds[order], lengths)]
    postings = _sorted_postings(
        ids.astype(np.uint64), len(posts.digests), spans(starts, lengths).astype(np.int32), total
    )
    rows, gram_start, positions = postings
    return UserBlock(
        user=user[head, 0],
        user_start=np.append(starts[head], total).astype(np.int32),
        fingerprint=sum_digests(posts.content),
        grams=posts.digests[:, 0],
        gram_start=gram_start,
        positions=positions,
        words=np.zeros(0, np.int32),
        digests=posts.digests,
        token_offsets=posts.token_offsets,
        token_bytes=posts.token_bytes,
    )


def make_postings(prefix: Array, last: Array, positions: Array, rows: int, words: int, length: int) -> Any:
    """Sorted (keys, ranges, positions) from one entry per position; `rows` and `words` bound prefix and last.

    Gram and position are packed into one 64-bit word, so that one sort does it. Where they do not fit, prefixes and
    last tokens are first renumbered within the block, which keeps their order.
    """
    bits = _bits(rows) + _bits(words) + _bits(length)
    if bits > 64:
        prefix_names, prefix = _renumber(prefix)
        last_names, last = _renumber(last)
        rows, words = len(prefix_names), len(last_names)
    shift = np.uint64(_bits(words))
    gram = (prefix.astype(np.uint64) << shift) | last.astype(np.uint64)
    grams, gram_start, positions = _sorted_postings(gram, 1 << (_bits(rows) + _bits(words)), positions, length)
    parent, child = grams >> shift, grams & ((np.uint64(1) << shift) - np.uint64(1))
    if bits > 64:
        parent, child = prefix_names[parent.astype(np.int64)], last_names[child.astype(np.int64)]
    return (parent.astype(np.uint64) << np.uint64(32)) | child.astype(np.uint64), gram_start, positions


def _sorted_postings(gram: Array, grams: int, positions: Array, length: int) -> tuple[Array, Array, Array]:
    shift = np.uint64(_bits(length))
    if _bits(grams) + _bits(length) <= 64:
        packed = (gram << shift) | positions.astype(np.uint64)
        packed.sort()
        gram = packed >> shift
        positions = (packed & ((np.uint64(1) << shift) - np.uint64(1))).astype(np.int32)
    else:  # a block of billions of distinct pairs: slower, but right
        order = np.argsort(gram, kind="stable")
        gram, positions = gram[order], positions[order]
    first = np.flatnonzero(np.append(True, gram[1:] != gram[:-1])[: len(gram)])
    return gram[first], np.append(first, len(gram)).astype(np.int32), positions


def _renumber(values: Array) -> tuple[Array, Array]:
    ordered = np.sort(values)
    names = ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
    return names, np.searchsorted(names, values)


def _bits(count: int) -> int:
    return max(int(count) - 1, 1).bit_length()


def sum_digests(digests: Array) -> Array:
    """The sum of 128-bit words mod 2^128, as two words; limbs of 32 bits carry no further than 64."""
    limbs = np.ascontiguousarray(digests).view(np.uint32).reshape(-1, 4).sum(axis=0, dtype=np.uint64)
    total = sum(int(limb) << (32 * place) for place, limb in enumerate(limbs)) % (1 << 128)
    return np.frombuffer(total.to_bytes(16, "little"), np.uint64)


class GroupUsers(beam.PTransform):  # type: ignore[misc]
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


class _GroupUsersDoFn(beam.DoFn):  # type: ignore[misc]
    def __init__(self, randomness: Randomness, solo: bool) -> None:
        self._randomness, self._solo = randomness, solo

    def setup(self) -> None:
        self._copies = self._randomness.open().digest("copies")

    def process(self, shard: tuple[int, Iterable[PostBlock]]) -> Iterator[UserBlock]:
        yield group_users(shard[1], solo=self._solo, copies=self._copies)


class BindRelease(beam.PTransform):  # type: ignore[misc]
    """UserBlock -> the fingerprint of the content, once the key is known to be free for it.

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
            | "Fingerprint" >> beam.Map(lambda block: block.fingerprint.tobytes()).with_output_types(bytes)
            | "Sum" >> beam.CombineGlobally(_SumFingerprints()).without_defaults()
            | "Bind" >> beam.ParDo(_BindDoFn(self._randomness))
        )


class _SumFingerprints(beam.CombineFn):  # type: ignore[misc]
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

    def get_accumulator_coder(self) -> beam.coders.Coder:
        return beam.coders.BytesCoder()


class _BindDoFn(beam.DoFn):  # type: ignore[misc]
    _source: KeySource

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness

    def setup(self) -> None:
        self._source = self._randomness.open()

    def process(self, fingerprint: bytes, window: Any = beam.DoFn.WindowParam) -> Iterator[bytes]:
        self._source.bind(window_name(window), fingerprint)
        yield fingerprint

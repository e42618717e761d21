"""GroupUsers: all posts of a user side by side. Here a user becomes one contribution."""

from collections.abc import Iterable, Iterator

import apache_beam as beam
import numpy as np

from dpngram.transforms.blocks.columns import Array, run_starts, split_binary
from dpngram.transforms.blocks.posts import PostBlock, concatenate_posts, spans
from dpngram.transforms.blocks.users import UserBlock
from dpngram.transforms.keyed_dofn import KeyedDoFn
from dpngram.transforms.messages import Message
from dpngram.transforms.randomness.noise_key import KeySource, Randomness

__all__ = ["GroupUsers", "group_users", "sum_digests"]


class GroupUsers(beam.PTransform):
    """(shard, PostBlock) -> UserBlock: every user once, with all posts of the window.

    Privacy: all posts of a user are in one block, whatever files and bundles they came from. Nothing is released.
    Windowing: one block per shard and window.

    Args:
        randomness: the same as for `PreparePosts`.
        user_per_document: the documents had no users; each post is a user.
    """

    def __init__(self, randomness: Randomness, *, user_per_document: bool = False) -> None:
        super().__init__()
        self._randomness, self._user_per_document = randomness, user_per_document

    def expand(self, posts: beam.PCollection[tuple[int, PostBlock]]) -> beam.PCollection[UserBlock]:
        return (
            posts
            | "ByShard" >> beam.GroupByKey()  # (shard, its PostBlocks)
            | "LayOut" >> beam.ParDo(_GroupUsersDoFn(self._randomness, self._user_per_document))
        )


def group_users(blocks: Iterable[PostBlock], *, user_per_document: bool, source: KeySource) -> UserBlock:
    """All posts of one shard, laid out user by user.

    With `user_per_document` each post is a user, and equal posts are told apart by number.

    The posts "a b" and "b" of one user become positions a b _ b _, with an empty position (an id past the end of the
    dictionary) after each post:

    >>> from dpngram.transforms.testing import key_source
    >>> source = key_source(bytes(32))
    >>> posts = PostBlock(user=np.array([[4, 0], [4, 0]], np.uint64), sequence=np.array([[1, 1], [2, 2]], np.uint64),
    ...     lengths=np.array([2, 1], np.int32), ids=np.array([0, 1, 1]), token_lengths=np.array([1, 1]),
    ...     token_bytes=np.frombuffer(b"ab", np.uint8), key_check=source.check)
    >>> users = group_users([posts], user_per_document=False, source=source)
    >>> len(users), users.ids.tolist(), users.user_start.tolist()
    (1, [0, 1, 2, 1, 2], [0, 5])
    >>> users.counts.tolist()  # users, users with a bad record, bad records without a user
    [1, 0, 0]

    Privacy: this is where a user becomes one contribution, however many files and bundles the posts came from. A user
    with any number of bad records counts once, too. The fingerprint covers all that the gate counts: users with a bad
    record by name, and the number of bad records without a user.
    """
    pieces = list(blocks)
    for piece in pieces:
        source.verify(piece.key_check)
        if len(piece.sequence) != (0 if user_per_document else len(piece)):
            raise ValueError(Message.NO_USERS.format())
    posts = concatenate_posts(pieces)
    digest = source.digest("group")
    content = digest.pairs(posts.user, posts.user if user_per_document else posts.sequence)
    order = np.lexsort((posts.user[:, 1], posts.user[:, 0]))
    user = posts.user[order]
    head = run_starts(user[:, 0]) | run_starts(user[:, 1])
    if user_per_document:
        place = np.arange(len(user))
        copy = place - np.maximum.accumulate(np.where(head, place, 0))
        user = digest.pairs(digest.blocks(copy.astype(np.uint64), 0), user)
        head = np.ones(len(user), bool)
    fingerprint, counts = _count_bad(posts, sum_digests(content), user[head], source)
    begins = np.cumsum(posts.lengths, dtype=np.int64) - posts.lengths
    lengths = posts.lengths[order]
    starts = np.cumsum(lengths + 1, dtype=np.int64) - (lengths + 1)
    total = int(starts[-1] + lengths[-1] + 1) if len(starts) else 0
    if total >= 1 << 31:
        raise OverflowError(Message.SHARD_TOO_LARGE.format())
    vocabulary = posts.vocabulary
    offsets, data = split_binary(vocabulary)
    ids = np.full(total, len(vocabulary), np.min_scalar_type(len(vocabulary)))
    ids[spans(starts, lengths)] = np.take(posts.ids, spans(begins[order], lengths))
    return UserBlock(
        user=user[head, 0],
        user_start=np.append(starts[head], total).astype(np.int32),
        ids=ids,
        fingerprint=fingerprint,
        digests=source.digest("token").strings(offsets, data),
        token_offsets=offsets,
        token_bytes=data,
        counts=counts,
    )


def _count_bad(posts: PostBlock, fingerprint: Array, users: Array, source: KeySource) -> tuple[Array, Array]:
    """The fingerprint with bad records in it, and the three counts of a `UserBlock`.

    Args:
        posts: of one shard.
        fingerprint: of the posts.
        users: digests of the users who have a post, each once.
        source: of the key.
    """
    bad = _distinct(posts.bad)
    everybody = len(_distinct(np.concatenate([users, bad]))) if len(bad) else len(users)
    unnamed = source.digest("unnamed").encrypt(np.zeros((1, 2), np.uint64))
    unnamed_sum = int.from_bytes(unnamed.tobytes(), "little") * posts.unnamed_bad % (1 << 128)
    parts = [fingerprint, *source.digest("bad").encrypt(bad), np.frombuffer(unnamed_sum.to_bytes(16, "little"), "u8")]
    return sum_digests(np.stack(parts)), np.array([everybody, len(bad), posts.unnamed_bad], np.int64)


def _distinct(digests: Array) -> Array:
    """The rows, each once, in order."""
    ordered = digests[np.lexsort((digests[:, 1], digests[:, 0]))]
    return ordered[run_starts(ordered[:, 0]) | run_starts(ordered[:, 1])]


def sum_digests(digests: Array) -> Array:
    """The sum of 128-bit words mod 2^128, as two words; limbs of 32 bits carry no further than 64."""
    limbs = np.ascontiguousarray(digests).view(np.uint32).reshape(-1, 4).sum(axis=0, dtype=np.uint64)
    total = sum(int(limb) << (32 * place) for place, limb in enumerate(limbs)) % (1 << 128)
    return np.frombuffer(total.to_bytes(16, "little"), np.uint64)


class _GroupUsersDoFn(KeyedDoFn):
    def __init__(self, randomness: Randomness, user_per_document: bool) -> None:
        super().__init__(randomness)
        self._user_per_document = user_per_document

    def process(self, shard: tuple[int, Iterable[PostBlock]]) -> Iterator[UserBlock]:
        yield group_users(shard[1], user_per_document=self._user_per_document, source=self._source)

"""ValidityFilter: which grams of a user's text belong to V_k."""

from collections.abc import Iterator

import apache_beam as beam
import numpy as np

from dpngram.accounting import ParameterError
from dpngram.transforms.beam_workarounds import AsWhole
from dpngram.transforms.blocks.candidates import CandidateBlock, make_postings
from dpngram.transforms.blocks.levels import EMPTY_LEVEL, Level
from dpngram.transforms.blocks.users import Users
from dpngram.transforms.context import ReleaseContext
from dpngram.transforms.policies.base import RoundPolicy
from dpngram.transforms.policies.guide import guide_weights

__all__ = ["PRUNINGS", "ValidityFilter", "filter_valid"]

# both:   V_k = (S_1 x S_{k-1}) n (S_{k-1} x S_1), the paper's rule
# single: V_k = S_{k-1} x S_1
PRUNINGS = ("both", "single")

# What is read of a level: each worker holds it while it works on users.
_COLUMNS = ("keys", "left", "right", "digests", "digest_rows")


class ValidityFilter(beam.PTransform):
    """Users -> CandidateBlock: the k-grams that each user may contribute at level k.

    The paper's CheckValidity(w, S_1, S_{k-1}): let w = xyz with single tokens x and z. Under `both` w is valid if x and
    z are in S_1, and xy and yz in S_{k-1}. Under `single` it is valid if xy is in S_{k-1}, and z in S_1.

    Both sets are side inputs, but S_1 is read only where S_{k-1} does not imply it. Every gram of S_{k-1} is made of
    tokens of S_1, and its key holds the row of its last token in S_1; so under `both`, xy and yz in S_{k-1} are enough.
    Under `single` nothing is known of z but its text: the block carries its users' token ids and digests, and they
    are looked up in S_1. At level 2, S_1 *is* S_{k-1}. Level 1 has no filter: every token is a candidate.

    Privacy: S_1 and S_{k-1} are public, so what a user may contribute is a function of the user's own text and of
    earlier releases; nothing is released here. Windowing: the sets are those of the same window.

    Args:
        policy: a round of level k; its pruning is the rule.
        context: has S_1 and S_{k-1}, see `ReleaseContext.after_level`.
    """

    def __init__(self, policy: RoundPolicy, context: ReleaseContext) -> None:
        super().__init__()
        if policy.n != context.levels + 1:
            raise ParameterError(f"level {policy.n} must follow level {policy.n - 1}, got {context.levels} levels.")
        self._context, self._pruning = context, policy.pruning

    def expand(self, users: beam.PCollection[Users]) -> beam.PCollection[CandidateBlock]:
        needs_first = self._pruning == "single" and self._context.levels > 1
        sides = self._context.sides("previous", *(["first"] if needs_first else []))
        read = {name: side.reading(*_COLUMNS) for name, side in sides.items() if isinstance(side, AsWhole)}
        return users | "Prune" >> beam.FlatMap(_prune, pruning=self._pruning, **read)


def _prune(
    users: Users, pruning: str, previous: Level = EMPTY_LEVEL, first: Level = EMPTY_LEVEL
) -> Iterator[CandidateBlock]:
    if len(previous):  # an empty S_{k-1} makes V_k empty: no user has anything to give
        valid = filter_valid(users, first if len(first) else previous, previous, pruning)
        if len(valid.grams):
            yield valid


def filter_valid(users: Users, first: Level, previous: Level, pruning: str = "both") -> CandidateBlock:
    """The valid k-grams of these users, as postings.

    Every position learns which row of S_{k-1} starts there, if any. Under `both` a k-gram at p is valid exactly when
    p and p+1 both hold one; an empty position closes each post, so p and p+1 are of one post.

    The tokens 0 1 0 1 of one post, when S_1 has both tokens as its rows 0 and 1: three bigrams, two of them distinct.

    >>> from dpngram.transforms.blocks.users import UserBlock
    >>> tokens = np.array([[7, 7], [8, 8]], np.uint64)
    >>> s1 = Level.first(np.array([0, 1, 2]), np.frombuffer(b"ab", np.uint8), tokens, np.array([9, 9]), 1.0, 1.0)
    >>> users = UserBlock(user=np.array([5], np.uint64), user_start=np.array([0, 5], np.int32),
    ...     ids=np.array([0, 1, 0, 1, 2], np.uint8), fingerprint=np.zeros(2, np.uint64), digests=tokens,
    ...     token_offsets=np.array([0, 1, 2]), token_bytes=np.frombuffer(b"ab", np.uint8))
    >>> bigrams = filter_valid(users, s1, s1)
    >>> [(int(key) >> 32, int(key) & 0xFFFFFFFF) for key in bigrams.grams], bigrams.gram_start, bigrams.positions
    ([(0, 1), (1, 0)], array([0, 2, 3], dtype=int32), array([0, 2, 1], dtype=int32))

    Args:
        users: at level 2 the UserBlock, later the candidates of level k-1.
        first: S_1; read under `single` only.
        previous: S_{k-1}, which is S_1 at level 2.
        pruning: "both" or "single".
    """
    rows = users.rows_at(previous)  # of S_{k-1}, by position
    carried = {}
    if pruning == "both":
        holds = rows >= 0
        positions = np.flatnonzero(holds[:-1] & holds[1:])
        last = previous.last[np.take(rows, positions + 1)]
    else:
        ids, digests = users.tokens()
        carried = {"token_ids": ids, "token_digests": digests}
        row_of_token = np.append(first.find_tokens(digests), np.int32(-1))  # in S_1; the end of a post is in no level
        positions = np.flatnonzero(rows[: len(rows) - previous.n] >= 0)
        last = np.take(row_of_token, np.take(ids, positions + previous.n))
        positions, last = positions[last >= 0], last[last >= 0]
    grams, gram_start, starts = make_postings(
        np.take(rows, positions),
        last,
        positions.astype(np.int32),
        prefixes=len(previous),
        lasts=previous.vocabulary_size,
        length=len(rows),
    )
    if previous.has_guide:  # the rows of prefix and suffix are at hand, in each gram's first place
        place = starts[gram_start[:-1]]
        carried["guide_weight"] = guide_weights(previous, np.take(rows, place), np.take(rows, place + 1))
    return CandidateBlock(
        user=users.user,
        user_start=users.user_start,
        grams=grams,
        gram_start=gram_start,
        positions=starts,
        budget=users.budget,
        allowance=users.allowance,
        **carried,
    )

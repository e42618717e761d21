"""Small blocks for tests."""

import numpy as np

from dpngram.transforms.blocks.candidates import CandidateBlock, make_postings
from dpngram.transforms.blocks.cells import CellBlock
from dpngram.transforms.blocks.posts import PostBlock


def candidates(users):
    """A block from, for each user, a list of gram keys; repeats allowed."""
    positions = np.arange(sum(map(len, users)), dtype=np.int32)
    keys = np.array([key for mine in users for key in mine], np.int64)
    grams, gram_start, starts = make_postings(
        np.zeros(len(keys), np.int64),
        keys,
        positions,
        prefixes=1,
        lasts=int(keys.max(initial=0)) + 1,
        length=len(keys) + 1,
    )
    return CandidateBlock(
        user=np.arange(100, 100 + len(users), dtype=np.uint64),
        user_start=np.cumsum([0, *map(len, users)]).astype(np.int32),
        grams=grams,
        gram_start=gram_start,
        positions=starts,
    )


ONE_CELL = CellBlock(
    keys=np.array([7], np.uint64),
    weight=np.array([3]),
)


def post_block(posts, check=0):
    """A block from (number of the user, tokens); `check` names the key that made it."""
    words = sorted({token for _, tokens in posts for token in tokens})
    user = np.array([number for number, _ in posts], np.uint64)
    return PostBlock(
        user=np.stack([user, user], axis=1),
        sequence=np.arange(2 * len(posts), dtype=np.uint64).reshape(-1, 2),
        lengths=np.array([len(tokens) for _, tokens in posts], np.int32),
        ids=np.array([words.index(token) for _, tokens in posts for token in tokens], np.uint8),
        token_lengths=np.array([len(word) for word in words], np.uint8),
        token_bytes=np.frombuffer("".join(words).encode(), np.uint8),
        key_check=check,
    )

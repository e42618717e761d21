"""Set unions with sets, read literally, and by the library's functions."""

import collections
import functools
import math
from fractions import Fraction

import numpy as np
from helpers.reference import UNIT, grams, to_blocks, words_of

from dpngram.transforms.baselines.named_grams import gram_digests, name_grams
from dpngram.transforms.baselines.release_unions import (
    Ceilings,
    add_ceilings,
    bucket_weights,
    union_cells,
    union_cutoffs,
)
from dpngram.transforms.blocks.cells import merge_cells
from dpngram.transforms.blocks.posts import split_posts
from dpngram.transforms.group_users import group_users
from dpngram.transforms.noisy_threshold import threshold_cells
from dpngram.transforms.prepare_posts import PostDigests, block_posts
from dpngram.transforms.randomness.draws import standard_normal
from dpngram.transforms.tokenizers import make_tokenizer

MAX_N = 4


def user_blocks(posts, source, shards):
    pieces = collections.defaultdict(list)
    for block in to_blocks(posts):
        made, _ = block_posts(block, make_tokenizer("words"), PostDigests.of(source))
        if made is not None:
            for shard, piece in split_posts(made, shards):
                pieces[shard].append(piece)
    return [group_users(piece, user_per_document=False, source=source) for piece in pieces.values()]


@functools.lru_cache(maxsize=4096)
def name(gram, source):
    """The digest of a gram, one token at a time."""
    digest = None
    for place, token in enumerate(gram):
        data = token.encode()
        word = source.digest("token").strings(np.array([0, len(data)]), np.frombuffer(data, np.uint8))
        digest = word if place == 0 else gram_digests(source, MAX_N)[place - 1].pairs(digest, word)
    return tuple(map(int, digest[0]))


def held(posts, lengths):
    return {
        user: set().union(*(grams(list(map(str, post)), n) for post in mine for n in lengths))
        for user, mine in posts.items()
    }


def literal_union(posts, query, source, draw):
    """Algorithm 3 with sets: {digest: length} of what is released, and the exact weights."""
    weight = collections.Counter()
    level = query.lengths[0] if len(query.lengths) == 1 else 0
    for user, mine in held(posts, query.lengths).items():
        data = user.encode()
        user_name = int(source.digest("user").strings(np.array([0, len(data)]), np.frombuffer(data, np.uint8))[0, 0])
        kept = sorted(mine, key=lambda g: int(words_of(draw("clip", level), user_name, name(g, source)[0])[0, 0]))
        kept = kept[: query.max_contributions]
        for gram in kept:
            weight[gram] += math.isqrt(2**64 // len(kept))
    released = {}
    step = max(1, int(Fraction(query.sigma) * UNIT / 2**14))
    for gram, exact in weight.items():
        noise = draw("noise", len(gram))
        z = float(standard_normal(words_of(noise, *name(gram, source)), noise)[0])
        if (exact + math.floor(z * (query.sigma * UNIT))) // step * step >= Fraction(query.rho) * UNIT:
            released[name(gram, source)] = len(gram)
    return released, weight


def array_union(blocks, query, source, draw, *, ceilings=None):
    """The same by the library's functions: {digest: length}, and how many cells met."""
    prfs = gram_digests(source, max(query.lengths))
    named = [list(name_grams(block, prfs)) for block in blocks]
    bounds = [
        ceilings or add_ceilings(bucket_weights(mine[n - 1], query.max_contributions) for mine in named)
        for n in query.lengths
    ]
    level = query.lengths[0] if len(query.lengths) == 1 else 0
    cells = collections.defaultdict(list)
    for mine in named:
        chosen = [mine[n - 1] for n in query.lengths]
        noises = [draw("noise", n) for n in query.lengths]
        for n, part in zip(query.lengths, union_cells(chosen, bounds, query, draw("clip", level), noises), strict=True):
            if len(part):
                cells[n].append(part)
    released, met = {}, 0
    for n, parts in cells.items():
        merged = merge_cells(parts)
        met += len(merged)
        part = threshold_cells(merged, union_cutoffs(query), lambda purpose, n=n: draw(purpose, n))
        released |= {tuple(map(int, digest)): n for digest in part.digests}
    return released, met


UNBOUNDED = Ceilings(totals=np.full(1 << 20, 2**60))

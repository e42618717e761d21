"""Small levels for tests."""

import numpy as np
import pyarrow as pa

from dpngram.transforms.blocks.columns import split_binary
from dpngram.transforms.blocks.levels import Level, pack_keys
from dpngram.transforms.randomness.prf import Prf


def first(words, digest=None):
    """S_1 of these words, with the weights 0, 1, 2, ..."""
    offsets, data = split_binary(pa.array(sorted(words), pa.large_binary()))
    digests = (digest or Prf(b"d" * 32)).strings(offsets, data)
    return Level.first(offsets, data, digests, np.arange(len(words)), 1.0, 0.0)


def chain(random, pruning, depth, density):
    """Levels 1..depth of random valid grams, and the same as sets of tuples of word rows."""
    words = int(random.integers(1, 7))
    level, grams = first([b"w%d" % i for i in range(words)]), [(i,) for i in range(words)]
    yield level, grams
    for _ in range(depth - 1):
        before = set(grams)
        valid = [
            gram for gram in ((*g, w) for g in grams for w in range(words)) if pruning == "single" or gram[1:] in before
        ]
        kept = sorted(gram for gram in valid if random.random() < density)
        row = {gram: i for i, gram in enumerate(grams)}
        keys = pack_keys(np.array([row[g[:-1]] for g in kept], np.int64), np.array([g[-1] for g in kept], np.int64))
        level = level.extend(keys, np.zeros(len(kept), np.int64), 1.0, 0.0, pruning)
        grams = kept
        yield level, grams


def first_level(count):
    """S_1 of so many words of four digits."""
    return first([b"%04d" % i for i in range(count)])

"""|V_k| and its ranks against explicit sets."""

import dataclasses
import itertools

import numpy as np
import pyarrow as pa
import pytest

from dpngram.transforms.blocks.columns import split_binary
from dpngram.transforms.blocks.levels import EMPTY_LEVEL, Level, pack_keys
from dpngram.transforms.policies.strata import Strata
from dpngram.transforms.randomness.prf import Prf


def first(words):
    offsets, data = split_binary(pa.array(sorted(words), pa.large_binary()))
    digests = Prf(b"d" * 32).strings(offsets, data)
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


@pytest.mark.parametrize("pruning", ["both", "single"])
def test_valid_count_and_ranks(pruning):
    random = np.random.default_rng(3)
    seen = 0
    for _ in range(150):
        for level, grams in chain(random, pruning, 5, 0.6):
            before = set(grams)
            words = int(level.words)
            children = {(*g, w) for g in grams for w in range(words)}
            valid = {gram for gram in children if pruning == "single" or gram[1:] in before}
            if grams and len(grams[0]) == 1:
                valid = set(itertools.product(range(words), repeat=2))
            assert level.valid(pruning) == len(valid)
            strata = Strata(level, pruning)
            assert strata.size.tolist() == [len(valid)]
            assert decode(strata.unrank(0, np.arange(len(valid))), grams) == valid
            seen += len(valid)
    assert seen > 5000


def decode(keys, grams):
    return {grams[int(key) >> 32] + (int(key) & 0xFFFFFFFF,) for key in keys}


def test_strata_against_explicit_enumeration():
    """With a prediction: the size of each stratum, the members with all its ranks, and the stratum of each member."""
    random = np.random.default_rng(4)
    seen = several = 0
    for _ in range(150):
        for level, grams in chain(random, "both", 4, 0.7):
            if not grams:
                continue
            spread = int(random.integers(1, 2000))
            columns = random.integers(-spread, spread, (2, len(grams))).astype(np.int32)
            level = dataclasses.replace(level, left=columns[0], right=columns[1])
            row = {gram: i for i, gram in enumerate(grams)}
            pairs = [(a, (*a[1:], w)) for a in grams for w in range(int(level.words)) if (*a[1:], w) in row]
            stratum = {(*a, b[-1]): columns[0][row[a]] // 256 + columns[1][row[b]] // 256 for a, b in pairs}
            low = min(stratum.values(), default=0)
            strata = Strata(level, "both")
            assert strata.size.sum() == len(stratum) == level.valid("both")
            for s, size in enumerate(strata.size.tolist()):
                keys = strata.unrank(s, np.arange(size))
                assert decode(keys, grams) == {gram for gram, place in stratum.items() if place - low == s}
                assert (strata.of(keys) == s).all()
            seen += len(stratum)
            several += len(strata.size) > 1
    assert seen > 5000
    assert several > 200


def test_find_rows_and_missing_keys():
    level = first([b"a", b"b", b"c"])
    extended = level.extend(np.array([1, (1 << 32) | 2], np.uint64), np.zeros(2, np.int64), 1.0, 0.0, "both")
    assert extended.find(np.array([0, 1, 2, (1 << 32) | 2, 2**63], np.uint64)).tolist() == [-1, 0, -1, 1, -1]
    assert EMPTY_LEVEL.find(np.array([5], np.uint64)).tolist() == [-1]


def test_find_tokens_survives_shared_halves_of_digests():
    level = first([b"a", b"b", b"c", b"d"])
    digests = level.digests.copy()
    digests[1, 0] = digests[2, 0] = digests[0, 0]
    order = np.lexsort((digests[:, 1], digests[:, 0]))
    level = dataclasses.replace(level, digests=digests[order], digest_rows=level.digest_rows[order])
    assert level.find_tokens(level.digests).tolist() == level.digest_rows.tolist()
    unknown = level.digests[:1] ^ np.array([[0, 1]], np.uint64)
    assert level.find_tokens(unknown).tolist() == [-1]


def test_a_block_survives_its_bytes():
    level = first([b"a", b"bb", b""])
    again = Level.from_bytes(level.to_bytes())
    for field in dataclasses.fields(level):
        ours, theirs = np.asarray(getattr(level, field.name)), getattr(again, field.name)
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        assert (ours == theirs).all()
    with pytest.raises(ValueError, match="not a dpngram block"):
        Level.from_bytes(b"\x80\x04pickle")

"""|V_k| and its ranks against explicit sets."""

import dataclasses

import numpy as np
import pytest
from helpers.levels import first

from dpngram.transforms.blocks.levels import EMPTY_LEVEL, Level, pack_keys


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
        ours, theirs = np.asarray(getattr(level, field.name)), np.asarray(getattr(again, field.name))
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        assert (ours == theirs).all()
    with pytest.raises(ValueError, match="not a dpngram block"):
        Level.from_bytes(b"\x80\x04pickle")


def test_grams_outside_of_v_k_are_refused():
    """Under both-side pruning a gram whose suffix was not released has no place in the next level."""
    words = first([b"a", b"b", b"c"])
    pairs = words.extend(pack_keys(np.array([0, 2]), np.array([1, 0])), np.array([5, 5]), 1.0, 0.0, "both")  # ab, ca
    valid, invalid = pack_keys(np.array([1]), np.array([1])), pack_keys(np.array([0]), np.array([2]))  # cab; abc, no bc
    assert len(pairs.extend(valid, np.array([5]), 1.0, 0.0, "both")) == 1
    with pytest.raises(ValueError, match="a gram is not in V_k"):
        pairs.extend(invalid, np.array([5]), 1.0, 0.0, "both")

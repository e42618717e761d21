"""Postings of grams, sorted."""

import numpy as np

from dpngram.transforms.blocks.candidates import make_postings


def test_wide_keys_are_renumbered():
    """Rows and words near 2^31 do not fit one word with the positions; the result is the same."""
    random = np.random.default_rng(2)
    prefix, last = random.integers(0, 2**31 - 1, 500), random.integers(0, 2**31 - 1, 500)
    prefix[::3], last[::3] = prefix[0], last[0]
    positions = random.permutation(500).astype(np.int32)
    keys, start, where = make_postings(prefix, last, positions, prefixes=2**31, lasts=2**31, length=500)
    expected = sorted(zip(((prefix << 32) | last).tolist(), positions.tolist(), strict=True))
    assert [(int(key), int(where[i])) for g, key in enumerate(keys) for i in range(start[g], start[g + 1])] == expected

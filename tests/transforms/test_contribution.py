"""Clipping and weights on small blocks."""

import math

import numpy as np
from scipy import stats

from dpngram.transforms.blocks.candidates import CandidateBlock, make_postings
from dpngram.transforms.blocks.cells import CellBlock, merge_cells
from dpngram.transforms.policies.clipping import equal_weights
from dpngram.transforms.randomness.prf import Prf


def candidates(users):
    """A block from, for each user, a list of gram keys; repeats allowed."""
    positions = np.arange(sum(map(len, users)), dtype=np.int32)
    keys = np.array([key for mine in users for key in mine], np.int64)
    grams, gram_start, starts = make_postings(
        np.zeros(len(keys), np.int64), keys, positions, rows=1, words=int(keys.max(initial=0)) + 1, length=len(keys) + 1
    )
    return CandidateBlock(
        user=np.arange(100, 100 + len(users), dtype=np.uint64),
        user_start=np.cumsum([0, *map(len, users)]).astype(np.int32),
        grams=grams,
        gram_start=gram_start,
        positions=starts,
        words=np.zeros(0, np.int32),
        guide=np.zeros(0, np.uint32),
        budget=np.zeros(0, np.uint64),
        allowance=np.zeros(0, np.uint64),
        digests=np.zeros((0, 2), np.uint64),
        token_offsets=np.zeros(1, np.int64),
        token_bytes=np.zeros(0, np.uint8),
    )


def test_a_gram_counts_once_for_each_user():
    block = candidates([[1, 1, 1, 2], [2], []])
    weight = equal_weights(block, 10, Prf(b"c" * 32))
    half = math.isqrt(2**64 // 2)
    assert dict(zip(block.grams.tolist(), weight.tolist(), strict=True)) == {1: half, 2: half + 2**32}


def test_clipping_bites_and_is_uniform():
    """Each of 12 grams is kept with probability 5/12 over 4,000 users; chi-square, flake rate 1e-6."""
    users = [list(range(12))] * 4000
    weight = equal_weights(candidates(users), 5, Prf(b"u" * 32))
    one = math.isqrt(2**64 // 5)
    kept = weight / one
    assert weight.sum() == 4000 * 5 * one
    p = 5 / 12
    # The counts of one user sum to 5: the covariance shrinks the statistic by (12-1)/12.
    statistic = ((kept - 4000 * p) ** 2 / (4000 * p * (1 - p))).sum() * 11 / 12
    assert statistic < stats.chi2.isf(1e-6, 11)
    assert kept.std() > 5


def test_clipping_differs_between_users_and_levels():
    users = [list(range(30))] * 2
    kept = [equal_weights(candidates(users[:1]), 5, Prf(bytes([key]) * 32)) > 0 for key in range(2)]
    assert (kept[0] != kept[1]).any()
    both = equal_weights(candidates(users), 5, Prf(b"\0" * 32))
    assert np.count_nonzero(both) > 5  # two users with the same grams do not keep the same ones


def test_total_squared_weight_of_a_user_is_at_most_one():
    random = np.random.default_rng(1)
    for size in [1, 2, 3, 7, 50, 1000, 4097]:
        grams = random.choice(10_000, size, replace=False).tolist()
        for cap in [1, 2, size, 5000]:
            weight = equal_weights(candidates([grams]), cap, Prf(b"x" * 32))
            assert sum(w * w for w in weight.tolist()) <= 2**64
            assert np.count_nonzero(weight) == min(size, cap)


def test_wide_keys_are_renumbered():
    """Rows and words near 2^31 do not fit one word with the positions; the result is the same."""
    random = np.random.default_rng(2)
    prefix, last = random.integers(0, 2**31 - 1, 500), random.integers(0, 2**31 - 1, 500)
    prefix[::3], last[::3] = prefix[0], last[0]
    positions = random.permutation(500).astype(np.int32)
    keys, start, where = make_postings(prefix, last, positions, rows=2**31, words=2**31, length=500)
    expected = sorted(zip(((prefix << 32) | last).tolist(), positions.tolist(), strict=True))
    assert [(int(key), int(where[i])) for g, key in enumerate(keys) for i in range(start[g], start[g + 1])] == expected


def test_draws_that_agree_are_told_apart(monkeypatch):
    """A cipher whose draws differ in their last bits only: still exactly `cap` grams of each user, the smallest."""

    class Coarse(Prf):
        def blocks(self, first, second):
            draws = np.zeros((len(first), 2), np.uint64)
            draws[:, 0] = (np.uint64(7) << np.uint64(60)) + (second * np.uint64(5)) % np.uint64(12)
            return draws

    weight = equal_weights(candidates([list(range(12))] * 3), 4, Coarse(b"c" * 32))
    one = math.isqrt(2**64 // 4)
    assert weight.tolist() == [3 * one if (gram * 5) % 12 < 4 else 0 for gram in range(12)]


def test_sums_are_exact_in_any_order():
    """Sums far beyond the 53 bits of a float, with small weights that a float would lose."""
    random = np.random.default_rng(3)
    exact, blocks = {}, []
    for _ in range(40):
        keys = np.sort(random.choice(60, 30, replace=False)).astype(np.uint64)
        weight = random.choice([1, 3, 2**32, 2**54 + 1, 2**56 + 7], 30)
        for key, value in zip(keys.tolist(), weight.tolist(), strict=True):
            exact[key] = exact.get(key, 0) + value
        empty = {"digests": np.zeros((0, 2), np.uint64), "token_bytes": np.zeros(0, np.uint8)}
        blocks.append(CellBlock(keys=keys, weight=weight, token_offsets=np.zeros(1, np.int64), **empty))
    for _ in range(5):
        random.shuffle(blocks)
        halves = [merge_cells(blocks[:17]), merge_cells(blocks[17:])]
        for merged in (merge_cells(blocks), merge_cells(halves)):
            assert dict(zip(merged.keys.tolist(), merged.weight.tolist(), strict=True)) == exact

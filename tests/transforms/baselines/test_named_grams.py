"""Grams named by their tokens."""

import collections

import numpy as np
from helpers.unions import MAX_N, held, name, user_blocks

from dpngram.transforms.baselines.count_exactly import count_users
from dpngram.transforms.baselines.named_grams import drop_long_users, gram_digests, name_grams
from dpngram.transforms.testing import key_source


def test_grams_are_named_by_their_tokens_and_stay_within_posts():
    posts = {"a": [["x", "y", "z"], ["z", "x"]], "b": [["y", "z", "x"], ["x", "y", "z"]], "c": [["z"]]}
    source = key_source(b"g" * 32)
    for shards in (1, 3):
        found = collections.Counter()
        for block in user_blocks(posts, source, shards):
            for n, named in enumerate(name_grams(block, gram_digests(source, MAX_N)), 1):
                users = count_users(named)
                assert not len(named.grams) or named.digests[:, 0].tolist() == named.grams.tolist()
                for digest, count in zip(named.digests, users, strict=True):
                    found[n, tuple(map(int, digest))] += int(count)
        expected = collections.Counter()
        for n in range(1, MAX_N + 1):
            for mine in held(posts, [n]).values():
                for gram in mine:
                    expected[n, name(gram, source)] += 1
        assert found == expected
        assert ("z", "z") not in {gram for mine in held(posts, [2]).values() for gram in mine}


def test_long_users_leave_without_a_trace():
    random = np.random.default_rng(1)
    posts = {
        f"u{i}": [list(random.choice([f"w{j}" for j in range(40)], random.integers(1, 9))) for _ in range(3)]
        for i in range(30)
    }
    kept = {user: mine for user, mine in posts.items() if sum(map(len, mine)) <= 13}
    assert 0 < len(kept) < 30
    source = key_source(b"l" * 32)
    (block,) = user_blocks(posts, source, 1)
    limited = drop_long_users(block, 13)
    (expected,) = user_blocks(kept, source, 1)
    assert sorted(limited.user) == sorted(expected.user)
    assert len(limited.digests) == len(expected.digests)

    def counts(users):
        return {
            tuple(map(int, digest)): int(size)
            for named in name_grams(users, gram_digests(source, 3))
            for digest, size in zip(named.digests, np.diff(named.gram_start), strict=True)
        }

    assert counts(limited) == counts(expected)
    assert drop_long_users(block, 0) is None
    assert drop_long_users(block, 10**6) is block

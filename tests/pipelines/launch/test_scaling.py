"""The model of docs/scaling.md against blocks as they really are."""

from pathlib import Path

import pytest
from benchmarks import blocks
from benchmarks.scaling_model import Workload, estimate, largest_level, settling_memory

from dpngram.pipelines.launch.scaling import default_shards

TOLERANCE = 0.3  # as docs/scaling.md states


def compare(sizes, shards):
    """{kind: model over measurement} for a corpus of which everything was recorded."""
    users, posts = sizes["users"].rows, sizes["posts"].rows
    tokens = sizes["posts"].tokens
    work = Workload(
        users=users,
        tokens_per_user=tokens / users,
        posts_per_user=posts / users,
        levels=blocks.PLAN.max_n,
        rounds=sum(len(blocks.PLAN.level(n).rounds) for n in range(1, blocks.PLAN.max_n + 1)),
        block_tokens=tokens * shards / sizes["posts"].blocks,
    )
    model = estimate(work, shards)
    candidates = sum(size.encoded for kind, size in sizes.items() if kind.startswith("candidates"))
    assert candidates < model.candidates_bound
    return {
        "posts": model.posts / sizes["posts"].encoded,
        "users": model.users / sizes["users"].encoded,
        "candidates": model.candidates / candidates,
        "cells": model.cells / sizes["cells"].encoded,
    }


@pytest.mark.parametrize(("users", "shards"), [(20_000, 4), (20_000, 16), (100_000, 16)])
def test_model_and_blocks_of_the_synthetic_corpus(users, shards):
    sizes = blocks.measure(blocks.synthetic(users, seed=1), blocks.PLAN, shards=shards)
    ratios = compare(sizes, shards)
    largest = max(size.rows for kind, size in sizes.items() if kind.startswith("table"))
    ratios["largest level"] = largest_level(users)[0] / largest
    assert {kind: ratio for kind, ratio in ratios.items() if not 1 - TOLERANCE < ratio < 1 + TOLERANCE} == {}, ratios


def test_model_and_blocks_of_english_posts():
    data = Path(__file__).resolve().parents[4] / "shared" / "data"
    if not (data / "reddit_posts.jsonl.gz").exists():
        pytest.skip("needs the English posts: put reddit_posts.jsonl.gz into ../shared/data beside the checkout")
    ratios = compare(blocks.measure(blocks.english(data), blocks.PLAN, shards=32), 32)
    assert {kind: ratio for kind, ratio in ratios.items() if not 1 - TOLERANCE < ratio < 1 + TOLERANCE} == {}, ratios


def test_rounds_of_the_default_workload():
    assert Workload(users=1).rounds == sum(len(blocks.PLAN.level(n).rounds) for n in range(1, 10))


@pytest.mark.parametrize(
    ("size", "shards"),
    [
        (0, 16),
        (64 << 20, 16),
        (1 << 30, 256),
        (16 << 30, 4096),
        (256 << 30, 4096),  # blocks grow instead
        (512 << 30, 8192),
        (1 << 50, 1 << 16),
    ],
)
def test_default_shards(size, shards):
    assert default_shards(size) == shards


def test_a_billion_users_fit():
    """The table of docs/scaling.md: no block near 2^31 tokens, and the memory that it names."""
    for users, shards, memory in ((10**6, 66, 0.05e9), (10**8, 4096, 0.1e9), (10**9, 4173, 0.75e9)):
        model = estimate(Workload(users=users))
        assert model.shards == shards
        assert users * 50 / shards < 2**31 / 100
        assert model.block_memory < memory
    assert 4e9 < estimate(Workload(users=10**9)).worker_memory(50e6) < 4.5e9


@pytest.mark.parametrize(
    ("size", "shards"), [(0, 16), (1 << 30, 256), (3 << 30, 768), (16 << 30, 1024), (1 << 50, 1024)]
)
def test_shards_of_a_local_run(size, shards):
    """Fewer: what travels between readers and shards is in memory, if only as references."""
    assert default_shards(size, local=True) == shards


def test_the_largest_level_of_a_billion_users():
    """The table of docs/scaling.md: grams, and the memory of the worker that makes the level from its parts."""
    low, high = largest_level(10**9)
    assert (round(low, -6), round(high, -6)) == (76e6, 265e6)
    assert (round(settling_memory(low), -9), round(settling_memory(high), -9)) == (14e9, 47e9)
    worker = estimate(Workload(users=10**9)).worker_memory
    assert (round(worker(low), -9), round(worker(high), -9)) == (6e9, 18e9)


def test_the_largest_level_between_measured_corpora():
    low, high = largest_level(150_000)
    assert low == high
    assert 23_081 < low < 64_362
    assert largest_level(500_000) == (132_618, 132_618)

"""Policy plus against its description read literally, see helpers/plus_reference.py."""

import collections

import numpy as np
import pytest
from helpers.plus_reference import PlusReference
from helpers.plus_tables import Limits
from helpers.reference import to_blocks

from dpngram.accounting import plan_extraction
from dpngram.transforms.policies import plus, ranking
from dpngram.transforms.testing import extract_in_memory, key_source
from dpngram.transforms.tokenizers import make_tokenizer


def mixed_corpus(random):
    """Posts of phrases and single words, some words rarer than others; in some corpora all posts are short."""
    words = [f"w{i}" for i in range(random.integers(2, 16))]
    common = np.arange(1, len(words) + 1) ** -float(random.choice([0.0, 1.0]))
    phrases = [list(random.choice(words, random.integers(1, 6))) for _ in range(random.integers(1, 10))]
    most = random.choice([2, 3, 20])
    posts = {}
    for user in range(random.integers(1, 90)):
        posts[f"u{user}"] = []
        for _ in range(random.integers(1, 4 if most > 2 else 30)):
            post = list(random.choice(words, random.integers(0, 4), p=common / common.sum()))
            for _ in range(random.integers(0, 3)):
                post += phrases[random.integers(len(phrases))]
            posts[f"u{user}"].append([str(token) for token in post[:most]])
    for copy in range(int(random.integers(0, 40))):
        posts[f"copy{copy}"] = posts["u0"]
    return posts


def dense_corpus(random):
    """Many different grams of middling weight: so many are in doubt that they are counted."""
    words = [f"w{i}" for i in range(random.integers(15, 22))]
    common = np.arange(1, len(words) + 1) ** -float(random.choice([0.0, 0.5]))
    sizes = random.integers(1, 12, random.integers(200, 300))
    return {
        f"u{user}": [[str(token) for token in random.choice(words, size, p=common / common.sum())]]
        for user, size in enumerate(sizes)
    }


def run_library(posts, plan, source, random, vocabulary=()):
    """The tables of a release, and what its rounds found: levels, surveys, and what is left of budgets."""
    found = {}

    def observe(policy, blocks, what):
        found[policy.n, policy.number] = what
        found[policy.n, policy.number, "budgets"] = {
            int(name): int(left) for block in blocks for name, left in zip(block.user, block.budget, strict=True)
        }

    shards, histogram_shards = int(random.integers(1, 5)), int(random.integers(1, 4))
    tables = extract_in_memory(
        to_blocks(posts),
        plan,
        source,
        make_tokenizer("words"),
        shards=shards,
        histogram_shards=histogram_shards,
        vocabulary=vocabulary,
        observe=observe,
    )
    found.setdefault((1, 2), found[1, 0])  # the last round of level 1: with a public vocabulary there is one
    return tables, found


@pytest.mark.parametrize("corpora", [60, pytest.param(250, marks=pytest.mark.campaign)])
def test_released_grams_are_identical(corpora, monkeypatch):
    """Many corpora: every released gram with its weight, zero cells included, and every budget, at every level."""
    random = np.random.default_rng(17)
    totals, happened = collections.Counter(), collections.Counter()
    for number in range(corpora):
        is_dense = number % 3 == 0
        plan = plan_extraction(
            epsilon=float(random.choice([1.0, 2.0, 4.0] if is_dense else [8.0, 20.0, 60.0, 110.0])),
            delta=0.2,
            max_n=int(random.choice([2, 2, 4])) if is_dense else 4,
            max_contributions=int(random.integers(8 if is_dense else 1, 30)),
            eta=float(random.choice([0.1, 0.15] if is_dense else [0.05, 0.3])),
            policy="plus",
        )
        limits = Limits(counted=0.5, last=0.7) if is_dense else Limits()
        if number % 2:
            every, least, most = (int(random.integers(*ends)) for ends in ((0, 60), (1, 6), (6, 20)))
            limits = limits._replace(every=every, least=least, most=most, even=float(random.choice([1.0, 4.0])))
        monkeypatch.setattr(plus, "_ALL_ACTIVE", limits[0])
        monkeypatch.setattr(plus, "_LEAST_ACTIVE", limits.least)
        monkeypatch.setattr(plus, "_MOST_ACTIVE", limits.most)
        monkeypatch.setattr(ranking, "_LEAST_COUNT", limits.counted)
        monkeypatch.setattr(ranking, "_LAST", limits.last)
        monkeypatch.setattr(plus, "_EVEN_SHARES", (limits.even, 0.375 * limits.even))
        posts = dense_corpus(random) if is_dense else mixed_corpus(random)
        source = key_source(bytes([number]) * 32, number)
        tables, found = run_library(posts, plan, source, random)
        reference = PlusReference(posts, plan, source, found, limits)
        for k, expected in reference.run():
            released = {tuple(gram.tokens): gram.weight for gram in tables[k].rows()}
            assert released == expected, (number, k)
            totals[k] += len(released)
        assert all(not len(tables[later]) for later in range(k + 1, plan.max_n + 1))
        happened += reference.happened
    # The corpora must exercise what they are meant to.
    assert all(totals[k] > 100 for k in (1, 2, 3, 4)), totals
    often = {
        "level with a count": 15,
        "level without": 50,
        "cut moved by a count": 3,
        "cell vouched for": 500,
        "stratum with a floor": 50,
        "stratum with fewer zeros": 50,
        "second look with the whole allowance": 10,
        "cell of the rest": 100,
        "released from the rest": 4,
        "spurious": 100,
        "user who gives everything": 300,
        "user who fills": 30,
        ("token of round", 0): 100,
        ("token of round", 1): 20,
        ("token of round", 2): 3,
    }
    assert not {event: happened[event] for event, least in often.items() if happened[event] < least}
    assert sum(event[0] == "gain" for event in happened) >= 5, happened


@pytest.mark.parametrize("corpora", [9, pytest.param(150, marks=pytest.mark.campaign)])
def test_released_grams_are_identical_with_a_public_vocabulary(corpora, monkeypatch):
    """The same where S_1 is a list of words: weights of all of them, budgets, and every level after it."""
    random = np.random.default_rng(18)
    totals, happened = collections.Counter(), collections.Counter()
    for number in range(corpora):
        plan = plan_extraction(
            epsilon=float(random.choice([4.0, 20.0, 110.0])),
            delta=0.2,
            max_n=3,
            max_contributions=int(random.integers(1, 30)),
            eta=0.2,
            public_vocabulary=True,
        )
        limits = Limits(every=40, least=4, most=12) if number % 2 else Limits()
        monkeypatch.setattr(plus, "_ALL_ACTIVE", limits.every)
        monkeypatch.setattr(plus, "_LEAST_ACTIVE", limits.least)
        monkeypatch.setattr(plus, "_MOST_ACTIVE", limits.most)
        posts = dense_corpus(random) if number % 5 == 0 else mixed_corpus(random)
        vocabulary = [f"w{i}" for i in range(random.integers(4, 20)) if random.random() < 0.8] + ["nobody"]
        source = key_source(bytes([number]) * 32, number)
        tables, found = run_library(posts, plan, source, random, vocabulary)
        assert not len(tables[1])
        reference = PlusReference(posts, plan, source, found, limits, vocabulary)
        for k, expected in reference.run():
            if k == 1:
                words = sorted(expected, key=lambda gram: gram[0].encode())
                assert found[1, 0].weight.tolist() == [reference.weight_of[1][gram] for gram in words]
                continue
            assert {tuple(gram.tokens): gram.weight for gram in tables[k].rows()} == expected, (number, k)
            totals[k] += len(expected)
        happened += reference.happened
    least = {"word that is not listed": 50, "word that nobody has": 9, "spurious": 1, "stratum with a floor": 5}
    assert not {event: happened[event] for event, number in least.items() if happened[event] < number}
    assert all(totals[k] > 50 for k in (2, 3)), totals

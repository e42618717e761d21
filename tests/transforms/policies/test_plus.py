"""Policy plus: the invariant over whole runs."""

import dataclasses

import numpy as np
import pytest
from helpers.weights import squares

from dpngram.accounting import plan_extraction
from dpngram.transforms.document_form import DocumentForm, collect_documents
from dpngram.transforms.policies import make_rounds, plus
from dpngram.transforms.policies.budgets import spend
from dpngram.transforms.testing import extract_in_memory, key_source
from dpngram.transforms.tokenizers import make_tokenizer


def adversarial_corpus():
    """Heavy users and light ones, copies, one post or many, long runs, phrases nobody else has."""
    random = np.random.default_rng(11)
    words = [f"w{i}" for i in range(30)]
    chances = 1 / np.arange(1, 31)
    chances /= chances.sum()
    posts = []
    for user in range(400):
        length = int(random.choice([1, 2, 3, 8, 40, 400]))
        for _ in range(int(random.choice([1, 1, 2, 7]))):
            posts.append((f"u{user}", list(random.choice(words, length, p=chances))))
    posts += [(f"copy{i}", ["w0", "w1", "w2", "w3", "w4"] * 5) for i in range(50)]
    posts += [("lonely", [f"x{i}" for i in range(500)]), ("one", ["w0"])]
    return posts


@pytest.mark.parametrize("number", range(4))
def test_the_invariant(number, monkeypatch):
    """Squared integer weights of every user, over all levels and rounds, sum to less than 2^64, and are all charged.

    The weights are recorded where they are made, and summed in Python's integers, apart from the books.
    """
    blocks, _ = collect_documents(adversarial_corpus(), DocumentForm())
    plan = plan_extraction(
        epsilon=[0.5, 4.0, 20.0, 20.0][number],
        delta=1e-3,
        max_n=6,
        max_contributions=[1, 5, 20, 100][number],
        shares=[None, None, [1, 1, 1, 1, 1, 1], [1e-6, 1, 1e-6, 1, 1, 1e6]][number],
        policy="plus",
        eta=0.1,
    )
    given, current = {}, []

    def recording_weigh(self, users, candidates, clip):
        current[:] = [users.user]
        return original_weigh(self, users, candidates, clip)

    def recording_spend(user, guide, allowance, share):
        weight, charge = spend(user, guide, allowance, share)
        for name, total in zip(current[0].tolist(), squares(user, weight, len(allowance)), strict=True):
            given[name] = given.get(name, 0) + total
        return weight, charge

    rounds = []

    def observe(policy, blocks, _released):
        rounds.append((policy.n, policy.number))
        for block in blocks:
            for name, left in zip(block.user.tolist(), block.budget.tolist(), strict=True):
                assert given[name] + left == 2**64 - 1

    original_weigh = plus.PlusRound.weigh
    monkeypatch.setattr(plus.PlusRound, "weigh", recording_weigh)
    monkeypatch.setattr(plus, "spend", recording_spend)
    source = key_source(bytes([number]) * 32)
    extract_in_memory(blocks, plan, source, make_tokenizer("words"), shards=5, histogram_shards=2, observe=observe)
    assert rounds[:6] == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (3, 0)]
    assert len(given) == 452
    assert all(total < 2**64 for total in given.values())
    assert max(given.values()) > 0.9 * 2**64


def test_users_without_books_are_refused_after_level_1():
    """Blocks that did not pass level 1 have no budget column; a full one for them would be a second budget."""
    blocks, _ = collect_documents([("u", "a b c")] * 3, DocumentForm())
    plan = plan_extraction(epsilon=20, delta=0.1, max_n=2, max_contributions=5, policy="plus")
    source = key_source(b"b" * 32)
    first, second = (level[0] for level in make_rounds(plan))
    users = []
    extract_in_memory(
        blocks, plan, source, make_tokenizer("words"), observe=lambda _policy, blocks, _level: users.extend(blocks[:1])
    )
    fresh = dataclasses.replace(users[0], budget=np.zeros(0, np.uint64), allowance=np.zeros(0, np.uint64))
    assert len(first.allow(fresh).budget) == 1
    with pytest.raises(ValueError, match="their budget is unknown"):
        second.allow(fresh)

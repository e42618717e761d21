"""Policy plus: budgets in exact integers, guides, and the invariant over whole runs."""

import dataclasses
import math

import numpy as np
import pytest

from dpngram.accounting import plan_extraction
from dpngram.transforms import testing
from dpngram.transforms.noisy_threshold import threshold_cells
from dpngram.transforms.policies import make_policy, plus
from dpngram.transforms.policies.base import Round
from dpngram.transforms.policies.budgets import FULL_BUDGET, allowances, longest_runs, spend
from dpngram.transforms.policies.guide import GUIDE_UNIT, guide_table
from dpngram.transforms.prepare_posts import collect_documents
from dpngram.transforms.testing import extract_in_memory, key_source
from dpngram.transforms.tokenizers import make_tokenizer


def squares(user, weight, users):
    total = [0] * users
    for owner, value in zip(user.tolist(), weight.tolist(), strict=True):
        total[owner] += value * value
    return total


@pytest.mark.parametrize("share", [1.0, 0.85, 0.7, 0.05])
@pytest.mark.parametrize("kind", ["full", "tiny", "odd"])
def test_no_user_spends_more_than_its_share_of_the_allowance(share, kind):
    random = np.random.default_rng([len(kind), int(share * 100)])
    users = 300
    allowance = {
        "full": np.full(users, FULL_BUDGET),
        "tiny": random.integers(0, 3, users).astype(np.uint64),
        "odd": np.uint64(2) ** random.integers(0, 64, users).astype(np.uint64)
        + random.integers(0, 9, users).astype("u8"),
    }[kind]
    counts = np.minimum(random.geometric(0.02, users), 2000)
    counts[:3] = (0, 1, 2000)
    user = np.repeat(np.arange(users), counts)
    random.shuffle(user)
    for factor in (GUIDE_UNIT, random.integers(0, GUIDE_UNIT + 1, len(user)), random.integers(0, 3, len(user))):
        weight, charge = spend(user, factor, allowance, share)
        assert (weight >= 0).all()
        exact = squares(user, weight, users)
        assert charge.tolist() == exact
        assert all(paid <= share * int(allowed) for paid, allowed in zip(exact, allowance.tolist(), strict=True))
    weight, charge = spend(np.array([0]), GUIDE_UNIT, np.array([FULL_BUDGET]), 1.0)
    assert weight[0] == 2**32 - 1


def test_weights_use_what_they_are_allowed():
    """Guides of norm above 1 spend the whole share; below 1 only their norm."""
    user = np.zeros(4, np.int64)
    budget = np.array([FULL_BUDGET])
    _, charge = spend(user, GUIDE_UNIT, budget, 0.25)
    assert int(charge[0]) == pytest.approx(2**62, rel=1e-8)
    _, charge = spend(user, np.full(4, GUIDE_UNIT // 8), budget, 1.0)
    assert int(charge[0]) == pytest.approx(2**64 * 4 / 64, rel=1e-8)


def test_allowances_never_exceed_the_budget():
    budget = np.array([0, 1, 2, 2**53 + 1, 2**63, 2**64 - 1025, 2**64 - 1], np.uint64)
    shares = [0.8**k for k in range(5)]
    for n in range(1, 6):
        for run in (1, 2, 3, 100):
            allowed = allowances(budget, np.full(len(budget), run), n, shares)
            reachable = shares[n - 1 : min(n - 1 + run, 5)]
            for mine, given in zip(budget.tolist(), allowed.tolist(), strict=True):
                assert given <= mine
                assert given == pytest.approx(mine * shares[n - 1] / sum(reachable), rel=1e-12, abs=1)


def test_longest_runs():
    random = np.random.default_rng(8)
    for _ in range(200):
        posts = [[random.integers(0, 2, random.integers(0, 9)).astype(bool) for _ in range(2)] for _ in range(4)]
        line = [np.concatenate([np.append(post, False) for post in user]) for user in posts]
        expected = [max(len(run) for run in "".join("x" if h else " " for h in mine).split(" ")) for mine in line]
        start = np.cumsum([0, *map(len, line)])
        assert longest_runs(np.concatenate(line), start).tolist() == expected


def test_the_guide_table_does_not_depend_on_the_last_bits_of_exp():
    """No entry lies so near a whole number that another processor's `exp` could move it."""
    for place, value in enumerate(guide_table().tolist()):
        m = math.exp((place - 2**13) / 256)
        exact = max(0.35, min(1, m / 0.5)) * min(1, (4 / m) ** 0.6) * GUIDE_UNIT
        assert value == max(math.floor(exact + 2.0**-20), 1)
        fraction = (exact + 2.0**-20) % 1
        assert min(fraction, 1 - fraction) > 1e-9
    assert guide_table().max() == GUIDE_UNIT


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
    blocks, _ = collect_documents(adversarial_corpus(), user_field="user", text_field="text", user_per_document=False)
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

    def recording_weigh(self, users, candidates, round_, clip):
        current[:] = [users.user]
        return original_weigh(self, users, candidates, round_, clip)

    def recording_spend(user, factor, allowance, share):
        weight, charge = spend(user, factor, allowance, share)
        for name, total in zip(current[0].tolist(), squares(user, weight, len(allowance)), strict=True):
            given[name] = given.get(name, 0) + total
        return weight, charge

    rounds = []

    def observe(round_, blocks, _released):
        rounds.append((round_.n, round_.number))
        for block in blocks:
            for name, left in zip(block.user.tolist(), block.budget.tolist(), strict=True):
                assert given[name] + left == 2**64 - 1

    original_weigh = plus.PlusPolicy.weigh
    monkeypatch.setattr(plus.PlusPolicy, "weigh", recording_weigh)
    monkeypatch.setattr(plus, "spend", recording_spend)
    source = key_source(bytes([number]) * 32)
    extract_in_memory(blocks, plan, source, make_tokenizer("words"), shards=5, histogram_shards=2, observe=observe)
    assert rounds[:6] == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (3, 0)]
    assert len(given) == 452
    assert all(total < 2**64 for total in given.values())
    assert max(given.values()) > 0.9 * 2**64


def test_users_without_books_are_refused_after_level_1():
    """Blocks that did not pass level 1 have no budget column; a full one for them would be a second budget."""
    blocks, _ = collect_documents([("u", "a b c")] * 3, user_field="user", text_field="text", user_per_document=False)
    plan = plan_extraction(epsilon=20, delta=0.1, max_n=2, max_contributions=5, policy="plus")
    source = key_source(b"b" * 32)
    policy = make_policy(plan, "both")
    users = []
    extract_in_memory(
        blocks, plan, source, make_tokenizer("words"), observe=lambda round_, blocks, _: users.extend(blocks[:1])
    )
    fresh = dataclasses.replace(users[0], budget=np.zeros(0, np.uint64), allowance=np.zeros(0, np.uint64))
    assert len(policy.allow(fresh, Round(policy, 1, 0, source.randomness)).budget) == 1
    with pytest.raises(ValueError, match="their budget is unknown"):
        policy.allow(fresh, Round(policy, 2, 0, source.randomness))


def test_walks_that_disagree_stop_the_run(monkeypatch):
    """Two processors might disagree about a logarithm; then a gram could be in a release twice."""
    documents = [(f"u{i}", "a b a c") for i in range(300)]
    blocks, _ = collect_documents(documents, user_field="user", text_field="text", user_per_document=False)
    plan = plan_extraction(epsilon=20, delta=0.1, max_n=2, max_contributions=5, eta=0.3, policy="plus")

    def other_walk(cells, cut, draw):
        part = threshold_cells(cells, cut, draw)
        return dataclasses.replace(part, walk=part.walk + np.uint64(1))

    monkeypatch.setattr(testing, "threshold_cells", other_walk)
    with pytest.raises(ValueError, match="different zero cells"):
        extract_in_memory(blocks, plan, key_source(b"w" * 32), make_tokenizer("words"))


def test_rounds_and_levels_draw_apart():
    """No two rounds share a draw: of any level, for any purpose, in any window, on any content."""
    plan = plan_extraction(epsilon=4, delta=1e-3, max_n=3, max_contributions=5, policy="plus")
    source, policy = key_source(b"r" * 32), make_policy(plan, "both")
    rounds = [(level.n, number) for level in plan.levels for number in range(len(level.rounds))]
    assert len(rounds) == 6
    drawn = [
        Round(policy, n, number, source.randomness)
        .draws(source, window, source.binding(content))(purpose)
        .blocks(np.arange(3, dtype=np.uint64), 0)
        .tobytes()
        for n, number in rounds
        for purpose in ("clip", "noise", "zero cells", "zero weights", "zero cells below")
        for window in (b"global", b"0:10")
        for content in (b"f" * 16, b"g" * 16)
    ]
    assert len(set(drawn)) == len(drawn) == 6 * 5 * 2 * 2

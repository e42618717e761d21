"""Attacks: neighbours that differ in one user, and what is made of releases that are made up."""

import itertools

import numpy as np
import pytest

from dpngram.pipelines.research.attacks import ATTACKS


def made(name, policy="paper", trials=400, windows=0):
    return ATTACKS[name].make(policy, 4.0, 1e-7, trials, windows)


@pytest.mark.parametrize("policy", ["paper", "plus"])
@pytest.mark.parametrize("name", ATTACKS)
def test_worlds_differ_in_one_user(name, policy):
    """Trials with and without the user have users of their own, and but for their numbers the same ones."""
    attack = made(name, policy)
    users = []
    for trial in (0, 1):
        rows = [row for window in attack.windows_of(trial) for row in attack.documents(trial, window)]
        users.append({user for user, _ in rows})
        assert all(user.startswith(f"{trial}:") for user in users[-1])
    without, present = ({user.partition(":")[2] for user in mine} for mine in users)
    assert present - without == {"user"}
    assert not without - present


def releases(attack, levels, shift, random):
    """What the attack would see if noise had deviation 1 and the user moved every weight by `shift`."""
    rows = {n: [] for n in levels}
    for trial, n in itertools.product(range(2 * attack.trials), levels):
        post = attack.post(trial)
        rows[n].append((post[:n], 100 + shift * (trial % 2) + random.normal()))
    yield 0, rows


@pytest.mark.parametrize(("shift", "holds"), [(0.0, True), (0.5, True), (3.0, False)])
def test_a_crowd_is_judged_by_how_far_the_user_moves_it(shift, holds):
    """Three levels with a deviation of 1: a shift of 0.5 is 0.87 in all, one of 3 is 5.2, far beyond epsilon = 4."""
    finding = made("crowd").judge(releases(made("crowd"), (1, 2, 3), shift, np.random.default_rng(1)), 1e-4)
    assert finding.fit.mu == pytest.approx(shift * 3**0.5, abs=0.3)
    assert finding.holds is holds


@pytest.mark.parametrize(("share", "holds"), [(0.0, True), (0.04, True), (0.3, False)])
def test_lone_tokens_may_be_seen_as_often_as_delta(share, holds):
    attack = made("lone", trials=900)
    random = np.random.default_rng(2)
    seen = [trial for trial in range(1, 2 * attack.trials, 2) if random.random() < share]
    finding = attack.judge(iter([(0, {1: [([f"{trial}:0"], 5.0) for trial in seen]})]), 1e-4)
    assert finding.holds is holds


def test_gaps_that_only_the_user_fills():
    attack = made("gap", trials=1000)
    both = [([f"a{trial}", f"c{trial}"], 3.0) for trial in range(2000)]
    assert attack.judge(iter([(0, {2: both})]), 1e-4).holds
    assert not attack.judge(iter([(0, {2: both[1::2]})]), 1e-4).holds
    # What everybody has, and pairs of two trials' words, tell nothing.
    crowd = [([f"a{trial}", f"b{trial}"], 3.0) for trial in range(1, 2000, 2)]
    mixed = [([f"a{trial}", f"c{trial + 1}"], 3.0) for trial in range(1, 1999, 2)]
    assert attack.judge(iter([(0, {2: crowd + mixed})]), 1e-4).holds

"""Rounds: which a plan has, what each of them may draw, and what a policy must be."""

import dataclasses

import numpy as np
import pytest

from dpngram.accounting import ParameterError, plan_extraction
from dpngram.transforms.policies import RoundPolicy, make_rounds
from dpngram.transforms.randomness.noise import UNIT
from dpngram.transforms.testing import key_source

BUDGET = {"epsilon": 4, "delta": 1e-3, "max_n": 3, "max_contributions": 5}


def test_rounds_and_levels_draw_apart():
    """No two rounds share a draw: of any level, for any purpose, in any window, on any content."""
    source = key_source(b"r" * 32)
    rounds = [policy for level in make_rounds(plan_extraction(**BUDGET, policy="plus")) for policy in level]
    assert len(rounds) == 9
    drawn = [
        source.draws(policy.n, policy.number, window, source.binding(content), past)(purpose)
        .blocks(np.arange(3, dtype=np.uint64), 0)
        .tobytes()
        for policy in rounds
        for purpose in ("clip", "noise", "zero cells", "zero weights", "zero cells below", "count")
        for window in (b"global", b"0:10")
        for content in (b"f" * 16, b"g" * 16)
        for past in (0, 1, 11)
    ]
    assert len(set(drawn)) == len(drawn) == 9 * 6 * 2 * 2 * 3


def test_rounds_of_a_plan():
    paper, plus = (make_rounds(plan_extraction(**BUDGET, policy=policy)) for policy in ("paper", "plus"))
    assert [[(policy.n, policy.number) for policy in level] for level in paper] == [[(1, 0)], [(2, 0)], [(3, 0)]]
    assert [[policy.label for policy in level] for level in plus] == [
        ["Round1", "Round2", "Round3"],
        ["Survey", "SecondLook", "Count"],
        ["Survey", "SecondLook", "Count"],
    ]
    assert [[policy.changes_users for policy in level] for level in plus[:2]] == [[True] * 3, [True, False, False]]
    assert [policy.charges_late for policy in plus[1]] == [False, False, True]
    assert not any(policy.changes_users for level in paper for policy in level)


def test_an_abstract_policy_cannot_be_used():
    with pytest.raises(TypeError, match="abstract"):
        RoundPolicy(plan_extraction(**BUDGET), 1)


def test_noise_beyond_exact_sums_is_refused_before_anything_runs():
    plan = plan_extraction(**BUDGET, policy="paper")
    wide = dataclasses.replace(plan.level(2), sigma=float(UNIT))
    with pytest.raises(ParameterError, match="sigma must be below"):
        make_rounds(dataclasses.replace(plan, levels=(plan.level(1), wide, plan.level(3))))

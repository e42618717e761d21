"""Advice from the plan alone."""

import re

import pytest

from dpngram.accounting import ParameterError, plan_extraction, users_needed
from dpngram.accounting.advice import advise_more, find_doubts, propose_plans

BUDGET = {"epsilon": 4, "delta": 1e-7, "max_n": 6, "max_contributions": 100}


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ((4, 1e-7, None), []),
        ((10, 1e-7, 50_000), []),
        ((10.5, 1e-7, None), ["epsilon 10.5 is a weak guarantee"]),
        ((5000, 1e-7, None), ["factor of more than 1e300"]),
        ((4, 1e-3, None), []),
        ((4, 1e-3, 1000), []),
        ((4, 1e-3, 1001), [r"delta 0.001 is above 1/users = 0.001: .* Take 1e-05 or less"]),
        ((12, 1e-3, 10**6), ["weak guarantee", "Take 1e-07 or less"]),
    ],
)
def test_doubts(budget, words):
    doubts = find_doubts(*budget)
    assert len(doubts) == len(words)
    assert all(re.search(word, doubt) for word, doubt in zip(words, doubts, strict=True))


@pytest.mark.parametrize("policy", ["paper", "plus"])
def test_what_more_would_take(policy):
    """The numbers are those of plans that differ in the one thing said; what does not help is not said."""
    plan = plan_extraction(**BUDGET, policy=policy)
    text = advise_more(plan)
    assert f"a word needs about {users_needed(plan, 1, 100, 0.5):,} users of 100 words or more each" in text
    assert f"or {users_needed(plan, 1, 10, 0.5):,} of 10 words" in text
    for flag, change in {
        "--epsilon 8": {"epsilon": 8},
        "--max_contributions 25": {"max_contributions": 25},
        "--max_n 3": {"max_n": 3},
    }.items():
        other = plan_extraction(**{**BUDGET, **change}, policy=policy)
        assert f"{users_needed(other, 1, other.levels[0].max_contributions, 0.5):,} with {flag}" in text
    assert "spends epsilon and delta again" in text


def test_where_nothing_can_be_changed():
    text = advise_more(plan_extraction(epsilon=100, delta=1e-7, max_n=1, max_contributions=1))
    assert text.startswith("By this plan a word needs about ")
    assert "--max_n" not in text
    assert "--max_contributions" not in text
    assert "--epsilon" not in text  # 200 is more than the ends of the noise are exact for


@pytest.mark.parametrize("users", [1, 2, 9, 10, 11, 999, 1000, 1001, 50_000, 10**6, 10**7])
@pytest.mark.parametrize("tokens", [None, 1, 2, 50, 10**6])
def test_proposals_raise_no_doubt(users, tokens):
    proposals = propose_plans(users, tokens)
    assert [proposal.plan.epsilon for proposal in proposals] == [1, 2, 4, 8]
    for proposal in proposals:
        plan = proposal.plan
        assert find_doubts(plan.epsilon, plan.delta, users) == []
        assert 0.01 / users <= plan.delta <= 0.1 / users * (1 + 1e-12)
        assert 10 <= plan.levels[0].max_contributions <= 300
        assert plan.max_n <= (tokens or 9)
        assert (proposal.pair is None) is (plan.max_n == 1)
        assert proposal.light <= proposal.word
    assert sorted((proposal.word for proposal in proposals), reverse=True) == [one.word for one in proposals]


def test_numbers_that_cannot_be_meant():
    for arguments in ((0,), (1.5,), ("many",), (5, 0)):
        with pytest.raises(ParameterError, match="must be a whole number"):
            propose_plans(*arguments)
    with pytest.raises(ParameterError, match="users must be"):
        find_doubts(4, 1e-6, -3)

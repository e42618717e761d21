"""A plan in words."""

from helpers.budgets import PAPER, PLUS

from dpngram.accounting import explain_plan, plan_extraction


def test_explain_says_what_matters():
    text = explain_plan(plan_extraction(**PAPER, windows=3))
    for words in ("(4, 1e-07)-differential privacy", "at most 3 windows", "Level 9", "attacker", "spurious", "user id"):
        assert words in " ".join(text.split())


def test_plus_explains_itself():
    text = " ".join(explain_plan(plan_extraction(**PLUS)).split())
    for words in (
        "one budget for all levels",
        "in 3 rounds of 5 %, 25 %, 70 % of it",
        "all valid 2-grams",
        "an aim, not a bound",
        "0.1 % of the budget, noise sigma = 41.11",
        "more than 247 above what --max_bad_fraction allows",
    ):
        assert words in text

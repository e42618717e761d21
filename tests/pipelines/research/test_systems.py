"""What a comparison runs, and what it spends."""

from dpngram.pipelines.research.systems import SYSTEMS, plan_comparison, round_up


def test_systems_that_agree_keep_their_names():
    """With T = 1 the three baselines are one mechanism; each is still a row, and the sum counts all of them."""
    one = plan_comparison(epsilon=1, delta=1e-7, max_n=1, max_contributions=10)
    assert [one.rows[row].title for row in one.systems] == list(SYSTEMS.values())
    assert one.epsilon_spent == len(SYSTEMS)


def test_budgets_are_rounded_up():
    assert round_up(1.004e-5, 3) == "1.01e-05"
    assert round_up(1.8e-4, 3) == "0.00018"
    assert round_up(66.0, 6) == "66"
    assert round_up(sum([0.1] * 10), 6) == "1"

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


def test_sweeps_vary_the_default_policy():
    """`plus`, unless another is named; pruning can be varied with dpne only."""
    budget = {
        "epsilon": 1,
        "delta": 1e-7,
        "max_n": 2,
        "max_contributions": 10,
        "sweeps": ["eta=0.1,0.2", "pruning=both"],
    }
    default = plan_comparison(**budget)
    assert [sweep.system for sweep in default.sweeps] == ["plus", "dpne"]
    assert {default.rows[row].plans[0].policy for row in default.sweeps[0].rows} == {"plus"}
    named = plan_comparison(**budget, sweep_system="dpne")
    assert [sweep.system for sweep in named.sweeps] == ["dpne", "dpne"]
    assert {named.rows[row].plans[0].policy for row in named.sweeps[0].rows} == {"paper"}

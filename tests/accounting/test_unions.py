"""Plans of the set-union baselines: what they spend, recomputed with 40 digits."""

import dataclasses

import mpmath
import pytest

from dpngram.accounting import (
    ParameterError,
    UnionPlan,
    UnionQuery,
    plan_extraction,
    plan_union_all,
    plan_union_even,
    plan_union_single,
)

BUDGETS = [
    {"epsilon": 1, "delta": 1e-7, "max_n": 6, "max_contributions": 10},
    {"epsilon": 4, "delta": 1e-7, "max_n": 9, "max_contributions": 100},
    {"epsilon": 0.3, "delta": 1e-3, "max_n": 2, "max_contributions": 1},
]


def spent(plan):
    """Both directions of the theorem, from the thresholds and noise alone: (delta, probability of a lone gram)."""
    with mpmath.workdps(40):
        epsilon = mpmath.mpf(plan.epsilon)
        sigmas = [plan.gate_sigma, *(query.sigma for query in plan.queries)]
        mu = mpmath.sqrt(sum(1 / mpmath.mpf(sigma) ** 2 for sigma in sigmas))

        def gaussian(e):
            return mpmath.ncdf(-e / mu + mu / 2) - mpmath.exp(e) * mpmath.ncdf(-e / mu - mu / 2)

        lone = mpmath.mpf(0)
        for query in plan.queries:
            lone += max(
                1 - mpmath.ncdf((query.rho - 1 / mpmath.sqrt(t)) / query.sigma) ** t
                for t in range(1, query.max_contributions + 1)
            )
        return max(gaussian(epsilon) + lone, gaussian(epsilon + mpmath.log(1 - lone))), lone


@pytest.mark.parametrize("budget", BUDGETS)
def test_sound_plans_keep_their_budget_and_use_it(budget):
    single = {name: value for name, value in budget.items() if name != "max_n"}
    plans = [plan_union_all(**budget), plan_union_even(**budget), plan_union_single(**single, n=2)]
    for plan in plans:
        delta, lone = spent(plan)
        assert delta <= budget["delta"]
        assert delta > 0.99 * budget["delta"]
        assert 0.45 * budget["delta"] < lone <= budget["delta"] / 2
        assert delta <= plan.delta_spent <= budget["delta"] * (1 + 1e-12)


@pytest.mark.parametrize("budget", BUDGETS)
def test_as_printed_overspends_and_says_so(budget):
    plan = plan_union_even(**budget, as_printed=True)
    delta, _ = spent(plan)
    lengths = budget["max_n"]
    assert delta == pytest.approx((lengths + 1) / 2 * budget["delta"], rel=0.02)
    assert budget["delta"] < delta <= plan.delta_spent == pytest.approx(float(delta), rel=0.02)
    assert [q.sigma for q in plan.queries] == [q.sigma for q in plan_union_even(**budget).queries]
    with pytest.raises(ParameterError, match="does not give"):
        dataclasses.replace(plan, as_printed=False)


def test_who_gives_how_much_to_what():
    budget = BUDGETS[0]
    (together,) = plan_union_all(**budget).queries
    assert (together.lengths, together.max_contributions) == ((1, 2, 3, 4, 5, 6), 60)
    even = plan_union_even(**budget).queries
    assert [(query.lengths, query.max_contributions) for query in even] == [((n,), 10) for n in range(1, 7)]
    (single,) = plan_union_single(epsilon=1, delta=1e-7, n=4, max_contributions=10).queries
    assert single.lengths == (4,)
    assert single.sigma == pytest.approx(together.sigma) == pytest.approx(even[0].sigma / 6**0.5)
    # One length: the same as a DPNE of one level.
    first = plan_extraction(epsilon=1, delta=1e-7, max_n=1, max_contributions=10, policy="paper").level(1)
    assert (first.sigma, first.rho) == (single.sigma, single.rho)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rho": 1.0}, "rho must be at least"),
        ({"lengths": ()}, "lengths must be ascending"),
        ({"lengths": (2, 1)}, "lengths must be ascending"),
        ({"lengths": (0,)}, "lengths must be a whole number"),
        ({"max_contributions": 0}, "max_contributions must be"),
        ({"threshold_delta": 0.0}, "threshold_delta must be"),
        ({"sigma": -1.0}, "sigma must be"),
    ],
)
def test_bad_queries_are_refused(change, message):
    (query,) = plan_union_all(**BUDGETS[0]).queries
    with pytest.raises(ParameterError, match=message):
        dataclasses.replace(query, **change)


def test_bad_plans_are_refused():
    plan = plan_union_single(epsilon=1, delta=1e-7, n=4, max_contributions=10)
    (query,), gate = plan.queries, plan.gate_sigma
    with pytest.raises(ParameterError, match="no length in two"):
        UnionPlan(epsilon=1, delta=1e-7, queries=(query, query), gate_sigma=gate)
    with pytest.raises(ParameterError, match="at least one"):
        UnionPlan(epsilon=1, delta=1e-7, queries=(), gate_sigma=gate)
    with pytest.raises(ParameterError, match="does not give"):
        UnionPlan(epsilon=0.9, delta=1e-7, queries=(query,), gate_sigma=gate)
    with pytest.raises(ParameterError, match="does not give"):
        dataclasses.replace(plan, gate_sigma=gate * 0.999)
    with pytest.raises(ParameterError, match="max_contributions must be"):
        plan_union_all(epsilon=1, delta=1e-7, max_n=6, max_contributions=10**6)
    assert isinstance(query, UnionQuery)

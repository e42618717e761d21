"""Plans: the theorem's numbers, checked again by an independent accountant, and refusals."""

import dataclasses
import json
from fractions import Fraction

import mpmath
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from helpers.budgets import PAPER, PLUS

from dpngram.accounting import ExtractionPlan, ParameterError, RoundPlan, gaussian_sigma, plan_extraction
from dpngram.accounting.numerics import rounding_cost, touched


def exact_budget(plan):
    """The (epsilon, delta) that is left for exact Gaussians, after the rounding of the noise is paid for."""
    caps = [level.max_contributions for level in plan.levels]
    rounds = [len(level.rounds) for level in plan.levels]
    cells, counts = touched(caps, rounds, plan.windows, individual_budgets=plan.policy == "plus")
    return rounding_cost(plan.epsilon, plan.delta, cells, counts).left(plan.epsilon, plan.delta)


def test_known_points():
    plan = plan_extraction(**PAPER)
    assert plan.sigma_star == pytest.approx(1.3279045646, rel=1e-9)
    assert 1 < plan.sigma_star / 1.32790352815356 < 1 + 1e-6  # without the cost of rounding
    assert all(level.sigma == pytest.approx(3.98371 / 0.999**0.5, abs=5e-6) for level in plan.levels)
    assert plan.level(1).rho == pytest.approx(25.0976, abs=5e-5)
    assert plan.gate_sigma == pytest.approx(plan.sigma_star * 1000**0.5, rel=1e-9)
    assert plan.gate_margin == pytest.approx(251.95, abs=5e-3)
    assert [level.rho for level in plan.levels[1:]] == [None] * 8


@pytest.mark.parametrize(
    "schedule",
    [{}, {"decay": 0.8}, {"decay": 1.3}, {"shares": [1, 2, 3, 4]}, {"windows": 12}, {"shares": [1e-9, 1, 1, 1e9]}],
)
@pytest.mark.parametrize(("epsilon", "delta"), [(1e-3, 0.1), (1, 1e-7), (4, 1e-30), (50, 1e-12)])
def test_levels_never_spend_more_than_the_budget(schedule, epsilon, delta):
    plan = plan_extraction(epsilon=epsilon, delta=delta, max_n=4, max_contributions=10, policy="paper", **schedule)
    queries = [*(level.sigma for level in plan.levels), plan.gate_sigma]
    cost = plan.windows * sum(1 / Fraction(sigma) ** 2 for sigma in queries)
    epsilon, delta = exact_budget(plan)
    allowed = 1 / Fraction(gaussian_sigma(epsilon, delta / 2)) ** 2
    assert cost <= allowed
    assert cost >= allowed * (1 - Fraction(1, 10**9))
    assert plan.windows * Fraction(plan.threshold_delta) <= Fraction(delta) / 2


@pytest.mark.parametrize(
    ("epsilon", "delta", "max_n", "windows"), [(1.0, 1e-7, 6, 1), (4.0, 1e-7, 9, 1), (0.5, 1e-5, 3, 4)]
)
def test_dp_accounting_agrees(epsilon, delta, max_n, windows):
    """The composition of the gate, all levels and all windows, by a privacy loss distribution, not by our formulas."""
    plan = plan_extraction(
        epsilon=epsilon, delta=delta, max_n=max_n, max_contributions=10, decay=0.9, windows=windows, policy="paper"
    )
    composed = None
    for sigma in [plan.gate_sigma, *(level.sigma for level in plan.levels)]:
        one = pld.from_gaussian_mechanism(sigma, value_discretization_interval=1e-4, log_mass_truncation_bound=-50)
        composed = one if composed is None else composed.compose(one)
    if windows > 1:
        composed = composed.self_compose(windows)
    epsilon, delta = exact_budget(plan)
    noise_delta = delta - windows * plan.threshold_delta
    # Connecting the dots converges with the square of the interval, from above.
    assert composed.get_epsilon_for_delta(noise_delta) == pytest.approx(epsilon, abs=1e-6)


def test_json_there_and_back():
    for plan in (plan_extraction(**PAPER), plan_extraction(**PAPER, decay=0.7, windows=3, eta=0.05)):
        assert ExtractionPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 2}, "format_version must be 1"),
        ({"epsilon": 3.9}, "does not give"),
        ({"delta": 0.9e-7}, "does not give"),
        ({"threshold_delta": 1e-9}, "threshold must be at least"),
        ({"windows": 2}, "does not give"),
        ({"gate_sigma": 41.0}, "does not give"),
        ({"gate_sigma": 0.0}, "sigma must be"),
        ({"gate_sigma": None}, "sigma must be"),
        ({"policy": "none"}, "policy must be one of"),
        ({"surprise": 1}, "'surprise'"),
        ({"levels": []}, "numbered 1, 2"),
        ({"levels": "x"}, "levels must be"),
        ({"levels": [{}]}, "fields must be exactly"),
        ({"epsilon": None}, "epsilon must be"),
    ],
)
def test_a_tampered_plan_is_refused(change, message):
    document = {**json.loads(plan_extraction(**PAPER).to_json()), **change}
    with pytest.raises(ParameterError, match=message):
        ExtractionPlan.from_json(json.dumps(document))


@pytest.mark.parametrize("text", ["", "[]", "{", "1", '"x"', "[" * 100_000])
def test_what_is_not_a_plan_is_refused(text):
    with pytest.raises(ParameterError, match="plan"):
        ExtractionPlan.from_json(text)


def test_too_little_noise_or_too_low_a_threshold_cannot_be_a_plan():
    plan = plan_extraction(**PAPER)
    first, *rest = plan.levels
    quiet = dataclasses.replace(first, sigma=first.sigma * (1 - 1e-6))
    low = dataclasses.replace(first, rounds=(RoundPlan(share=1.0, rho=first.rho * (1 - 1e-6)),))
    with pytest.raises(ParameterError, match="does not give"):
        dataclasses.replace(plan, levels=(quiet, *rest))
    with pytest.raises(ParameterError, match="threshold must be at least"):
        dataclasses.replace(plan, levels=(low, *rest))


@pytest.mark.parametrize("policy", ["paper", "plus"])
@pytest.mark.parametrize("windows", [1, 7])
def test_the_gate_has_a_thousandth_of_the_squared_budget(policy, windows):
    """The levels pay for it with noise that is 0.05 % larger, and in windows it grows as the noise of levels does."""
    plan = plan_extraction(epsilon=1, delta=1e-7, max_n=3, max_contributions=10, windows=windows, policy=policy)
    assert windows * (plan.sigma_star / plan.gate_sigma) ** 2 == pytest.approx(1e-3, rel=1e-9)
    levels = [level.sigma for level in plan.levels] if policy == "paper" else [plan.level(1).sigma]
    assert windows * sum((plan.sigma_star / sigma) ** 2 for sigma in levels) == pytest.approx(0.999, rel=1e-9)
    with pytest.raises(ParameterError, match="does not give"):
        dataclasses.replace(plan, gate_sigma=plan.gate_sigma * (1 - 1e-6))
    assert float(mpmath.ncdf(-plan.gate_margin / plan.gate_sigma)) < 1e-9


def test_thresholds_follow_the_release():
    plan = plan_extraction(**PAPER)
    assert plan.threshold(1, 0, 0) == plan.level(1).rho
    assert plan.threshold(2, 1000, 10**6) == pytest.approx(16.99, abs=0.01)


def test_plus_thresholds_of_level_1_against_mpmath():
    """rho_{1,r} = max over t of sqrt(a_r/t) + sigma * isf(1 - (1 - d_r)^(1/t)), with d_r = 0.05 delta a_r."""
    plan = plan_extraction(**PLUS)
    with mpmath.workdps(40):
        sigma = mpmath.mpf(plan.level(1).sigma)
        for part, share in zip(plan.level(1).rounds, (0.05, 0.25, 0.7), strict=True):
            assert part.share == share
            d = mpmath.mpf(plan.threshold_delta) * share

            def isf(tail):
                return mpmath.findroot(lambda z: mpmath.log(mpmath.ncdf(-z)) - mpmath.log(tail), 6.0)

            # The maximum is at a small or the largest t; a few suffice to see that it is reached and never missed.
            candidates = [
                mpmath.sqrt(mpmath.mpf(share) / t) + sigma * isf(-mpmath.expm1(mpmath.log1p(-d) / t))
                for t in (1, 2, 3, 10, 100, 299, 300)
            ]
            assert 0 <= (part.rho - max(candidates)) / part.rho <= 1e-9


@pytest.mark.parametrize(("epsilon", "delta", "windows"), [(1.0, 1e-7, 1), (4.0, 1e-7, 1), (0.5, 1e-5, 4)])
def test_dp_accounting_agrees_with_plus(epsilon, delta, windows):
    plan = plan_extraction(epsilon=epsilon, delta=delta, max_n=5, max_contributions=10, windows=windows, policy="plus")
    one = pld.from_gaussian_mechanism(
        plan.level(1).sigma, value_discretization_interval=1e-4, log_mass_truncation_bound=-50
    )
    one = one.compose(
        pld.from_gaussian_mechanism(plan.gate_sigma, value_discretization_interval=1e-4, log_mass_truncation_bound=-50)
    )
    composed = one if windows == 1 else one.self_compose(windows)
    epsilon, delta = exact_budget(plan)
    noise_delta = delta - windows * plan.threshold_delta
    assert composed.get_epsilon_for_delta(noise_delta) == pytest.approx(epsilon, abs=1e-6)


def test_plus_there_and_back_and_its_refusals():
    plan = plan_extraction(**PLUS)
    assert ExtractionPlan.from_json(plan.to_json()) == plan
    document = json.loads(plan.to_json())
    for change, message in [
        ({"policy": "paper"}, "edition must be 1 for policy paper, got 2"),
        ({"policy": "paper", "edition": 1}, "must have the rounds of the policy"),
        ({"edition": 1}, "edition must be 2 for policy plus, got 1: another version of dpngram made this plan"),
        ({"edition": True}, "edition must be 2"),
        ({"epsilon": 3.9}, "does not give"),
        ({"windows": 2}, "does not give"),
    ]:
        with pytest.raises(ParameterError, match=message):
            ExtractionPlan.from_json(json.dumps({**document, **change}))
    del document["edition"]  # as in plans of the first edition
    with pytest.raises(ParameterError, match="edition must be 2 for policy plus, got 1"):
        ExtractionPlan.from_json(json.dumps(document))
    document["edition"] = 2
    first, second, *rest = plan.levels
    quiet = dataclasses.replace(second, sigma=second.sigma * (1 - 1e-6))
    with pytest.raises(ParameterError, match="does not give"):
        dataclasses.replace(plan, levels=(first, quiet, *rest))
    for index in range(3):
        part = first.rounds[index]
        lower = dataclasses.replace(part, rho=part.rho * (1 - 1e-6))
        rounds = (*first.rounds[:index], lower, *first.rounds[index + 1 :])
        with pytest.raises(ParameterError, match="threshold must be at least"):
            dataclasses.replace(plan, levels=(dataclasses.replace(first, rounds=rounds), second, *rest))
    with pytest.raises(ParameterError, match="shares of at most 1 in all"):
        dataclasses.replace(first, rounds=(*first.rounds, first.rounds[0]))
    with pytest.raises(ParameterError, match="level 1 must have max_contributions"):
        dataclasses.replace(plan, levels=(dataclasses.replace(first, max_contributions=None), second, *rest))
    with pytest.raises(ParameterError, match="no max_contributions from level 2 on"):  # it would pay for one cell only
        dataclasses.replace(plan, levels=(first, dataclasses.replace(second, max_contributions=1), *rest))
    with pytest.raises(ParameterError, match="one number with policy plus"):
        plan_extraction(**{**PLUS, "max_contributions": [1] * 9})
    document["levels"][0]["rho"] += 1
    with pytest.raises(ParameterError, match="lowest of its rounds"):
        ExtractionPlan.from_json(json.dumps(document))


def test_a_paper_plan_has_whole_rounds():
    """A round of share 0.01 would have a threshold for weights of 0.1; `paper` gives weights of 1."""
    plan = plan_extraction(epsilon=50, delta=1e-7, max_n=1, max_contributions=1, policy="paper")
    (first,) = plan.levels
    part = RoundPlan(share=0.00255, rho=1.1)
    with pytest.raises(ParameterError, match="one whole round"):
        dataclasses.replace(plan, levels=(dataclasses.replace(first, rounds=(part,)),))


def test_numbers_are_kept_as_plain_ones():
    """A half-precision epsilon must not make the accounting half-precise."""
    import numpy as np

    plan = plan_extraction(**PAPER)
    kept = dataclasses.replace(plan, epsilon=np.float16(4.0), eta=np.float32(0.5), levels=list(plan.levels))
    assert type(kept.epsilon) is float
    assert type(kept.eta) is float
    assert type(kept.levels) is tuple
    assert kept.epsilon == 4.0


@pytest.mark.parametrize("policy", ["paper", "plus"])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-12), (2, 1e-45), (1, 0.5), (75, 1e-7), (4, 1e-40), (90, 1e-7)])
@pytest.mark.parametrize("windows", [1, 1_000_000])
def test_extreme_budgets_have_plans(policy, epsilon, delta, windows):
    plan = plan_extraction(epsilon=epsilon, delta=delta, max_n=64, max_contributions=7, windows=windows, policy=policy)
    assert ExtractionPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize("policy", ["paper", "plus"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 200}, "epsilon must be at most 1[0-9][0-9] with delta 1e-07"),
        ({"epsilon": 1e4, "delta": 1e-200}, "epsilon must be smaller and delta larger"),
        ({"delta": 1e-60}, "delta must be at least .*e-5[0-9] with epsilon 4"),
        ({"epsilon": 1e-6}, "epsilon must be at least .* the rounding of the noise costs"),
        ({"epsilon": 1e-3, "max_contributions": 1_000_000, "max_n": 64, "windows": 1_000_000}, "epsilon must be at le"),
    ],
)
def test_plans_that_the_noise_cannot_honour(policy, change, message):
    """One line, which names the parameter to change; and no JSON text gets around it."""
    with pytest.raises(ParameterError, match=message) as caught:
        plan_extraction(**{**PAPER, "policy": policy, **change})
    assert "\n" not in str(caught.value)
    document = json.loads(plan_extraction(**{**PAPER, "policy": policy}).to_json())
    document |= {name: value for name, value in change.items() if name in ("epsilon", "delta")}
    if change.keys() <= {"epsilon", "delta"}:
        with pytest.raises(ParameterError, match=message):
            ExtractionPlan.from_json(json.dumps(document))


@pytest.mark.parametrize("policy", ["paper", "plus"])
def test_a_plan_that_forgets_its_rounding_is_refused(policy):
    """Noise for the whole of epsilon and delta, as if draws were exact, is not enough; nor is that of fewer cells."""
    plan = plan_extraction(**{**PAPER, "policy": policy})
    factor = plan_extraction(**{**PAPER, "policy": policy, "epsilon": plan.epsilon * (1 + 1e-6)}).sigma_star
    quieter = [dataclasses.replace(level, sigma=level.sigma * factor / plan.sigma_star) for level in plan.levels]
    with pytest.raises(ParameterError, match="does not give"):
        dataclasses.replace(plan, levels=tuple(quieter))
    if policy == "paper":
        wider = [dataclasses.replace(level, max_contributions=1_000_000) for level in plan.levels[1:]]
        with pytest.raises(ParameterError, match="does not give"):
            dataclasses.replace(plan, levels=(plan.levels[0], *wider))


def test_a_public_vocabulary_leaves_all_of_delta_to_the_noise():
    budget = {"epsilon": 1, "delta": 1e-7, "max_n": 3, "max_contributions": 10}
    plan, known = plan_extraction(**budget), plan_extraction(**budget, public_vocabulary=True)
    assert known.threshold_delta == 0
    assert [part.rho for part in known.level(1).rounds] == [None]
    assert known.level(1).sigma < plan.level(1).sigma
    assert ExtractionPlan.from_json(known.to_json()) == known
    assert "public_vocabulary" not in plan.to_json()  # so that older plans keep their noise
    assert (plan.first_n, known.first_n) == (1, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policy": "paper"}, "policy must be plus with a public vocabulary"),
        ({"max_n": 1}, "max_n must be at least 2 with a public vocabulary"),
        ({"public_vocabulary": 1}, "public_vocabulary must be true or false"),
    ],
)
def test_plans_that_cannot_have_a_public_vocabulary(change, message):
    budget = {"epsilon": 1, "delta": 1e-7, "max_n": 3, "max_contributions": 10, "public_vocabulary": True, **change}
    with pytest.raises(ParameterError, match=message):
        plan_extraction(**budget)


def test_a_plan_cannot_be_made_public_by_hand():
    """Without d the noise would have to pay for lone tokens, and without thresholds nothing hides them."""
    budget = {"epsilon": 1, "delta": 1e-7, "max_n": 3, "max_contributions": 10}
    plan, known = plan_extraction(**budget), plan_extraction(**budget, public_vocabulary=True)
    with pytest.raises(ParameterError, match="rho must be given for level 1 unless its words are public"):
        dataclasses.replace(plan, public_vocabulary=True)
    with pytest.raises(ParameterError, match="threshold_delta must be"):
        dataclasses.replace(known, public_vocabulary=False)

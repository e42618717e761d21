"""Lower bounds on the number of users: never above the truth more often than promised, also among what was lucky."""

import numpy as np
import pytest

from dpngram.accounting import ParameterError, has_user_bounds, least_users, plan_extraction

PAPER = plan_extraction(epsilon=4, delta=1e-6, max_n=2, max_contributions=20, policy="paper")
PLUS = plan_extraction(epsilon=4, delta=1e-6, max_n=2, max_contributions=20)


def test_all_bounds_hold_at_the_same_time():
    """2,000 releases of 3,000 cells, 2,800 of them far below the threshold, most released ones lucky. The share with a
    wrong bound is at most 2.5 % for each of two lengths; 3.5 % would be 2.9 deviations more (1 in 500, fixed seed).
    """
    random = np.random.default_rng(3)
    sigma, rho = PAPER.level(2).sigma, 3.0 * PAPER.level(2).sigma
    weight = np.concatenate([np.zeros(2800), np.linspace(0, 8 * sigma, 200)])
    wrong = bounds = 0
    for _ in range(2000):
        noisy = weight + sigma * random.standard_normal(len(weight))
        seen = noisy >= rho
        found = least_users(PAPER, 2, noisy[seen], rho)
        wrong += bool((found > np.ceil(weight[seen])).any())
        bounds += int((found > 0).sum())
    assert wrong / 2000 < 0.035
    assert bounds > 2000 * 20  # it says something


def test_the_bound_of_a_heavy_gram_is_near_its_weight():
    sigma = PAPER.level(1).sigma
    (found,) = least_users(PAPER, 1, [10_000.0], PAPER.level(1).rho)
    assert 10_000 - 2.3 * sigma < found < 10_000 - 1.9 * sigma + 1  # one-sided, 2.5 % for each of two lengths


def test_at_the_threshold_nothing_is_said():
    rho = PAPER.level(1).rho
    assert least_users(PAPER, 1, [rho], rho).tolist() == [0]
    assert least_users(PAPER, 1, [], rho).tolist() == []


def test_more_weight_means_more_users():
    weights = np.linspace(PLUS.level(1).rho, 500, 400)
    found = least_users(PLUS, 1, weights, PLUS.level(1).rho)
    assert (np.diff(found[weights > 100]) >= 0).all()
    assert (found <= np.ceil(weights)).all()
    assert found[-1] > 400


def test_the_round_with_the_most_noise_counts():
    """Which round of `plus` released a token is not known: the bound allows for the noise of each that could have."""
    share = min(part.share for part in PLUS.level(1).rounds)
    (found,) = least_users(PLUS, 1, [10_000.0], PLUS.level(1).rho)
    assert found < 10_000 - 1.9 * PLUS.level(1).sigma / share**0.5 + 1


def test_some_of_many():
    """The bounds of the heaviest alone are those that they have among all."""
    weights = np.linspace(PLUS.level(1).rho, 500, 400)
    found = least_users(PLUS, 1, weights, PLUS.level(1).rho)
    assert least_users(PLUS, 1, weights[-5:], PLUS.level(1).rho, 400).tolist() == found[-5:].tolist()
    assert least_users(PLUS, 1, weights[-5:], PLUS.level(1).rho)[0] > found[-5]


def test_lengths_without_a_bound():
    assert [has_user_bounds(PAPER, n) for n in (1, 2)] == [True, True]
    assert [has_user_bounds(PLUS, n) for n in (1, 2)] == [True, False]
    with pytest.raises(ParameterError, match="n must be 1 with policy plus"):
        least_users(PLUS, 2, [5.0], 1.0)

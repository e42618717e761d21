"""Bounds from trials, against exact arithmetic and against mechanisms whose privacy is known."""

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from dpngram.accounting import ParameterError, gaussian_epsilon
from dpngram.accounting.evidence import binomial_interval, bound_event, fit_gaussian


def tail(hits, trials, p):
    """P[Binomial(trials, p) >= hits], with 40 digits."""
    with mpmath.workdps(40):
        p = mpmath.mpf(p)
        terms = [mpmath.binomial(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(hits, trials + 1)]
        return float(mpmath.fsum(terms))


@pytest.mark.parametrize(("hits", "trials"), [(1, 10), (3, 50), (25, 50), (49, 50), (50, 50)])
@pytest.mark.parametrize("error", [0.1, 1e-4, 1e-9])
def test_interval_is_where_the_tails_are_the_error(hits, trials, error):
    low, high = binomial_interval(hits, trials, error)
    assert tail(hits, trials, low) == pytest.approx(error, rel=1e-6)
    if hits < trials:
        assert 1 - tail(hits + 1, trials, high) == pytest.approx(error, rel=1e-6)


def test_interval_at_the_ends():
    assert binomial_interval(0, 100, 0.01)[0] == 0
    assert binomial_interval(100, 100, 0.01)[1] == 1
    assert binomial_interval(0, 100, 0.01)[1] == pytest.approx(1 - 0.01 ** (1 / 100))


@pytest.mark.parametrize(("hits", "trials", "error"), [(3, 2, 0.1), (-1, 2, 0.1), (0, 0, 0.1), (1, 2, 0), (1, 2, 1)])
def test_interval_refuses(hits, trials, error):
    with pytest.raises(ParameterError):
        binomial_interval(hits, trials, error)


def test_event_of_randomized_response():
    """Says the truth with probability e/(1+e): epsilon is 1, and the bound comes close from below."""
    trials = 1_000_000
    likely = round(trials * math.e / (1 + math.e))
    bound = bound_event((likely, trials), (trials - likely, trials), epsilon=0.5, delta=0.0, error=1e-6)
    assert 0.98 < bound.epsilon < 1
    truth = math.e / (1 + math.e) - math.exp(0.5) / (1 + math.e)
    assert truth - 0.01 < bound.delta < truth


def test_event_proves_nothing_where_there_is_nothing_to_see():
    bound = bound_event((5, 100), (5, 100), epsilon=1.0, delta=1e-7, error=0.01)
    assert (bound.epsilon, bound.delta) == (0, 0)
    assert bound_event((100, 100), (0, 100), epsilon=1.0, delta=1.0 - 1e-9, error=0.01).epsilon == 0


def test_event_that_is_impossible_without_the_user():
    bound = bound_event((30, 100), None, epsilon=1.0, delta=0.05, error=0.01)
    assert math.isinf(bound.epsilon)
    assert bound.delta == binomial_interval(30, 100, 0.005)[0]
    assert bound_event((3, 100), None, epsilon=1.0, delta=0.05, error=0.01).epsilon == 0


def test_event_bounds_are_rarely_wrong():
    """Two equal coins, error 0.05: of 4000 bounds at most 0.05 may be above 0; flake rate below 1e-6."""
    random = np.random.default_rng(1)
    wrong = 0
    for _ in range(4000):
        a, b = random.binomial(500, 0.3, 2)
        wrong += bound_event((int(a), 500), (int(b), 500), epsilon=0.0, delta=0.0, error=0.05).epsilon > 0
    assert wrong <= stats.binom.isf(1e-6, 4000, 0.05)


def test_fit_of_a_gaussian():
    """Two normal samples at distance 0.75: the fit finds it, and its lower bound is below it (flake rate 1e-6)."""
    random = np.random.default_rng(2)
    fit = fit_gaussian(
        5 + 2 * random.normal(0.75, 1, 20_000), 5 + 2 * random.normal(0, 1, 20_000), delta=1e-7, error=1e-6
    )
    assert abs(fit.mu - 0.75) < 4.9 * math.sqrt(2 / 20_000 + 0.75**2 / 80_000)
    assert 0.69 < fit.mu_low < 0.75
    assert fit.epsilon == pytest.approx(gaussian_epsilon(1 / fit.mu, 1e-7))
    assert fit.epsilon_low == pytest.approx(gaussian_epsilon(1 / fit.mu_low, 1e-7))


def test_fit_without_noise_and_without_difference():
    assert math.isinf(fit_gaussian([1.0] * 9, [0.0] * 9, delta=1e-7, error=0.01).epsilon_low)
    assert fit_gaussian([1.0] * 9, [1.0] * 9, delta=1e-7, error=0.01).epsilon == 0
    with pytest.raises(ParameterError, match="at least 2"):
        fit_gaussian([1.0], [1.0, 2.0], delta=1e-7, error=0.01)

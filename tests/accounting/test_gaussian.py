"""The Gaussian curve against 60-digit arithmetic: precise, and always wrong on the safe side."""

import itertools
import math
from fractions import Fraction

import mpmath
import pytest

from dpngram.accounting import compose_sigmas, gaussian_delta, gaussian_epsilon, gaussian_sigma
from dpngram.accounting.gaussian import delta_bound
from dpngram.accounting.parameters import ParameterError

EPSILONS = [1e-3, 0.01, 0.1, 0.5, 1, 2, 4, 8, 20, 50]
DELTAS = [1e-30, 1e-20, 1e-12, 1e-7, 1e-5, 1e-3, 0.1]


def exact_delta(epsilon, sigma):
    """Proposition 3 of the paper as printed, with enough digits for its cancellation."""
    with mpmath.workdps(80):
        epsilon, sigma = mpmath.mpf(epsilon), mpmath.mpf(sigma)
        a, b = -epsilon * sigma + 1 / (2 * sigma), -epsilon * sigma - 1 / (2 * sigma)
        return mpmath.ncdf(a) - mpmath.exp(epsilon) * mpmath.ncdf(b)


def exact_sigma(epsilon, delta, start):
    with mpmath.workdps(60):
        return mpmath.findroot(
            lambda sigma: mpmath.log(exact_delta(epsilon, sigma)) - mpmath.log(mpmath.mpf(delta)),
            (mpmath.mpf(start) * (1 - mpmath.mpf("1e-6")), mpmath.mpf(start) * (1 + mpmath.mpf("1e-6"))),
            solver="anderson",
            tol=1e-30,
        )


@pytest.mark.parametrize(("epsilon", "delta"), list(itertools.product(EPSILONS, DELTAS)))
def test_sigma_is_safe_and_precise(epsilon, delta):
    sigma = gaussian_sigma(epsilon, delta)
    assert exact_delta(epsilon, sigma) <= delta
    true = exact_sigma(epsilon, delta, sigma)
    assert 0 <= (sigma - true) / true <= 1e-9


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 1, 50, 1e3, 1e4])
@pytest.mark.parametrize("sigma", [1e-4, 0.01, 0.3, 1, 7, 300, 1e6])
def test_delta_is_an_upper_bound(epsilon, sigma):
    true = exact_delta(epsilon, sigma)
    assert delta_bound(epsilon, sigma) >= true
    assert gaussian_delta(epsilon, sigma) >= true


@pytest.mark.parametrize("epsilon", [-2.0, -0.05, -1e-9])
@pytest.mark.parametrize("sigma", [0.05, 0.8, 20.0, 1e4])
def test_delta_bound_holds_for_negative_epsilon(epsilon, sigma):
    true = exact_delta(epsilon, sigma)
    assert true <= delta_bound(epsilon, sigma) <= true * (1 + 1e-5)


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-6, 1e-300), (1e-6, 0.999), (1e4, 1e-300), (1e4, 0.999)])
def test_corners_of_the_valid_range_are_safe(epsilon, delta):
    sigma = gaussian_sigma(epsilon, delta)
    with mpmath.workdps(700):
        e, s = mpmath.mpf(epsilon), mpmath.mpf(sigma)
        true = mpmath.ncdf(-e * s + 1 / (2 * s)) - mpmath.exp(e) * mpmath.ncdf(-e * s - 1 / (2 * s))
    assert true <= delta


@pytest.mark.parametrize(("sigma", "delta"), list(itertools.product([0.1, 0.5, 1.3, 4.0, 90.0], [1e-30, 1e-7, 0.01])))
def test_epsilon_inverts_the_curve_from_above(sigma, delta):
    epsilon = gaussian_epsilon(sigma, delta)
    assert exact_delta(epsilon, sigma) <= delta
    assert epsilon == 0 or exact_delta(epsilon * (1 - 1e-9), sigma) > delta


def test_no_epsilon_is_needed_under_enough_noise():
    assert gaussian_epsilon(100.0, 0.5) == 0.0


def test_known_points():
    assert gaussian_sigma(4, 5e-8) == pytest.approx(1.32790352815356, rel=1e-13)


def test_composition_is_exact_to_rounding_and_rounds_down():
    sigmas = [0.7, 1.3, 1.3, 9.0, 1e-3, 1e4]
    composed = compose_sigmas(sigmas)
    cost = sum(1 / Fraction(sigma) ** 2 for sigma in sigmas)
    assert 1 / Fraction(composed) ** 2 >= cost
    assert composed == pytest.approx(1 / math.sqrt(cost), rel=1e-14)
    assert compose_sigmas([]) == math.inf
    assert compose_sigmas([1e-90] * 3) == pytest.approx(1e-90 / math.sqrt(3))


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, "4", None, True])
def test_bad_arguments_name_themselves(bad):
    with pytest.raises(ParameterError, match="epsilon must be"):
        gaussian_sigma(bad, 1e-7)
    with pytest.raises(ParameterError, match="sigma must be"):
        gaussian_delta(1, bad)

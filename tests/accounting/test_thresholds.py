"""rho_1 against mpmath, rho_k against the paper's formula."""

import mpmath
import numpy as np
import pytest

from dpngram.accounting import expected_spurious, first_level_threshold, level_threshold, spurious_probability


def exact_candidate(sigma, t, delta):
    """The theorem's expression for one t, by root-finding on the tail with 60 digits."""
    with mpmath.workdps(60):
        tail = 1 - (1 - mpmath.mpf(delta)) ** (mpmath.mpf(1) / t)
        start = mpmath.sqrt(2 * mpmath.log(1 / tail)) if tail < 0.3 else mpmath.mpf(0.5)
        z = mpmath.findroot(lambda z: mpmath.log(mpmath.ncdf(-z)) - mpmath.log(tail), start)
        return 1 / mpmath.sqrt(t) + mpmath.mpf(sigma) * z


@pytest.mark.parametrize("delta", [1e-3, 5e-8, 1e-15, 1e-30])
@pytest.mark.parametrize("cap", [1, 10, 300, 10**6])
@pytest.mark.parametrize("sigma", [0.2, 3.98371, 500.0])
def test_first_level_threshold_is_safe_and_precise(sigma, cap, delta):
    rho = first_level_threshold(sigma, cap, delta)
    true = max(exact_candidate(sigma, t, delta) for t in {1, 2, 3, cap // 2, cap} if 1 <= t <= cap)
    assert 0 <= (rho - true) / true <= 1e-9


def test_the_maximum_may_lie_at_either_end():
    assert first_level_threshold(1e-3, 100, 1e-7) == pytest.approx(float(exact_candidate(1e-3, 1, 1e-7)))
    assert first_level_threshold(10.0, 100, 1e-7) == pytest.approx(float(exact_candidate(10.0, 100, 1e-7)))


def test_known_point():
    assert first_level_threshold(3.98371, 300, 5e-8) == pytest.approx(25.0851, abs=5e-5)


def test_level_threshold_bounds_the_spurious_grams():
    for sigma, eta, previous, valid in [(2.0, 0.01, 100, 10_000), (1.0, 0.2, 50, 20), (3.0, 0.001, 10**6, 10**13)]:
        rho = level_threshold(sigma, eta, previous, valid)
        bound = eta * min(previous, valid)
        assert bound * (1 - 1e-8) <= expected_spurious(sigma, rho, valid) <= bound
        assert spurious_probability(sigma, rho) == pytest.approx(expected_spurious(sigma, rho, valid) / valid)


def test_level_threshold_of_an_empty_level_is_finite():
    assert np.isfinite(level_threshold(1.0, 0.01, 0, 0))
    assert np.isposinf(level_threshold(1.0, 0.01, 0, 5))

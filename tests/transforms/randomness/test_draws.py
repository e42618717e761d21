"""Laws of chance: precise at their ends, and the right ones."""

import mpmath
import numpy as np
import pytest
from scipy import special, stats

from dpngram.transforms.randomness.draws import _log_complement, standard_normal, tail_normal, uniform
from dpngram.transforms.randomness.prf import Prf

KEY = bytes(range(32))


def test_uniform_keeps_its_precision_near_zero():
    words = np.array([[0, 0], [0, 1], [1, 0], [2**64 - 1, 2**64 - 1]], np.uint64)
    assert uniform(words).tolist() == pytest.approx([2.0**-129, 1.5 * 2.0**-128, 2.0**-64, 1.0], rel=1e-15, abs=0)


def test_normal_is_symmetric_and_finite():
    words = np.array([[0, 0], [5, 9], [2**62, 3], [2**63 - 1, 2**64 - 1]], np.uint64)
    z = standard_normal(words)
    assert np.isfinite(z).all()
    assert (standard_normal(~words) == -z).all()
    assert z[0] == pytest.approx(special.ndtri(2.0**-129))
    assert -13.3 < z[0] < -13.1


def test_normal_law():
    """Kolmogorov-Smirnov over 10^6 draws; a fixed key, so it passes always or never. p-value 1e-4 was the bar."""
    z = standard_normal(Prf(KEY).blocks(np.arange(10**6, dtype=np.uint64), 0))
    assert stats.kstest(z, "norm").pvalue > 1e-4


@pytest.mark.parametrize("bound", [-2.0, 0.0, 3.0, 9.0])
def test_tail_law(bound):
    z = tail_normal(Prf(KEY).blocks(np.arange(10**5, dtype=np.uint64), 1), bound)
    assert (z >= bound).all()
    assert stats.kstest(np.exp(special.log_ndtr(-z) - special.log_ndtr(-bound)), "uniform").pvalue > 1e-4


def test_long_gaps_take_all_values():
    """ln(1 - U) to the last bits at both ends, against 60 digits: U near 1 makes long gaps, U near 0 short ones."""
    top = 2**64 - 1
    words = np.array(
        [[0, 0], [0, 12345], [2**40, 7], [2**63 - 1, top], [2**63, 0], [top - 5, 3], [top, top]], np.uint64
    )
    with mpmath.workdps(60):
        for (high, low), found in zip(words.tolist(), _log_complement(words).tolist(), strict=True):
            expected = mpmath.log(1 - (high * mpmath.mpf(2) ** 64 + low + 0.5) / mpmath.mpf(2) ** 128)
            assert found == pytest.approx(float(expected), rel=1e-14)

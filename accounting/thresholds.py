"""Thresholds: rho_1, which privacy depends on, and rho_k, which only limits spurious grams."""

import math

import numpy as np
from scipy import special

from dpngram.accounting.parameters import (
    MAX_CONTRIBUTIONS,
    check_delta,
    check_integer,
    check_number,
    check_sigma,
)

__all__ = ["RHO_1_SLACK", "expected_spurious", "first_level_threshold", "level_threshold", "spurious_probability"]

# rho_1 is raised by this relative amount, far above the error of the special functions (about 1e-14)
# and far below anything a user could notice.
RHO_1_SLACK = 2.0**-38
# rho_k is at least -2.33 sigma: noise above a lower one, which is nearly all noise, would not be drawn precisely.
_MOST_SPURIOUS = 0.99


def first_level_threshold(sigma: float, max_contributions: int, delta: float, *, weight: float = 1.0) -> float:
    """rho_1 of the paper's theorem, rounded up.

    The maximum over t <= max_contributions of weight/sqrt(t) + sigma * isf(1 - (1 - delta)^(1/t)).
    A token that only one user has then appears with probability at most delta in all, whatever the
    number t of tokens this user gives `weight`/sqrt(t) each.

    The paper prints Phi^-1((1 - delta)^(1/t)), which is infinite once delta/t falls below 1e-16;
    the upper tail is computed here from log1p and expm1 and stays exact.

    Args:
        sigma: the noise of level 1.
        max_contributions: Delta_1, the most tokens that a user gives.
        delta: the accepted probability that a token which only one user has is released.
        weight: the L2 norm of what a user gives.
    """
    sigma, delta = check_sigma(sigma), check_delta(delta)
    check_number("weight", weight, 0.0, 1.0, low_open=True)
    t = np.arange(1, check_integer("max_contributions", max_contributions, 1, MAX_CONTRIBUTIONS) + 1, dtype=np.float64)
    tail = -np.expm1(math.log1p(-delta) / t)
    candidates = weight / np.sqrt(t) - sigma * special.ndtri(tail)
    return float(_raise(candidates.max()))


def level_threshold(sigma: float, eta: float, previous: int, valid: int) -> float:
    """rho_k for k >= 2: sigma * isf(eta * min(1, |S_{k-1}| / |V_k|)).

    Any value is private (Section 2.1 of the paper: rho_2, ..., rho_T do not enter the guarantee);
    this one keeps the expected number of spurious grams at or below eta * min(|S_{k-1}|, |V_k|).

    Args:
        sigma: the noise of the level.
        eta: the accepted share of spurious grams.
        previous: |S_{k-1}|.
        valid: |V_k|.
    """
    return _raise(-sigma * float(special.ndtri(_tail(eta, previous, valid))))


def spurious_probability(sigma: float, rho: float) -> float:
    """Pr[N(0, sigma^2) > rho]: the chance of a valid gram that nobody has.

    Args:
        sigma: the noise of the level.
        rho: its threshold.
    """
    return float(special.ndtr(-rho / sigma))


def expected_spurious(sigma: float, rho: float, valid: int) -> float:
    """Proposition 1 of the paper: at most |V_k| * Phi(-rho_k/sigma_k) spurious grams are expected.

    Args:
        sigma: the noise of the level.
        rho: its threshold.
        valid: |V_k|.
    """
    return valid * spurious_probability(sigma, rho)


def _tail(eta: float, previous: int, valid: int) -> float:
    eta = min(eta, _MOST_SPURIOUS)
    if valid <= 0:
        return eta
    return eta * min(1.0, previous / valid)


def _raise(rho: float) -> float:
    return rho + abs(rho) * RHO_1_SLACK

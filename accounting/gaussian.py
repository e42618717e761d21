"""The Gaussian mechanism with L2 sensitivity 1: delta, sigma and epsilon from each other.

All three come from one curve (Proposition 3 of the paper; Balle & Wang, "Improving the Gaussian
Mechanism for Differential Privacy", 2018):

    delta(epsilon, sigma) = Phi(a) - e^epsilon * Phi(b),
    a = -epsilon*sigma + 1/(2*sigma),   b = -epsilon*sigma - 1/(2*sigma).

The printed form subtracts two nearly equal numbers. Because phi(a) = e^epsilon * phi(b), it is also
phi(a) * (R(-a) - R(-b)) with the Mills ratio R(x) = Phi(-x)/phi(x), which keeps its relative
precision in the tail; that is the form computed here.

Rounding is always against us: a delta is never below the true one, a sigma never too small, an
epsilon never below the true one. Each bound carries a forward error estimate, and the solvers
return only points at which the *bounded* value meets the target.
"""

import math
import sys
from collections.abc import Callable, Iterable

from scipy import special

from dpngram.accounting.parameters import check_delta, check_epsilon, check_sigma

__all__ = ["compose_sigmas", "delta_bound", "gaussian_delta", "gaussian_epsilon", "gaussian_sigma", "sigma_for"]

_ULP = sys.float_info.epsilon
_SQRT_HALF_PI = math.sqrt(math.pi / 2)
_SQRT_HALF = math.sqrt(0.5)
# Below this argument the Mills ratio is close to overflow, and the plain form is exact enough.
_MILLS_MIN = -5.0


def gaussian_delta(epsilon: float, sigma: float) -> float:
    """The smallest delta for which noise N(0, sigma^2) is (epsilon, delta)-DP, rounded up.

    Args:
        epsilon: the privacy loss, from 1e-6 to 1e4.
        sigma: the standard deviation of the noise, for queries that one user changes by norm 1.
    """
    return delta_bound(check_epsilon(epsilon), check_sigma(sigma))


def gaussian_sigma(epsilon: float, delta: float) -> float:
    """The smallest sigma that is (epsilon, delta)-DP at sensitivity 1, rounded up.

    Args:
        epsilon: the privacy loss, from 1e-6 to 1e4.
        delta: the failure probability, below 1.
    """
    return sigma_for(check_epsilon(epsilon), check_delta(delta))


def gaussian_epsilon(sigma: float, delta: float) -> float:
    """The smallest epsilon >= 0 for which noise N(0, sigma^2) is (epsilon, delta)-DP, rounded up.

    Args:
        sigma: the standard deviation of the noise, for queries that one user changes by norm 1.
        delta: the failure probability, below 1.
    """
    sigma, delta = check_sigma(sigma), check_delta(delta)
    if delta_bound(0.0, sigma) <= delta:
        return 0.0
    high = 1.0
    while delta_bound(high, sigma) > delta:
        high *= 2
    return _bisect(0.0, high, lambda epsilon: delta_bound(epsilon, sigma) <= delta)


def compose_sigmas(sigmas: Iterable[float]) -> float:
    """The one Gaussian that is as private as all of these together, rounded down.

    Proposition 2 of the paper (Dong, Roth & Su, "Gaussian Differential Privacy", 2019):
    1/sigma^2 is the sum of the 1/sigma_k^2. A smaller sigma is the less private one, so down is safe.

    Args:
        sigmas: the standard deviations of several Gaussian queries, each of sensitivity 1; without any, the answer is
            infinite.
    """
    checked = [check_sigma(sigma) for sigma in sigmas]
    if not checked:
        return math.inf
    smallest = min(checked)
    total = math.fsum((smallest / sigma) ** 2 for sigma in checked)
    return smallest / math.sqrt(total) * (1 - 8 * _ULP)


def sigma_for(epsilon: float, delta: float) -> float:
    """`gaussian_sigma` for any real epsilon; a negative one needs delta > 1 - e^epsilon."""
    low, high = 0.0, 1.0
    while delta_bound(epsilon, high) > delta:
        low, high = high, high * 2
        if math.isinf(high):
            raise ValueError(f"no sigma gives delta {delta} at epsilon {epsilon}.")
    return _bisect(low, high, lambda sigma: delta_bound(epsilon, sigma) <= delta)


def delta_bound(epsilon: float, sigma: float) -> float:
    """An upper bound on delta(epsilon, sigma), tight to its own rounding error; epsilon may be negative."""
    half_mu = 0.5 / sigma
    shift = epsilon * sigma
    x = shift - half_mu  # -a
    density = math.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    # x carries an error of about (|shift| + half_mu) ulps; exp(-x*x/2) multiplies it by |x|.
    x_error = 8 * _ULP * (1 + abs(shift) + half_mu)
    density_error = (1 + abs(x)) * x_error
    if x < _MILLS_MIN:
        near = float(special.ndtr(-x))
        far = (
            density * _mills(shift + half_mu) if shift + half_mu > _MILLS_MIN else _plain_far(epsilon, shift + half_mu)
        )
        bound = near - far + density_error * (near + far)
    else:
        near, far = _mills(x), _mills(shift + half_mu)  # R(-a), R(-b)
        difference = (near - far) + (1 + max(-x, 0.0)) * x_error * (near + far)
        if x > 0:
            # R is convex and decreasing with |R'(x)| < 1/(1 + x^2): better than cancellation at tiny mu.
            difference = min(difference, 2 * half_mu / (1 + x * x) * (1 + x_error))
        bound = density * difference * (1 + density_error)
    return min(1.0, max(bound, sys.float_info.min))


def _plain_far(epsilon: float, y: float) -> float:
    """e^epsilon * Phi(-y) where y, and so epsilon, is far below zero: nothing to lose in the tail."""
    return math.exp(epsilon) * float(special.ndtr(-y))


def _mills(x: float) -> float:
    return _SQRT_HALF_PI * float(special.erfcx(x * _SQRT_HALF))


def _bisect(low: float, high: float, holds: Callable[[float], bool]) -> float:
    """Narrows (low, high] to neighbouring floats; `holds` is true of the value returned."""
    while True:
        middle = low + 0.5 * (high - low)
        if middle <= low or middle >= high:
            return high
        if holds(middle):
            high = middle
        else:
            low = middle

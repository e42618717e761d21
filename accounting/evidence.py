"""What trials tell about a claim: lower bounds on epsilon and delta from what was seen with and without one user.

All bounds hold with the stated confidence whatever the mechanism is (Clopper & Pearson 1934), except `gaussian_fit`,
which takes the scores for normal: then two means and a variance tell the whole trade-off curve (Dong, Roth & Su 2019),
and tails far below 1/trials can be spoken of.
"""

import dataclasses
import math
from collections.abc import Sequence

from scipy import special

from dpngram.accounting.gaussian import gaussian_epsilon
from dpngram.accounting.parameters import ParameterError, check_integer, check_number

__all__ = ["EventBound", "GaussianFit", "binomial_interval", "bound_event", "fit_gaussian"]


def binomial_interval(hits: int, trials: int, error: float) -> tuple[float, float]:
    """Clopper-Pearson bounds on a probability; each side is wrong with probability at most `error`."""
    trials = check_integer("trials", trials, 1, 1 << 50)
    hits = check_integer("hits", hits, 0, trials)
    error = check_number("error", error, 0.0, 1.0, low_open=True, high_open=True)
    low = float(special.betaincinv(hits, trials - hits + 1, error)) if hits else 0.0
    high = float(special.betaincinv(hits + 1, trials - hits, 1 - error)) if hits < trials else 1.0
    return low, high


@dataclasses.dataclass(frozen=True, kw_only=True)
class EventBound:
    """What the frequency of one event in two neighbouring worlds proves of (epsilon, delta)."""

    likely: float  # how often it was seen in the world where it is the more likely
    unlikely: float
    epsilon: float  # at the claimed delta, the true epsilon is at least this
    delta: float  # at the claimed epsilon, the true delta is at least this


def bound_event(
    likely: tuple[int, int], unlikely: tuple[int, int] | None, *, epsilon: float, delta: float, error: float
) -> EventBound:
    """From (hits, trials) in both worlds: P[E] <= e^epsilon P'[E] + delta, solved for epsilon and for delta.

    The event, and which world is the likely one, must be chosen without looking at these trials. Wrong with probability
    at most `error`: half for each of the two frequencies. `unlikely` None: there the event is impossible.
    """
    low, _ = binomial_interval(*likely, error / 2)
    high = 0.0 if unlikely is None else binomial_interval(*unlikely, error / 2)[1]
    proved = 0.0
    if low > delta:
        proved = max(0.0, math.log((low - delta) / high)) if high else math.inf
    return EventBound(
        likely=likely[0] / likely[1],
        unlikely=0.0 if unlikely is None else unlikely[0] / unlikely[1],
        epsilon=proved,
        delta=max(0.0, low - math.exp(epsilon) * high),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianFit:
    """Two samples taken for normal with one variance: how far they are apart, and the epsilon that this is."""

    mu: float  # distance of the means in standard deviations
    mu_low: float
    epsilon: float  # of mu, at the claimed delta
    epsilon_low: float


def fit_gaussian(present: Sequence[float], absent: Sequence[float], *, delta: float, error: float) -> GaussianFit:
    """The distance mu of two normal samples, and a lower bound that is wrong with probability about `error`.

    The estimate is nearly normal, with variance 1/n + 1/m for the means and mu^2 / (2 (n + m)) for the deviation.
    """
    n, m = len(present), len(absent)
    if min(n, m) < 2:
        raise ParameterError(f"trials must be at least 2 in each world, got {min(n, m)}.")
    mean, other = math.fsum(present) / n, math.fsum(absent) / m
    squares = math.fsum((x - mean) ** 2 for x in present) + math.fsum((x - other) ** 2 for x in absent)
    deviation = math.sqrt(squares / (n + m - 2))
    mu = abs(mean - other) / deviation if deviation else (math.inf if mean != other else 0.0)
    spread = math.sqrt(1 / n + 1 / m + (mu * mu / (2 * (n + m)) if math.isfinite(mu) else 0.0))
    low = mu + float(special.ndtri(error)) * spread
    return GaussianFit(mu=mu, mu_low=low, epsilon=_epsilon(mu, delta), epsilon_low=_epsilon(low, delta))


def _epsilon(mu: float, delta: float) -> float:
    if mu <= 1e-9:
        return 0.0
    return gaussian_epsilon(1 / mu, delta) if mu < 1e3 else math.inf

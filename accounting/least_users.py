"""How many users have a released n-gram at least, from what is released alone.

A published weight is a sum over users, in which nobody counts more than 1, plus noise. So the weight without the noise
is a lower bound of the number of users, and what is needed is a lower confidence bound of it. An n-gram is only seen if
its noisy weight reached a threshold, which favours lucky noise; the bound is for the normal law above that threshold:

    L(x): the weight for which a value of x or more, given that it reached rho, has probability a.

Given that it is released, an n-gram has L(x) above its weight with probability at most a, also if nobody has it. With
a = (1 - confidence) / (levels * released n-grams of the level), all bounds of a release hold at the same time with the
confidence. (The noise of a cell is independent of all others. Given that it is released, how many are released follows
from the others; so the expected number of wrong bounds of a level is at most the sum of the a.)

A user who has an n-gram has every part of it. So the bound of an n-gram also holds for its parts.

There is no such bound for lengths from 2 on under `plus`: there, users who have little to say give more than 1 on the
published scale, and the noise of a weight is not published.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from dpngram.accounting.parameters import ParameterError, check_number
from dpngram.accounting.plan import ExtractionPlan

__all__ = ["has_user_bounds", "least_users"]

_GRID = 2.0**-13  # of sigma: weights and thresholds are on a grid of 2^-14
_STEPS = 60


def has_user_bounds(plan: ExtractionPlan, n: int) -> bool:
    """Whether `least_users` can say something about n-grams of this length."""
    return n >= plan.first_n and (n == 1 or not plan.spec.individual_budgets)


def least_users(
    plan: ExtractionPlan,
    n: int,
    weights: ArrayLike,
    rho: float,
    released: int | None = None,
    *,
    confidence: float = 0.95,
) -> NDArray[np.int64]:
    """For released n-grams of one length, a number of users that each has at least; 0 where nothing can be said.

    All numbers of a release are right at the same time with probability `confidence`.

    Args:
        plan: of the release.
        n: the length.
        weights: published weights of n-grams of this length.
        rho: the threshold of this length in the manifest.
        released: how many n-grams of this length are released; default: as many as there are weights.
        confidence: such as 0.95.
    """
    if not has_user_bounds(plan, n):
        raise ParameterError(f"n must be 1 with policy {plan.policy}, got {n}: there is no bound for longer n-grams.")
    check_number("confidence", confidence, 0.5, 1.0, high_open=True)
    published = np.asarray(weights, np.float64)
    if not len(published):
        return np.zeros(0, np.int64)
    log_chance = math.log((1 - confidence) / (plan.max_n * max(released or 0, len(published))))
    level = plan.level(n)
    bounds = np.full(len(published), np.inf)
    for part in level.rounds:  # which round of level 1 released a token is not published: take the least
        scale = math.sqrt(part.share) if plan.spec.individual_budgets else 1.0
        sigma, least = level.sigma / scale, (rho if part.rho is None else part.rho) / scale
        reached = published >= least - _GRID * sigma
        found = _lower_bounds(published[reached], least + _GRID * sigma, sigma, log_chance)
        bounds[reached] = np.minimum(bounds[reached], found)
    bounds[np.isinf(bounds)] = 0.0
    return np.ceil(bounds - 1e-9).astype(np.int64)


def _lower_bounds(noisy: NDArray[np.float64], rho: float, sigma: float, log_chance: float) -> NDArray[np.float64]:
    """L(x) by bisection: what is given back is never above it, and 0 where it is negative."""
    low, high = np.zeros(len(noisy)), np.maximum(noisy, 0.0)
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        log_tail = special.log_ndtr((middle - noisy) / sigma) - special.log_ndtr((middle - rho) / sigma)
        likely = log_tail > log_chance
        low, high = np.where(likely, low, middle), np.where(likely, middle, high)
    return low

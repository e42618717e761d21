"""Policy `plus`: every user has one budget for the whole run, and what it pays for is counted in exact integers.

A budget is a squared L2 norm in units of 2^-64, so that integer weights (units of 2^-32) are charged with their
squares. The one invariant: *all squared weights that a user ever gives sum to less than 2^64*. It holds because an
allowance is at most the budget, because the weights of a round cost at most its share of the allowance (the float
arithmetic below errs by less than 2^-50 and gives away 2^-40), and because exactly their squares are taken off.
"""

from collections.abc import Sequence

import numpy as np

from dpngram.accounting.numerics import LEAST_WEIGHT_BITS
from dpngram.transforms.blocks.columns import Array
from dpngram.transforms.policies.guide import GUIDE_UNIT
from dpngram.transforms.randomness.noise import UNIT

__all__ = ["FULL_BUDGET", "allowances", "longest_runs", "spend"]

FULL_BUDGET = np.uint64(2**64 - 1)
_LEAST_WEIGHT = UNIT >> LEAST_WEIGHT_BITS


def longest_runs(occupied: Array, user_start: Array) -> Array:
    """For each user the longest run of occupied positions; an empty position closes each post, so none spans two."""
    padded = np.zeros(len(occupied) + 2, np.int8)
    padded[1:-1] = occupied
    edges = np.diff(padded)
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    runs = np.zeros(len(user_start) - 1, np.int64)
    np.maximum.at(runs, np.searchsorted(user_start, starts, side="right") - 1, ends - starts)
    return runs


def allowances(budget: Array, runs: Array, n: int, shares: Sequence[float]) -> Array:
    """What each user may spend at level n: s^2 = B q_n / (q_n + ... + q_L), rounded down.

    L is the highest level that the user's text can still reach: a run of r positions that hold candidates of length n
    holds grams of up to n - 1 + r tokens. A user with short posts need not save for levels it never comes to.
    """
    sums = np.cumsum(shares[n - 1 :])
    fraction = shares[n - 1] / sums * (1 - 2.0**-48)
    reach = np.clip(runs, 1, len(sums)) - 1
    allowed: Array = np.minimum((budget.astype(np.float64) * fraction[reach]).astype(np.uint64), budget)
    return allowed


def spend(user: Array, guide: Array | int, allowance: Array, share: float) -> tuple[Array, Array]:
    """The weights of (user, gram) pairs, and what each user pays for them: the sum of their squares, exactly.

    With n2 the sum of squared guides over a user's grams, a gram gets s * lambda / sqrt(max(n2, 1)), rounded down: a
    user whose grams are all nearly certain spends little, and keeps the rest for later levels. All in all at most
    `share` of the allowance: the sum of squares is at most share * s^2 * n2 / max(n2, 1).

    Weights below 2^-12 become 0, and cost nothing. So each cell that a user changes costs 2^-24 or more, there are at
    most 2^24 of them in a release, and the plan can pay for the rounding of their noise (accounting/numerics.py).

    One user with an allowance of 2^64 - 1 and two grams, the second half as useful:

    >>> weight, charge = spend(np.array([0, 0]), np.array([65536, 32768]), np.array([2**64 - 1], np.uint64), 1.0)
    >>> (weight / 2**32).round(4), bool(charge[0] < 2**64 - 1)
    (array([0.8944, 0.4472]), True)

    Args:
        user: the row of the user, for each (user, gram) pair.
        guide: lambda of each pair in units of 2^-16, or one for all.
        allowance: for each user, s^2 in units of 2^-64.
        share: the part of the allowance that this round may spend.
    """
    guides = np.broadcast_to(np.asarray(guide, np.uint64), user.shape)
    norms = np.zeros(len(allowance), np.uint64)
    np.add.at(norms, user, guides * guides)  # at most 2^32 each: exact for 2^31 grams
    allowed = allowance.astype(np.float64) * share
    scale = np.sqrt(allowed / np.maximum(norms, np.uint64(GUIDE_UNIT**2)).astype(np.float64)) * (1 - 2.0**-40)
    weight = (np.take(scale, user) * guides.astype(np.float64)).astype(np.int64)
    weight[weight < _LEAST_WEIGHT] = 0
    charge = np.zeros(len(allowance), np.uint64)
    squares = weight.astype(np.uint64)
    np.add.at(charge, user, squares * squares)
    return weight, charge

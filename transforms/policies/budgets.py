"""Policy `plus`: every user has one budget for the whole run, and pays for all that it gives, in integers.

A budget is a squared L2 norm in units of 2^-64. Weights are integers in units of 2^-32, so a weight costs its square.
The one invariant: *what a user ever moves has squares that sum to less than 2^64*. It holds because a round never
spends more than is left, because what it takes off the budget is never less than what its weights cost (the float
arithmetic below errs by less than 2^-50 and gives away 2^-40), and because budgets only shrink.
"""

from collections.abc import Sequence

import numpy as np

from dpngram.accounting.numerics import LEAST_WEIGHT_BITS
from dpngram.transforms.blocks.columns import Array
from dpngram.transforms.policies.guide import GUIDE_UNIT
from dpngram.transforms.randomness.noise import UNIT

__all__ = ["COUNT_UNIT", "FULL_BUDGET", "allowances", "longest_runs", "part_of", "price", "spend", "spend_on_count"]

FULL_BUDGET = np.uint64(2**64 - 1)
COUNT_UNIT = 1 << 16
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


def part_of(allowance: Array, share: float, budget: Array) -> Array:
    """The share of the allowance that one round may spend, rounded down; never more than is left."""
    part: Array = (allowance.astype(np.float64) * (share * (1 - 2.0**-48))).astype(np.uint64)
    return np.minimum(part, budget)


def spend(user: Array, guide: Array | int, allowed: Array, full: Array | None = None) -> tuple[Array, Array]:
    """The weights of (user, gram) pairs, and what each user pays for them.

    With n2 the sum of squared guides over a user's grams, a gram gets sqrt(allowed) * lambda / sqrt(max(n2, 1)),
    rounded down: a user whose grams are all nearly certain spends little, and keeps the rest for later. Users in
    `full` have no later, and spend all that they may: sqrt(allowed) * lambda / sqrt(n2).

    A user pays allowed * n2 / max(n2, 1), rounded up. The squares of its weights sum to less.

    Weights below 2^-12 become 0. So each cell that a user changes costs 2^-24 or more, there are at most 2^24 of them
    in a release, and the plan can pay for the rounding of their noise (accounting/numerics.py).

    One user who may spend everything and has two grams, the second half as useful:

    >>> weight, charge = spend(np.array([0, 0]), np.array([4096, 2048]), np.array([2**64 - 1], np.uint64))
    >>> (weight / 2**32).round(4), bool(charge[0] == 2**64 - 1)
    (array([0.8944, 0.4472]), True)

    Args:
        user: the row of the user, for each (user, gram) pair.
        guide: lambda of each pair in units of 2^-12, or one for all.
        allowed: for each user, what it may spend now, in units of 2^-64.
        full: for each user, whether it spends all that it may.
    """
    guides = np.broadcast_to(np.asarray(guide, np.float64), user.shape)
    norms, least = _norms(user, guides, allowed, full)
    scale = np.sqrt(allowed.astype(np.float64) / np.maximum(norms, least)) * (1 - 2.0**-40)
    weight = (np.take(scale, user) * guides).astype(np.int64)
    weight[weight < _LEAST_WEIGHT] = 0
    return weight, _charge(norms, least, allowed)


def price(user: Array, guide: Array, allowed: Array, full: Array | None = None) -> Array:
    """What each user pays in `spend`, without the weights."""
    return _charge(*_norms(user, guide.astype(np.float64), allowed, full), allowed)


def _norms(user: Array, guides: Array, allowed: Array, full: Array | None) -> tuple[Array, Array]:
    """n2 of each user, and what it counts for at least; both in units of 2^-24."""
    norms = np.bincount(user, weights=guides * guides, minlength=len(allowed))  # at most 2^24 each: exact for 2^29
    least = np.full(len(allowed), float(GUIDE_UNIT**2))
    if full is not None:
        least[full] = 1.0
    return norms, least


def _charge(norms: Array, least: Array, allowed: Array) -> Array:
    """allowed * n2 / max(n2, 1), rounded up; nothing if a user has no gram."""
    partly = norms < least  # then at most 1 - 2^-24 of it
    parts = np.where(partly, allowed.astype(np.float64) * (norms / least), 0.0) * (1 + 2.0**-40)
    charge = np.where(partly, np.minimum(parts.astype(np.uint64) + np.uint64(1), allowed), allowed)
    return np.where(norms > 0, charge, np.uint64(0))


def spend_on_count(user: Array, allowed: Array, ratio: float) -> tuple[Array, Array]:
    """How much of each cell of a count its users vouch for, in units of 2^-16, and what each user pays for it.

    The count is the sum over cells of min(1, what all users vouch for). User i vouches for w = min(1, c) of each of its
    m cells, so it moves the count by at most m w, whatever others do. The count has noise sigma_F where others have
    sigma, so this costs (m w sigma / sigma_F)^2; c is the largest for which that is allowed.

    Privacy: the charge is computed from the user's own cells, and is at least what the user can move. That others may
    have filled a cell already, so that the user moves less, is not used: it would be a function of others' data.

    Args:
        user: the row of the user, for each (user, cell) pair.
        allowed: for each user, what it may spend now, in units of 2^-64.
        ratio: sigma_F / sigma.
    """
    cells = np.bincount(user, minlength=len(allowed)).astype(np.float64)
    most = np.sqrt(allowed.astype(np.float64)) * (2.0**-32 * ratio * COUNT_UNIT * (1 - 2.0**-30))
    given = np.floor(np.minimum(most / np.maximum(cells, 1.0), COUNT_UNIT))
    root = (cells * given * (2.0**32 / (ratio * COUNT_UNIT)) * (1 + 2.0**-40)).astype(np.uint64) + np.uint64(1)
    charge = root * root  # root < 2^32: see the 2^-30 above
    given[charge > allowed] = 0  # rounding up was too much for the little that is left
    return np.take(given, user).astype(np.int64), np.where(cells * given > 0, charge, np.uint64(0))

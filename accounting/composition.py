"""What several releases of the same users cost together: exact composition of their Gaussian parts.

A release of one plan is a Gaussian of noise sigma* on public cells, except that level 1 shows a token of one user alone
with probability at most d, and that draws have finite precision (docs/privacy.md, *Several releases: the ledger*). Of
several releases, the 1/sigma*^2, the d and the numbers of touched cells add up, and the sum is checked as
`ExtractionPlan` checks one release. That is never more than the sums of the epsilons and the deltas, and mostly much
less.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence

from dpngram.accounting.gaussian import compose_sigmas
from dpngram.accounting.numerics import rounding_cost
from dpngram.accounting.parameters import (
    ParameterError,
    check_delta,
    check_epsilon,
    check_integer,
    check_number,
    check_sigma,
)
from dpngram.accounting.plan import ExtractionPlan, delta_needed

__all__ = ["Budget", "Spending", "composed_epsilon", "fits_budget", "spending_of"]

_MOST_CELLS = 1 << 62
_MOST_EPSILON = 1e4
# What a budget sets aside for finite precision, if there is room for it: the cost of so many releases by `plus` in one
# window, which has more cells and counts than most, or of so many releases like the first.
_RELEASES_IN_MIND = (1024, 256, 64, 16, 4, 1)
_CELLS_OF_PLUS, _COUNTS_OF_PLUS = (1 << 24) + 1, 1 << 17


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spending:
    """What one release spends.

    Args:
        epsilon, delta: its guarantee when it is the only one.
        sigma: sigma*, the noise of the one Gaussian that costs as much as the release, all windows together.
        first_level_delta: d, the chance that level 1 shows a token which only one user has, all windows together.
        cells, counts: what finite precision is charged for, see `numerics.touched`.
    """

    epsilon: float
    delta: float
    sigma: float
    first_level_delta: float
    cells: int
    counts: int

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        check_sigma(self.sigma)
        check_number("first_level_delta", self.first_level_delta, 0.0, 1.0, low_open=False, high_open=True)
        check_integer("cells", self.cells, 1, _MOST_CELLS)
        check_integer("counts", self.counts, 0, _MOST_CELLS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget:
    """The most that all releases together may spend."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)


def spending_of(plan: ExtractionPlan) -> Spending:
    """What a release by this plan spends, for a user who takes part in all of its windows."""
    cells, counts = plan.touched
    return Spending(
        epsilon=plan.epsilon,
        delta=plan.delta,
        sigma=plan.sigma_star,
        first_level_delta=plan.windows * plan.threshold_delta,
        cells=cells,
        counts=counts,
    )


def composed_epsilon(spent: Sequence[Spending], delta: float) -> float:
    """The smallest epsilon for which all these releases together are (epsilon, delta)-DP, rounded up; inf if none is.

    Whatever a later release does may depend on the results of earlier ones. What it *spends* must not: for that there
    is `fits_budget`.

    Args:
        spent: one for each release of the same users.
        delta: of the guarantee. It must exceed the sum of the first_level_delta, otherwise the answer is inf.
    """
    delta = check_delta(delta)
    if not spent:
        return 0.0
    total = _sum(spent)
    low, high = 0.0, 1e-6
    while not _holds(total, high, delta):
        low, high = high, high * 1.25
        if high > _MOST_EPSILON:
            return math.inf
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if _holds(total, middle, delta) else (middle, high)
    return high


def fits_budget(spent: Sequence[Spending], budget: Budget) -> bool:
    """Whether these releases stay within the budget, by a rule that holds even if each was planned after seeing the
    results of those before.

    The rule has limits on every number that adds up: 1/sigma*^2, d, cells and counts. All limits follow from the budget
    and from the first release, which was planned before there was any result, and together they meet the budget.

    Args:
        spent: one for each release, in the order in which they were made.
        budget: fixed before the first of them.
    """
    if not spent:
        return True
    first, total = spent[0], _sum(spent)
    for cells, counts in _precision_in_mind(first):
        limits = _limits(first, budget, cells, counts)
        if limits is not None:
            return (
                total.sigma >= limits.sigma
                and total.first_level_delta <= limits.first_level_delta
                and total.cells <= limits.cells
                and total.counts <= limits.counts
            )
    return False


@dataclasses.dataclass(frozen=True)
class _Total:
    sigma: float
    first_level_delta: float
    cells: int
    counts: int


def _sum(spent: Sequence[Spending]) -> _Total:
    return _Total(
        spent[0].sigma if len(spent) == 1 else compose_sigmas(one.sigma for one in spent),
        _add_up([one.first_level_delta for one in spent]),
        sum(one.cells for one in spent),
        sum(one.counts for one in spent),
    )


def _add_up(values: Sequence[float]) -> float:
    """The sum, rounded up."""
    return values[0] if len(values) == 1 else math.nextafter(math.fsum(values), math.inf)


def _left(total: _Total, epsilon: float, delta: float) -> tuple[float, float] | None:
    """The (epsilon, delta) that exact draws must have; None if finite precision costs too much of it."""
    try:
        return rounding_cost(epsilon, delta, total.cells, total.counts).left(epsilon, delta)
    except ParameterError:
        return None


def _holds(total: _Total, epsilon: float, delta: float) -> bool:
    """The check of `ExtractionPlan`, for several releases."""
    left = _left(total, epsilon, delta)
    if left is None or total.first_level_delta >= 1:
        return False
    return delta_needed(left[0], total.sigma, total.first_level_delta) <= left[1] * (1 + 1e-15)


def _precision_in_mind(first: Spending) -> Iterator[tuple[int, int]]:
    """Limits on cells and counts, the most generous first."""
    for least in ((_CELLS_OF_PLUS, _COUNTS_OF_PLUS), (0, 0)):
        for releases in _RELEASES_IN_MIND:
            yield releases * max(first.cells, least[0]), releases * max(first.counts, least[1])


@functools.lru_cache(maxsize=64)
def _limits(first: Spending, budget: Budget, cells: int, counts: int) -> _Total | None:
    """What all releases together may have, with finite precision paid for these cells and counts; None if the first
    is too much already.

    Of delta, level 1 may have what it has in the first release, times the larger of two factors: how many releases like
    the first there is room for, and how much larger the budget's delta is. The Gaussians have the rest.
    """

    def times(factor: float) -> _Total:
        spent = first.first_level_delta * factor
        return _Total(first.sigma / math.sqrt(factor), spent, cells, counts)

    if not _holds(times(1.0), budget.epsilon, budget.delta):
        return None
    low, high = 1.0, 2.0
    while _holds(times(high), budget.epsilon, budget.delta):
        low, high = high, 2 * high
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _holds(times(middle), budget.epsilon, budget.delta) else (low, middle)
    total = times(low)
    more = times(budget.delta / first.delta * (1 + 2.0**-30))  # n times the same delta are then within n delta
    if more.first_level_delta > total.first_level_delta:
        more = dataclasses.replace(more, sigma=_least_sigma(more, budget))
        return more if first.sigma >= more.sigma else total
    return total


def _least_sigma(total: _Total, budget: Budget) -> float:
    """The smallest noise with which this total meets the budget."""
    low, high = 0.0, 1.0
    while not _holds(dataclasses.replace(total, sigma=high), budget.epsilon, budget.delta):
        low, high = high, 2 * high
        if math.isinf(high):
            return high
    for _ in range(60):
        middle = 0.5 * (low + high)
        holds = _holds(dataclasses.replace(total, sigma=middle), budget.epsilon, budget.delta)
        low, high = (low, middle) if holds else (middle, high)
    return high

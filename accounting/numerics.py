"""What the finite precision of the draws costs: a small part of epsilon and delta, which every plan sets aside first.

The proofs are about exact Gaussians. The code draws from a finite number of bits and computes in double precision.
Only the cells that one user gives weight to ("touched" cells), and the counts of zero cells in their strata, are drawn
differently with and without this user. So these alone must be compared with exact draws (docs/privacy.md, *Numbers*):

* a touched cell: within REACH standard deviations each value of the grid has the exact probability to a factor
  e^(+-CELL_ERROR); what is further out has probability at most CELL_TAIL;
* a count of zero cells: likewise COUNT_ERROR and COUNT_TAIL.

With N cells and C counts, and V = N CELL_ERROR^2 + C COUNT_ERROR^2, the logarithms of these factors are a martingale
with small drift. Their sum is therefore (Azuma and Hoeffding), except with probability t, at most

    e = N CELL_TAIL + C COUNT_TAIL + 2 V + sqrt(2 V ln(1/t)),  and never more than  N CELL_ERROR + C COUNT_ERROR.

A release of the code and one with exact draws are then (e, t + N CELL_TAIL + C COUNT_TAIL)-indistinguishable. Going
from the code to exact draws, from D to D', and back to the code costs 2 e of epsilon; see `rounding_cost`.
"""

import dataclasses
import math
from collections.abc import Sequence

from dpngram.accounting.parameters import ParameterError

__all__ = [
    "CELL_ERROR",
    "CELL_TAIL",
    "COUNT_ERROR",
    "COUNT_TAIL",
    "LEAST_WEIGHT_BITS",
    "MAX_STRATA",
    "REACH",
    "RoundingCost",
    "rounding_cost",
    "switching_bound",
    "touched",
]

REACH = 16.9  # standard deviations: up to there a step of the grid contains at least 2^33 of the 2^256 draws
CELL_ERROR = 2.0**-30
CELL_TAIL = 2.0**-210  # at least 2 Phi(-REACH), in exact draws and in the code's
COUNT_ERROR = 2.0**-24
COUNT_TAIL = 2.0**-200
# Policies with individual budgets give no weight below 2^-12: a touched cell costs 2^-24 of the squared budget or more.
LEAST_WEIGHT_BITS = 12
MAX_STRATA = 512  # of one level
# Of one stratum and level: the zero cells above the floor, three groups below it, and those of the second look.
_COUNTS = 5


@dataclasses.dataclass(frozen=True)
class RoundingCost:
    """What must be set aside. The exact mechanism gets the rest: `left`."""

    epsilon: float
    delta: float

    def left(self, epsilon: float, delta: float) -> tuple[float, float]:
        """The (epsilon, delta) that the exact mechanism must have, rounded down."""
        return math.nextafter(epsilon - self.epsilon, 0), math.nextafter((delta - self.delta) * (1 - self.epsilon), 0)


def touched(
    caps: Sequence[int | None], rounds: Sequence[int], windows: int, *, individual_budgets: bool
) -> tuple[int, int]:
    """At most how many cells one user gives weight to, and how many counts of zero cells depend on these.

    The gate, which decides whether there is a release at all, is one more cell of each release.

    Args:
        caps: for each level the most grams that a user gives, or None.
        rounds: for each level its number of queries.
        windows: the number of releases that a user takes part in.
        individual_budgets: whether the squared weights of a whole release sum to at most 1, with the least weight.
    """
    budget = 1 << (2 * LEAST_WEIGHT_BITS)
    given = [number * (budget if cap is None else cap) for cap, number in zip(caps, rounds, strict=True)]
    cells = min(sum(given), budget) if individual_budgets else sum(given)
    if not individual_budgets:
        return windows * (cells + 1), windows * sum(rounds[1:])
    later = len(rounds) - 1  # levels: each may have one noisy number more, the count of `plus`
    return windows * (cells + 1 + later), windows * min(later * _COUNTS * MAX_STRATA, _COUNTS * cells)


def rounding_cost(epsilon: float, delta: float, cells: int, counts: int = 0) -> RoundingCost:
    """What `cells` touched cells and `counts` counts cost, rounded up; a ParameterError where it is half of a budget.

    If the exact mechanism is (epsilon_0, delta_0)-DP, and code and exact draws are (e, t)-indistinguishable, then

        P[code(D)] <= e^e P[exact(D)] + t <= e^(e + epsilon_0) P[exact(D')] + e^e delta_0 + t
                   <= e^(2 e + epsilon_0) P[code(D')] + e^(e + epsilon_0) t + e^e delta_0 + t.

    So epsilon = epsilon_0 + 2 e, and delta is at most e^e delta_0 + (1 + e^epsilon) t.

    Args:
        epsilon, delta: the guarantee of the release.
        cells, counts: see `touched`.
    """
    tail = cells * CELL_TAIL + counts * COUNT_TAIL
    spread = cells * CELL_ERROR**2 + counts * COUNT_ERROR**2
    amplified = math.log1p(math.exp(-epsilon)) + epsilon  # ln(1 + e^epsilon)
    # The chance t that the factors add up to more: chosen so that (1 + e^epsilon) t is 2^-20 of delta.
    log_chance = amplified - math.log(delta) + 20 * math.log(2)
    factors = min(cells * CELL_ERROR + counts * COUNT_ERROR, tail + 2 * spread + math.sqrt(2 * spread * log_chance))
    lost = math.exp(min(amplified + math.log(tail), 0.0)) if tail else 0.0
    cost = RoundingCost(2 * factors * (1 + 2.0**-40), (lost + delta * 2.0**-20) * (1 + 2.0**-30))
    if cost.delta > delta / 2:
        largest, least = math.log(delta / 4 / tail), 4 * tail * math.exp(min(amplified, 600))
        change = "epsilon must be smaller and delta larger"
        if largest >= 1:
            change = f"epsilon must be at most {largest:.0f} with delta {delta:g}"
        elif least < 1e-3:
            change = f"delta must be at least {least:.1g} with epsilon {epsilon:g}"
        raise ParameterError(f"{change}, got ({epsilon:g}, {delta:g}): the ends of the noise are not exact enough.")
    if cost.epsilon > epsilon / 2:
        raise ParameterError(
            f"epsilon must be at least {2 * cost.epsilon:.1g} with these max_contributions, max_n, windows and policy, "
            f"got {epsilon:g}: the rounding of the noise costs {cost.epsilon:.1g}."
        )
    return cost


def switching_bound(draws: int) -> float:
    """How far AES under one key, which gives no value twice, is from a random function after this many draws.

    At most draws^2 / 2^129 in total variation (the PRP/PRF switching lemma; Bellare & Rogaway 2006).
    """
    return math.ldexp(float(draws) ** 2, -129)

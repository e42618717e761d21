"""What a plan buys: how many users must share a gram before it is likely to be released."""

import math
from typing import TYPE_CHECKING, Any

from scipy import special

from dpngram.accounting.parameters import check_integer, check_number

if TYPE_CHECKING:
    from dpngram.accounting.plan import ExtractionPlan

__all__ = ["CANDIDATES_PER_GRAM", "PROBABILITIES", "typical_contributions", "users_needed", "users_needed_table"]

# |V_k| / |S_{k-1}| is not known before a run; rho_k moves by half a sigma for a factor ten. Page
# categories have about 15 candidates per released gram, English text hundreds to thousands.
CANDIDATES_PER_GRAM = 1000
PROBABILITIES = (0.5, 0.99)


def users_needed(
    plan: "ExtractionPlan",
    n: int,
    contributions: int,
    probability: float,
    candidates_per_gram: float = CANDIDATES_PER_GRAM,
) -> int:
    """How many users must have an n-gram for it to be released with `probability`.

    Each of them gives `contributions` grams at this level, the gram among them, so it weighs
    1/sqrt(contributions) with each; it passes when the sum exceeds rho_n by the noise's quantile.
    """
    level = plan.level(check_integer("n", n, 1, plan.max_n))
    given = check_integer("contributions", contributions, 1, level.max_contributions)
    check_number("probability", probability, 0.0, 1.0, low_open=True, high_open=True)
    check_number("candidates_per_gram", candidates_per_gram, 1, 1e18)
    # The ratio only; level_threshold takes it as a pair.
    rho = plan.threshold(n, 1_000_000, math.ceil(1_000_000 * candidates_per_gram))
    needed = (rho + level.sigma * float(special.ndtri(probability))) * math.sqrt(given)
    return max(1, math.ceil(needed))


def typical_contributions(cap: int) -> tuple[int, ...]:
    """A light, a middling and a heavy user under this cap: 1, its square root, the cap itself."""
    return tuple(sorted({1, math.isqrt(cap), cap}))


def users_needed_table(plan: "ExtractionPlan") -> list[dict[str, Any]]:
    """`users_needed` for each level, typical contribution and probability; plain values for JSON."""
    return [
        {
            "n": level.n,
            "contributions": contributions,
            "candidates_per_gram": CANDIDATES_PER_GRAM if level.n > 1 else None,
            "p50": users_needed(plan, level.n, contributions, 0.5),
            "p99": users_needed(plan, level.n, contributions, 0.99),
        }
        for level in plan.levels
        for contributions in typical_contributions(level.max_contributions)
    ]

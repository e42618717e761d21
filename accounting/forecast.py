"""What a plan buys: how many users must share a gram before it is likely to be released."""

import json
import math
from typing import Any

from scipy import special

from dpngram.accounting.parameters import MAX_CONTRIBUTIONS, check_integer, check_number
from dpngram.accounting.plan import ExtractionPlan

__all__ = ["CANDIDATES_PER_GRAM", "plan_document", "typical_contributions", "users_needed", "users_needed_table"]

# |V_k| / |S_{k-1}| is not known before a run; rho_k moves by half a sigma for a factor ten. Page
# categories have about 15 candidates per released gram, English text hundreds to thousands.
CANDIDATES_PER_GRAM = 1000


def users_needed(
    plan: ExtractionPlan,
    n: int,
    contributions: int,
    probability: float,
    candidates_per_gram: float = CANDIDATES_PER_GRAM,
) -> int:
    """How many users must have an n-gram for it to be released with `probability`.

    Each of them gives `contributions` grams at this level, the gram among them, so it weighs
    1/sqrt(contributions) with each; it passes when the sum exceeds rho_n by the noise's quantile. With individual
    budgets the weight is multiplied by sqrt(level share x round share), and we take the best round. That is an upper
    estimate: saved budget, guided weights and strata lower it further.

    Args:
        plan: the plan of the release.
        n: the length of the gram; words of a public vocabulary are not released, so then at least 2.
        contributions: how many grams each of these users gives at level n.
        probability: of the release, e.g. 0.5.
        candidates_per_gram: |V_n| / |S_{n-1}|, which is not known before a run.
    """
    level = plan.level(check_integer("n", n, plan.first_n, plan.max_n))
    given = check_integer("contributions", contributions, 1, level.max_contributions or MAX_CONTRIBUTIONS)
    check_number("probability", probability, 0.0, 1.0, low_open=True, high_open=True)
    check_number("candidates_per_gram", candidates_per_gram, 1, 1e18)
    # The ratio only; level_threshold takes it as a pair.
    rho = plan.threshold(n, 1_000_000, math.ceil(1_000_000 * candidates_per_gram))
    quantile = level.sigma * float(special.ndtri(probability))
    needed = min(
        ((rho if part.rho is None else part.rho) + quantile)
        * math.sqrt(given / (level.share * part.share if plan.spec.individual_budgets else 1.0))
        for part in level.rounds
    )
    return max(1, math.ceil(needed))


def typical_contributions(plan: ExtractionPlan, n: int) -> tuple[int, ...]:
    """A light, a middling and a heavy user: 1 gram, the square root of the cap (or of level 1's), the cap itself."""
    cap = plan.level(n).max_contributions or plan.level(1).max_contributions or 1
    return tuple(sorted({1, math.isqrt(cap), cap}))


def users_needed_table(plan: ExtractionPlan) -> list[dict[str, Any]]:
    """`users_needed` for each level, typical contribution and probability; plain values for JSON."""
    return [
        {
            "n": level.n,
            "contributions": contributions,
            "candidates_per_gram": CANDIDATES_PER_GRAM if level.n > 1 else None,
            "p50": users_needed(plan, level.n, contributions, 0.5),
            "p99": users_needed(plan, level.n, contributions, 0.99),
        }
        for level in plan.levels[plan.first_n - 1 :]
        for contributions in typical_contributions(plan, level.n)
    ]


def plan_document(plan: ExtractionPlan) -> dict[str, Any]:
    """The plan as `ExtractionPlan.to_json` writes it, with `users_needed_table` among its derived figures.

    Args:
        plan: the plan of the release.
    """
    document: dict[str, Any] = json.loads(plan.to_json())
    document["derived"]["users_needed"] = users_needed_table(plan)
    return document

"""Advice from a plan alone: what it would take to release more, whether a budget is doubtful, where to begin.

Nothing here reads data. The number of released n-grams is public, so advice may follow it.
"""

import dataclasses
import math

from dpngram.accounting.forecast import typical_contributions, users_needed
from dpngram.accounting.outlook import Outlook, forecast_released
from dpngram.accounting.parameters import ParameterError, check_integer
from dpngram.accounting.plan import ExtractionPlan, plan_extraction

__all__ = ["FEW", "TOKENS", "Proposal", "advise_more", "find_doubts", "propose_plans"]

FEW = 100  # a release with fewer n-grams gets advice
_LARGE_EPSILON = 10
_EPSILONS = (1.0, 2.0, 4.0, 8.0)
# Rules of thumb: T by the number of users. Long n-grams have few users each.
_MAX_N = ((10_000, 3), (100_000, 5), (1_000_000, 6), (math.inf, 9))
_CONTRIBUTIONS = (10, 300)
TOKENS = 100  # of a user, if nobody says


def find_doubts(epsilon: float, delta: float, users: int | None = None) -> list[str]:
    """A sentence for each thing about this budget that somebody who approves it would ask about.

    Args:
        epsilon, delta: of the guarantee.
        users: about how many there are, if the operator says so.
    """
    doubts = []
    if epsilon > _LARGE_EPSILON:
        shown = f"{math.exp(epsilon):.2g}" if epsilon < 700 else "more than 1e300"
        doubts.append(
            f"epsilon {epsilon:g} is a weak guarantee: one user may change the probability of a result by a factor of "
            f"{shown}. Values from 1 to 8 are usual."
        )
    if users is not None and delta * check_integer("users", users, 1, 1 << 40) > 1:
        doubts.append(
            f"delta {delta:g} is above 1/users = {1 / users:.2g}: it would allow to show everything of one user. Take "
            f"{_delta_for(users):g} or less."
        )
    return doubts


def advise_more(plan: ExtractionPlan) -> str:
    """How many users a word needs by this plan, and how many by plans that differ in one thing.

    Args:
        plan: of a release in which little was released.
    """
    cap = plan.level(1).max_contributions or 1
    light = typical_contributions(plan, 1)[-2:][0]
    given = f"of {cap:,} words or more each"
    shortest = "a pair of listed words" if plan.public_vocabulary else "a word"
    needed = users_needed(plan, plan.first_n, cap, 0.5)
    text = f"By this plan {shortest} needs about {needed:,} users {given} to be released"
    if light < cap:
        text += f", or {users_needed(plan, plan.first_n, light, 0.5):,} of {light:,} words"
    changes: dict[str, dict[str, float]] = {
        f"--epsilon {2 * plan.epsilon:g}": {"epsilon": 2 * plan.epsilon},
        f"--max_contributions {cap // 4}": {"max_contributions": cap // 4},
        f"--max_n {plan.max_n // 2}": {"max_n": plan.max_n // 2},
    }
    others = [f"{_needed(plan, change):,} with {flag}" for flag, change in changes.items() if _can(plan, change)]
    if others:
        text += f"; at the cap it would be {', '.join(others)}"
    return f"{text}. Another release spends epsilon and delta again, and no value may be chosen by looking at the data."


def _changed(plan: ExtractionPlan, change: dict[str, float]) -> ExtractionPlan:
    values = {
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "max_n": plan.max_n,
        "max_contributions": plan.level(1).max_contributions,
        "eta": plan.eta,
        "windows": plan.windows,
        "policy": plan.policy,
        "public_vocabulary": plan.public_vocabulary,
        **change,
    }
    return plan_extraction(**values)  # type: ignore[arg-type]


def _can(plan: ExtractionPlan, change: dict[str, float]) -> bool:
    try:
        return _needed(plan, change) < _needed(plan, {})
    except ParameterError:  # such as an epsilon that is too large
        return False


def _needed(plan: ExtractionPlan, change: dict[str, float]) -> int:
    other = _changed(plan, change)
    return users_needed(other, other.first_n, other.level(1).max_contributions or 1, 0.5)


@dataclasses.dataclass(frozen=True)
class Proposal:
    """A plan to begin with, and how many users its n-grams need at even odds.

    Args:
        plan: the plan.
        word: the users that a word needs, if each gives as many words as the cap allows.
        light: the same, if each gives the square root of it.
        pair: the users that two words in a row need, likewise; None if the plan has none.
        outlook: about how many n-grams will be released.
    """

    plan: ExtractionPlan
    word: int
    light: int
    pair: int | None
    outlook: Outlook


def propose_plans(users: int, tokens_per_user: int | None = None) -> list[Proposal]:
    """Plans for a few values of epsilon, from two rough numbers that must be public.

    delta is a power of ten, at most a tenth of 1/users. A user gives at most as many words as the user has, from 10 to
    300. T follows the number of users. These are rules of thumb.

    Args:
        users: about how many there are.
        tokens_per_user: about how many words one of them wrote; None: 100.
    """
    users = check_integer("users", users, 1, 1 << 40)
    tokens = check_integer("tokens_per_user", TOKENS if tokens_per_user is None else tokens_per_user, 1, 1 << 40)
    least, most = _CONTRIBUTIONS
    cap = max(least, min(tokens, most))
    max_n = max(1, min(tokens, next(n for limit, n in _MAX_N if users < limit)))
    proposals = []
    for epsilon in _EPSILONS:
        plan = plan_extraction(epsilon=epsilon, delta=_delta_for(users), max_n=max_n, max_contributions=cap)
        light = typical_contributions(plan, 1)[-2]
        pair = users_needed(plan, 2, cap, 0.5) if max_n > 1 else None
        word = users_needed(plan, 1, cap, 0.5)
        outlook = forecast_released(users, tokens, word)
        proposals.append(Proposal(plan, word, users_needed(plan, 1, light, 0.5), pair, outlook))
    return proposals


def _delta_for(users: int) -> float:
    """The largest power of ten that is at most a tenth of 1/users."""
    return float(f"1e-{len(str(users - 1)) + 1 if users > 1 else 1}")

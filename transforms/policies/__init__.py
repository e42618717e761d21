"""The policies: how users weigh their grams, and what noisy cells are compared with.

`ROUND_POLICIES` is the one list of them. A new policy is a subclass of `RoundPolicy`, one entry here, and one in
`dpngram.accounting.POLICIES` for its half of the accounting. tests/transforms/policies/test_base.py has a small one.
"""

from collections.abc import Callable

from dpngram.accounting import ExtractionPlan
from dpngram.transforms.policies.base import RoundPolicy
from dpngram.transforms.policies.paper import PaperRound
from dpngram.transforms.policies.plus import plus_round

__all__ = ["ROUND_POLICIES", "RoundPolicy", "make_rounds"]

ROUND_POLICIES: dict[str, Callable[..., RoundPolicy]] = {"paper": PaperRound, "plus": plus_round}


def make_rounds(plan: ExtractionPlan, pruning: str = "both") -> list[list[RoundPolicy]]:
    """All rounds of a run, level by level: what the graph is made of.

    Args:
        plan: from `dpngram.accounting.plan_extraction`; its policy must be one of `ROUND_POLICIES`.
        pruning: "both" or "single", see `ValidityFilter`. A policy may refuse one of them.
    """
    policy = ROUND_POLICIES[plan.policy]
    return [[policy(plan, level.n, number, pruning) for number in range(len(level.rounds))] for level in plan.levels]

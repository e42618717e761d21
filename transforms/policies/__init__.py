"""The policies: where they differ, and nothing else."""

from dpngram.accounting import ExtractionPlan
from dpngram.transforms.policies.paper import PaperPolicy
from dpngram.transforms.policies.plus import PlusPolicy

__all__ = ["make_policy"]

_POLICIES = {"paper": PaperPolicy, "plus": PlusPolicy}


def make_policy(plan: ExtractionPlan, pruning: str) -> PaperPolicy:
    """The transforms' half of the plan's policy."""
    return _POLICIES[plan.policy](plan, pruning)

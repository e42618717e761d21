"""Policy `paper`: Algorithm 1 of Kim et al. (2021)."""

from typing import Any

from dpngram.accounting import ExtractionPlan, ParameterError
from dpngram.transforms.blocks.candidates import CandidateBlock
from dpngram.transforms.blocks.columns import Array
from dpngram.transforms.blocks.levels import Level
from dpngram.transforms.policies.base import Round
from dpngram.transforms.policies.clipping import equal_weights
from dpngram.transforms.policies.cutoffs import Cutoffs
from dpngram.transforms.policies.strata import Strata
from dpngram.transforms.randomness.noise import Noise
from dpngram.transforms.randomness.prf import Prf

__all__ = ["PaperPolicy"]


class PaperPolicy:
    """Algorithm 1 of Kim et al. (2021): equal weights, one threshold for a level, known before the noise is drawn."""

    keeps_budgets = False

    def __init__(self, plan: ExtractionPlan, pruning: str) -> None:
        self.plan = plan
        for level in plan.levels:
            Noise(level.sigma)  # refuses noise beyond exact sums, here rather than on a worker

    def allow(self, users: Any, round_: Round) -> Any:
        """The users, at the start of a level."""
        return users

    def weigh(self, users: Any, candidates: CandidateBlock, round_: Round, clip: Prf) -> tuple[Array, Any]:
        """The weight of each candidate, summed over the users of the block; and the users, if that changed them."""
        cap = round_.level.max_contributions
        if cap is None:  # ExtractionPlan sees to it; not an assert, which python -O takes out
            raise ParameterError("max_contributions must be given for every level with policy paper.")
        return equal_weights(candidates, cap, clip), None

    def cut(self, round_: Round, previous: Level, released: Level) -> Cutoffs:
        """The noise, and the floor below which nothing is released: a function of the plan and of what is public."""
        rho = self.plan.threshold(round_.n, len(previous), previous.valid(round_.pruning))
        return Cutoffs.fixed(Noise(round_.level.sigma), Strata(previous, round_.pruning), rho)

    def thresholds(self, cut: Cutoffs, below: Array, stratum: Array, noisy: Array) -> Array:
        """The final threshold of each stratum, in steps, at or above its floor."""
        return cut.floor

    def publish(self, noisy: Array, keys: Array, previous: Level, round_: Round) -> Array:
        """The weights to publish, in steps, from the noisy values of released cells."""
        return noisy

    def finish(self, level: Level, previous: Level) -> Level:
        """S_k with whatever the next level wants to know of it."""
        return level

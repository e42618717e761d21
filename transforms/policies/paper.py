"""Policy `paper`: Algorithm 1 of Kim et al. (2021)."""

from typing import Any

from dpngram.accounting import ParameterError
from dpngram.transforms.blocks.candidates import CandidateBlock
from dpngram.transforms.blocks.columns import Array
from dpngram.transforms.blocks.levels import Level
from dpngram.transforms.blocks.users import Users
from dpngram.transforms.policies.base import RoundPolicy
from dpngram.transforms.policies.clipping import equal_weights
from dpngram.transforms.policies.cutoffs import Cutoffs
from dpngram.transforms.policies.strata import Strata
from dpngram.transforms.randomness.noise import Noise
from dpngram.transforms.randomness.prf import Prf

__all__ = ["PaperRound"]


class PaperRound(RoundPolicy):
    """Equal weights, and one threshold for a level, known before the noise is drawn.

    Privacy: a user gives t <= Delta_k grams floor(2^32/sqrt(t)) each, so t squares sum to at most 2^64 at each level.
    The threshold is a function of the plan and of the sizes of S_{k-1} and V_k, which are public.
    """

    def weigh(self, users: Users, candidates: CandidateBlock, clip: Prf, earlier: Any) -> tuple[Array, Users | None]:
        cap = self.level.max_contributions
        if cap is None:  # ExtractionPlan sees to it; not an assert, which python -O takes out
            raise ParameterError("max_contributions must be given for every level with policy paper.")
        return equal_weights(candidates, cap, clip), None

    def cutoffs(self, previous: Level, earlier: Any) -> Cutoffs:
        rho = self.plan.threshold(self.n, len(previous), previous.valid(self.pruning))
        return Cutoffs.fixed(Noise(self.level.sigma), Strata(previous, self.pruning), rho)

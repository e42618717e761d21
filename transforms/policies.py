"""Where the policies differ, and nothing else: the weights users give, what noisy cells are compared with, and the
weight that is published. The graph is the same for both.
"""

import dataclasses
from typing import Any

import numpy as np

from dpngram.accounting import ExtractionPlan, ParameterError
from dpngram.transforms.budgets import FULL_BUDGET, allowances, longest_runs, spend
from dpngram.transforms.candidates import CandidateBlock
from dpngram.transforms.contribution import clip_and_weight, clip_grams, sum_by_gram
from dpngram.transforms.cut import Cut
from dpngram.transforms.guide import GUIDE_UNIT, guide, predict
from dpngram.transforms.keyed import Prf
from dpngram.transforms.levels import Array, Level
from dpngram.transforms.noise import Noise
from dpngram.transforms.rounds import Round
from dpngram.transforms.selection import choose_thresholds, floors, zero_cell_bound
from dpngram.transforms.strata import Strata

__all__ = ["PaperPolicy", "PlusPolicy", "make_policy"]


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
        return clip_and_weight(candidates, cap, clip), None

    def cut(self, round_: Round, previous: Level, released: Level) -> Cut:
        """The noise, and the floor below which nothing is released: a function of the plan and of what is public."""
        rho = self.plan.threshold(round_.n, len(previous), previous.valid(round_.pruning))
        return Cut.fixed(Noise(round_.level.sigma), Strata(previous, round_.pruning), rho)

    def thresholds(self, cut: Cut, below: Array, stratum: Array, noisy: Array) -> Array:
        """The final threshold of each stratum, in steps, at or above its floor."""
        return cut.floor

    def publish(self, noisy: Array, keys: Array, previous: Level, round_: Round) -> Array:
        """The weights to publish, in steps, from the noisy values of released cells."""
        return noisy

    def finish(self, level: Level, previous: Level) -> Level:
        """S_k with whatever the next level wants to know of it."""
        return level


class PlusPolicy(PaperPolicy):
    """More n-grams for the same budget: individual budgets, guided weights, rounds, a threshold for each stratum."""

    keeps_budgets = True

    def __init__(self, plan: ExtractionPlan, pruning: str) -> None:
        super().__init__(plan, pruning)
        if pruning != "both":
            raise ParameterError(f"pruning must be both with policy plus, got {pruning!r}; policy paper takes it.")

    def allow(self, users: Any, round_: Round) -> Any:
        budget = np.full(len(users), FULL_BUDGET) if round_.n == 1 else users.budget
        if len(budget) != len(users):
            raise ValueError(
                "policy plus: these users did not come through the levels before; their budget is unknown."
            )
        runs = longest_runs(users.held(), users.user_start)
        shares = [level.share for level in self.plan.levels]
        return dataclasses.replace(users, budget=budget, allowance=allowances(budget, runs, round_.n, shares))

    def weigh(self, users: Any, candidates: CandidateBlock, round_: Round, clip: Prf) -> tuple[Array, Any]:
        user, kept, _ = clip_grams(candidates, round_.level.max_contributions, clip)
        pairs = np.flatnonzero(kept)
        factor: Any = GUIDE_UNIT
        if len(candidates.guide):
            factor = np.repeat(candidates.guide, np.diff(candidates.gram_start))[pairs]
        given, charge = spend(np.take(user, pairs), factor, users.allowance, round_.share)
        weight = np.zeros(len(user), np.int64)
        weight[pairs] = given
        return sum_by_gram(candidates, weight), dataclasses.replace(users, budget=users.budget - charge)

    def cut(self, round_: Round, previous: Level, released: Level) -> Cut:
        strata = Strata(previous, round_.pruning)
        noise = Noise(round_.level.sigma)
        rho = round_.level.rounds[round_.number].rho
        if rho is not None:
            return Cut.fixed(noise, strata, rho)
        size = strata.size - np.bincount(strata.of(released.keys), minlength=len(strata.size))
        floor = floors(noise, size, len(previous), self.plan.eta)
        return Cut(noise=noise, strata=strata, size=size, floor=floor)

    def thresholds(self, cut: Cut, below: Array, stratum: Array, noisy: Array) -> Array:
        if not cut.tallied:
            return cut.floor
        zeros = zero_cell_bound(cut.size, below)
        return choose_thresholds(cut.noise, cut.floor, zeros, stratum, noisy, self.plan.eta)

    def publish(self, noisy: Array, keys: Array, previous: Level, round_: Round) -> Array:
        """The noisy value, as it would be with guide 1 and the whole share of the level: W of the next prediction."""
        factor = np.ones(len(noisy))
        if round_.n > 1:
            prefix = (keys >> np.uint64(32)).astype(np.int64)
            factor = guide(previous, prefix, previous.suffix_rows(keys)) / GUIDE_UNIT
        weight: Array = np.floor(noisy / (factor * np.sqrt(round_.share))).astype(np.int64)
        return weight

    def finish(self, level: Level, previous: Level) -> Level:
        return predict(level, previous, self.plan.level(int(level.n)).sigma)


_POLICIES = {"paper": PaperPolicy, "plus": PlusPolicy}


def make_policy(plan: ExtractionPlan, pruning: str) -> PaperPolicy:
    """The transforms' half of the plan's policy."""
    return _POLICIES[plan.policy](plan, pruning)

"""Policy `plus`: more n-grams for the same budget."""

import dataclasses
from typing import Any

import numpy as np

from dpngram.accounting import ExtractionPlan, ParameterError
from dpngram.transforms.blocks.candidates import CandidateBlock
from dpngram.transforms.blocks.columns import Array
from dpngram.transforms.blocks.levels import Level
from dpngram.transforms.messages import Message
from dpngram.transforms.policies.base import Round
from dpngram.transforms.policies.budgets import FULL_BUDGET, allowances, longest_runs, spend
from dpngram.transforms.policies.clipping import clip_grams, sum_by_gram
from dpngram.transforms.policies.cutoffs import Cutoffs
from dpngram.transforms.policies.guide import GUIDE_UNIT, guide, predict
from dpngram.transforms.policies.paper import PaperPolicy
from dpngram.transforms.policies.selection import choose_thresholds, floors, zero_cell_bound
from dpngram.transforms.policies.strata import Strata
from dpngram.transforms.randomness.noise import Noise
from dpngram.transforms.randomness.prf import Prf

__all__ = ["PlusPolicy"]


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
            raise ValueError(Message.BUDGET_UNKNOWN.format())
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

    def cut(self, round_: Round, previous: Level, released: Level) -> Cutoffs:
        strata = Strata(previous, round_.pruning)
        noise = Noise(round_.level.sigma)
        rho = round_.level.rounds[round_.number].rho
        if rho is not None:
            return Cutoffs.fixed(noise, strata, rho)
        size = strata.size - np.bincount(strata.of(released.keys), minlength=len(strata.size))
        floor = floors(noise, size, len(previous), self.plan.eta)
        return Cutoffs(noise=noise, strata=strata, size=size, floor=floor)

    def thresholds(self, cut: Cutoffs, below: Array, stratum: Array, noisy: Array) -> Array:
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

"""Policy `plus`: more n-grams for the same budget.

Every user has one budget for the whole run (budgets.py). A prediction from earlier levels guides a user's weight to
grams that are neither hopeless nor certain (guide.py). Levels 1 and 2 are made in rounds, each of which leaves out what
the ones before have released. From level 2 on the thresholds are chosen for groups of similar grams (strata.py) from
noisy tallies (selection.py).
"""

import dataclasses
from typing import ClassVar

import numpy as np

from dpngram.transforms.blocks.candidates import CandidateBlock
from dpngram.transforms.blocks.columns import Array
from dpngram.transforms.blocks.levels import Level, unpack_keys
from dpngram.transforms.blocks.users import Users
from dpngram.transforms.messages import Message
from dpngram.transforms.policies.base import RoundPolicy
from dpngram.transforms.policies.budgets import FULL_BUDGET, allowances, longest_runs, spend
from dpngram.transforms.policies.clipping import clip_grams, sum_by_gram
from dpngram.transforms.policies.cutoffs import Cutoffs
from dpngram.transforms.policies.guide import GUIDE_UNIT, guide_weights, predict
from dpngram.transforms.policies.selection import choose_thresholds, floors, zero_cell_bound
from dpngram.transforms.policies.strata import Strata
from dpngram.transforms.randomness.noise import Noise
from dpngram.transforms.randomness.prf import Prf

__all__ = ["PlusRound"]


class PlusRound(RoundPolicy):
    """Individual budgets, guided weights, rounds, and a threshold for each stratum.

    Privacy: a user pays for every weight from its budget, exactly (budgets.py), so all squared weights of a run sum to
    less than 2^64. Guide and strata come from released weights. At level 1 the thresholds are the plan's; later ones
    are chosen from noisy values on all of V_k, which is post-processing.
    """

    changes_users: ClassVar[bool] = True

    def allow(self, users: Users) -> Users:
        budget = np.full(len(users), FULL_BUDGET) if self.n == 1 else users.budget
        if len(budget) != len(users):
            raise ValueError(Message.BUDGET_UNKNOWN.format())
        runs = longest_runs(users.occupied(), users.user_start)
        shares = [level.share for level in self.plan.levels]
        return dataclasses.replace(users, budget=budget, allowance=allowances(budget, runs, self.n, shares))

    def weigh(self, users: Users, candidates: CandidateBlock, clip: Prf) -> tuple[Array, Users | None]:
        user, kept, _ = clip_grams(candidates, self.level.max_contributions, clip)
        pairs = np.flatnonzero(kept)
        guide: Array | int = GUIDE_UNIT
        if len(candidates.guide_weight):
            guide = np.repeat(candidates.guide_weight, np.diff(candidates.gram_start))[pairs]
        given, charge = spend(np.take(user, pairs), guide, users.allowance, self.round.share)
        weight = np.zeros(len(user), np.int64)
        weight[pairs] = given
        return sum_by_gram(candidates, weight), dataclasses.replace(users, budget=users.budget - charge)

    def cutoffs(self, previous: Level, earlier: Level) -> Cutoffs:
        strata = Strata(previous, self.pruning)
        noise = Noise(self.level.sigma)
        if self.round.rho is not None:
            return Cutoffs.fixed(noise, strata, self.round.rho)
        size = strata.size - np.bincount(strata.of(earlier.keys), minlength=len(strata.size))
        return Cutoffs(noise=noise, strata=strata, size=size, floor=floors(noise, size, len(previous), self.plan.eta))

    def thresholds(self, cutoffs: Cutoffs, below: Array, stratum: Array, noisy: Array) -> Array:
        if not cutoffs.tallied:
            return cutoffs.floor
        zeros = zero_cell_bound(cutoffs.size, below)
        return choose_thresholds(cutoffs.noise, cutoffs.floor, zeros, stratum, noisy, self.plan.eta)

    def publish(self, noisy: Array, keys: Array, previous: Level) -> Array:
        """The noisy value, as it would be with guide 1 and the whole share of the level: W of the next prediction."""
        guide = np.ones(len(noisy))
        if self.n > 1:
            prefix, _ = unpack_keys(keys)
            guide = guide_weights(previous, prefix, previous.suffix_rows(keys)) / GUIDE_UNIT
        weight: Array = np.floor(noisy / (guide * np.sqrt(self.round.share))).astype(np.int64)
        return weight

    def finish(self, level: Level, previous: Level) -> Level:
        return predict(level, previous, self.level.sigma)

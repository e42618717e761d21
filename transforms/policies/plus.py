"""Policy `plus`, second edition: more n-grams for the same budget.

Every user has one budget for the whole run (budgets.py). Level 1 is made in three rounds, each of which leaves out what
the ones before have released. With a public vocabulary, level 1 has one small round instead, which weighs the listed
words. Every later level has three rounds:

1. *Survey*, on all of V_k. A prediction from earlier levels guides a user's weight to grams that are neither hopeless
   nor certain (guide.py). The noisy values show, stratum by stratum, how many cells are zero cells and how high the
   others are (prior.py), and which cells are worth a second look: the active ones.
2. *Second look*, on the active cells. Weight goes where the survey leaves doubt. Both values of a cell are combined,
   and cells are ranked by the probability that they are zero cells (ranking.py).
3. *Count*, of the cells about to be released that some user has. It is one noisy number. If it is larger than the
   ranking expects, the release goes further down the ranking. Small levels have no count.

docs/privacy.md has the proof: sections *Budgets*, *Rounds on active cells* and *The count*.
"""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from dpngram.accounting import ExtractionPlan
from dpngram.transforms.blocks.candidates import CandidateBlock, listed_tokens
from dpngram.transforms.blocks.cells import CellBlock
from dpngram.transforms.blocks.columns import Array, Block
from dpngram.transforms.blocks.levels import EMPTY_LEVEL, Level
from dpngram.transforms.blocks.surveys import EMPTY_SURVEY, Survey, name_after, name_of
from dpngram.transforms.blocks.users import UserBlock, Users
from dpngram.transforms.messages import Message
from dpngram.transforms.policies.base import RoundPolicy
from dpngram.transforms.policies.budgets import (
    COUNT_UNIT,
    FULL_BUDGET,
    allowances,
    longest_runs,
    part_of,
    price,
    spend,
    spend_on_count,
)
from dpngram.transforms.policies.clipping import Pairs, clip_grams, sum_by_gram
from dpngram.transforms.policies.cutoffs import ALL, NONE, Cells, Cutoffs
from dpngram.transforms.policies.guide import GUIDE_UNIT, guide_table, predict
from dpngram.transforms.policies.prior import BINS, GROUP_STARTS, bins_of
from dpngram.transforms.policies.ranking import choose_cut, in_zone, make_survey, rank_cells
from dpngram.transforms.policies.strata import Strata
from dpngram.transforms.randomness.noise import UNIT, Noise
from dpngram.transforms.randomness.prf import Prf

__all__ = ["PlusCount", "PlusSecondLook", "PlusSurvey", "PlusTokens", "PlusVocabulary", "plus_round"]

_ALL_ACTIVE = 1 << 17  # with no more members than this, every cell of V_k is active
_LEAST_ACTIVE, _MOST_ACTIVE = 2000, 1 << 15  # zero cells of one stratum
# Where most cells are certain, a user gives each of its m others at least so much over sqrt(m), of 1: at its last
# level, and before.
_EVEN_SHARES = (4.0, 1.5)


class _PlusRound(RoundPolicy):
    """What all rounds share: a budget, and what a level may spend of it."""

    def allow(self, users: Users) -> Users:
        budget = np.full(len(users), FULL_BUDGET) if self.n == 1 else users.budget
        if len(budget) != len(users):
            raise ValueError(Message.BUDGET_UNKNOWN.format())
        runs = longest_runs(users.occupied(), users.user_start)
        shares = [level.share for level in self.plan.levels]
        is_last = (runs <= 1) | (self.n == self.plan.max_n)
        allowance = allowances(budget, runs, self.n, shares)
        return dataclasses.replace(users, budget=budget, allowance=allowance, is_last=is_last)

    @property
    def shares(self) -> tuple[float, ...]:
        return tuple(part.share for part in self.level.rounds)

    def finish(self, level: Level, previous: Level) -> Level:
        level = predict(level, previous, self.level.sigma)
        return dataclasses.replace(level, name=name_of(level.n, level.keys, level.left, level.right, level.digests))


class PlusTokens(_PlusRound):
    """Level 1: a user gives at most Delta_1 tokens that are not released yet, the same weight to each.

    Privacy: a user pays for every weight from its budget. The thresholds are the plan's.
    """

    changes_users: ClassVar[bool] = True

    def weigh(self, users: Users, candidates: CandidateBlock, clip: Prf, earlier: Any) -> tuple[Array, Users | None]:
        user, kept, _ = clip_grams(candidates, self.level.max_contributions, clip)
        pairs = np.flatnonzero(kept)
        allowed = part_of(users.allowance, self.round.share, users.budget)
        given, charge = spend(np.take(user, pairs), GUIDE_UNIT, allowed)
        weight = np.zeros(len(user), np.int64)
        weight[pairs] = given
        return sum_by_gram(candidates, weight), dataclasses.replace(users, budget=users.budget - charge)

    def cutoffs(self, previous: Level, earlier: Any) -> Cutoffs:
        rho = float("inf") if self.round.rho is None else self.round.rho  # a plan has one for level 1
        return Cutoffs.fixed(Noise(self.level.sigma), Strata(previous, self.pruning), rho)

    def publish(self, noisy: Array) -> Array:
        """The noisy value, as it would be with the whole share of the level: W of the next prediction."""
        weight: Array = np.floor(noisy / np.sqrt(self.round.share)).astype(np.int64)
        return weight


class PlusVocabulary(PlusTokens):
    """Level 1 with a public vocabulary: noisy weights of the listed words, for the prediction of later levels.

    S_1 is the list, whatever the weights are. `earlier` is the level of a `VocabularyLevel`.

    Privacy: the cells are the listed words, so they are public. Every one of them gets noise, also those that nobody
    has (`weigh_vocabulary`), and a token that is not listed has no cell. So this is a query of Theorem A like those of
    later levels, and needs no threshold. Users pay as in `PlusTokens`.
    """

    def candidates(self, users: Users, earlier: Any) -> CandidateBlock:
        if not isinstance(users, UserBlock) or not len(earlier):  # without a list nothing may pass for a cell
            raise ValueError(Message.VOCABULARY_MISSING.format())
        return listed_tokens(users, earlier)

    def cutoffs(self, previous: Level, earlier: Any) -> Cutoffs:
        return Cutoffs(Noise(self.level.sigma), Strata(EMPTY_LEVEL, self.pruning), np.array([ALL]))


class PlusSurvey(_PlusRound):
    """The first look at a level: which cells are worth a second one.

    Privacy: weights are s_i lambda_1 / sqrt(max(n2, 1)), paid from the user's budget, with lambda_1 from released
    weights. Noise is on all of V_k. Floors follow from the sizes of strata, which are public.
    """

    changes_users: ClassVar[bool] = True
    nothing: ClassVar[Block] = EMPTY_SURVEY

    @property
    def label(self) -> str:
        return "Survey"

    def weigh(self, users: Users, candidates: CandidateBlock, clip: Prf, earlier: Any) -> tuple[Array, Users | None]:
        pairs = Pairs.of(candidates)
        allowed = part_of(users.allowance, self.round.share, users.budget)
        given, charge = spend(pairs.user, np.take(candidates.guide_weight, pairs.gram), allowed)
        return pairs.sum_by_gram(given), dataclasses.replace(users, budget=users.budget - charge)

    def cutoffs(self, previous: Level, earlier: Any) -> Cutoffs:
        noise, strata = Noise(self.level.sigma), Strata(previous, self.pruning)
        bins = bins_of(noise)
        first = _first_active_bins(strata.size, len(previous), bins.tail, _ALL_ACTIVE)
        return Cutoffs(noise=noise, strata=strata, floor=np.where(first > 0, bins.edges[first - 1], ALL))

    def settle(self, cells: Cells, cutoffs: Cutoffs, previous: Level, earlier: Any) -> Survey:
        strata = cutoffs.strata
        guide = guide_table(np.arange(len(strata.size)) + strata.origin)
        floor = np.where(cutoffs.floor == ALL, 0, bins_of(cutoffs.noise).of(cutoffs.floor))
        survey = make_survey(cutoffs.noise, cells, strata.size, floor, guide, self.plan.eta, self.shares)
        return dataclasses.replace(survey, name=name_after(previous.name, survey.name))


class PlusSecondLook(_PlusRound):
    """The second look: at all active cells, and at others that stand out in levels where most cells are certain.

    Privacy: the survey is public, so lambda_2 and what is active are. Weights are paid from the budget, see `_Second`.
    """

    nothing: ClassVar[Block] = EMPTY_SURVEY

    @property
    def label(self) -> str:
        return "SecondLook"

    def candidates(self, users: Users, earlier: Any) -> CandidateBlock:
        return _with_grams(users)

    def weigh(self, users: Users, candidates: CandidateBlock, clip: Prf, earlier: Survey) -> tuple[Array, Users | None]:
        second = _Second(candidates, earlier, self.shares)
        return second.weights(), None

    def cutoffs(self, previous: Level, earlier: Survey) -> Cutoffs:
        noise = Noise(self.level.sigma)
        if not earlier.rest_guide:
            return Cutoffs(noise, Strata(EMPTY_LEVEL, self.pruning), np.array([NONE]), active=earlier)
        edges = np.append(bins_of(noise).edges, NONE)
        floor = edges[_rest_floor(earlier, len(previous), noise) - 1]
        return Cutoffs(noise, Strata(previous, self.pruning), floor, active=earlier)

    def settle(self, cells: Cells, cutoffs: Cutoffs, previous: Level, earlier: Survey) -> Survey:
        shares = (self.shares[0], _second_share(earlier, self.shares))
        floor = _rest_floor(earlier, len(previous), cutoffs.noise)
        ranked = rank_cells(cutoffs.noise, earlier, cells, floor, self.plan.eta, shares)
        return dataclasses.replace(ranked, name=name_after(earlier.name, ranked.name))


class PlusCount(_PlusRound):
    """The count: how many of the cells about to be released does some user have?

    Privacy: one number, the sum over cells of min(1, what users vouch for), with noise `survey.count_sigma`. A user
    moves it by at most the sum of what it vouches for, and pays for that (`spend_on_count`). Which cells are counted is
    public. The cut, and what is released, are functions of the noisy number and of what is public.
    """

    charges_late: ClassVar[bool] = True

    @property
    def label(self) -> str:
        return "Count"

    def candidates(self, users: Users, earlier: Any) -> CandidateBlock:
        return _with_grams(users)

    def weigh(self, users: Users, candidates: CandidateBlock, clip: Prf, earlier: Survey) -> tuple[Array, Users | None]:
        if not earlier.name:
            raise ValueError(Message.SURVEY_MISSING.format())
        if not earlier.counted:
            return np.zeros(len(candidates.grams), np.int64), None
        second = _Second(candidates, earlier, self.shares)
        rows, given, _ = self._vouch(second, second.left())
        vouched = np.zeros(len(second.pairs.user), np.int64)
        vouched[rows] = given
        return second.pairs.sum_by_gram(vouched), None

    def cutoffs(self, previous: Level, earlier: Survey) -> Cutoffs:
        raise TypeError("a count has no cutoffs: it looks at no value of a cell.")

    def pay(self, users: Users, found: Survey) -> Users:
        """The users with what the second look and the count leave of their budgets."""
        second = _Second(_with_grams(users), found, self.shares)
        left = second.left()
        if found.counted:
            left = left - self._vouch(second, left)[2]
        return dataclasses.replace(users, budget=left)

    def _vouch(self, second: "_Second", left: Array) -> tuple[Array, Array, Array]:
        """The pairs in the zone, what their users vouch for, and what each user pays."""
        users, survey = second.users, second.survey
        rows = np.flatnonzero(np.take(np.append(in_zone(survey), False)[second.cells], second.pairs.gram))
        allowed = np.where(users.is_last, left, part_of(users.allowance, self.shares[2], left))
        ratio = survey.count_sigma / self.level.sigma
        return rows, *spend_on_count(np.take(second.pairs.user, rows), allowed, ratio)

    def count(self, cells: CellBlock) -> int:
        """The exact count of one shard, in units of 2^-16: private."""
        return int(np.minimum(cells.weight, COUNT_UNIT).sum())

    def release(self, exact: int, previous: Level, survey: Survey, draw: Prf) -> Level:
        """S_k, from the exact count of all shards."""
        counted = None
        if survey.counted:
            noise = Noise(survey.count_sigma)
            weight = np.array([exact * (UNIT // COUNT_UNIT)], np.int64)
            counted = float(noise.noisy(weight, draw.blocks(np.zeros(1, np.uint64), 0), draw)[0]) * noise.grid
        rows = np.flatnonzero(survey.rank <= choose_cut(survey, counted, self.plan.eta))
        grid, weight = Noise(self.level.sigma).grid, survey.weight[rows]
        lowest = float(weight.min()) * grid if len(rows) else float("inf")
        level = self.finish(previous.extend(survey.keys[rows], weight, grid, lowest, self.pruning), previous)
        return dataclasses.replace(level, name=name_after(survey.name, level.name))


class _Second:
    """What the users of a block give in the second look, and what is left to them after it.

    A user gives sqrt(a) lambda_2 / sqrt(max(n2, 1)) to its cells, where a follows from `_second_share`. In levels
    without a count a user who reaches no higher level spends all that is left, sqrt(B) lambda_2 / sqrt(n2): there is
    nothing to save for. In levels where most cells are certain, cells that are not active take part, and the lambda_2
    of a user's m cells are raised to at least 4 / sqrt(m) at its last level, and 1.5 / sqrt(m) before.

    Privacy: a function of the user's own grams and budget, and of the survey. The next steps compute the same charge.
    """

    def __init__(self, users: CandidateBlock, survey: Survey, shares: tuple[float, ...]) -> None:
        if not survey.name:  # who has grams has a survey; without one, nobody would pay
            raise ValueError(Message.SURVEY_MISSING.format())
        self.users, self.survey = users, survey
        self.pairs = Pairs.of(users)
        self.cells = survey.find(users.grams)  # rows of the survey, -1 for cells that are not active
        guide = np.take(np.append(survey.guide, np.uint16(survey.rest_guide))[self.cells], self.pairs.gram)
        self._rows = np.flatnonzero(guide)
        self._user, self._guide = np.take(self.pairs.user, self._rows), guide[self._rows].astype(np.float64)
        self._allowed, self._full = part_of(users.allowance, _second_share(survey, shares), users.budget), None
        if not survey.counted:
            self._full = users.is_last
            self._allowed = np.where(users.is_last, users.budget, self._allowed)
        if survey.rest_guide:
            grams = np.bincount(self._user, minlength=len(users))
            even = np.where(users.is_last, *_EVEN_SHARES) / np.sqrt(np.maximum(grams, 1))
            least = np.floor(np.minimum(even, 1.0) * GUIDE_UNIT)
            self._guide = np.maximum(self._guide, np.take(least, self._user))

    def weights(self) -> Array:
        """The weight of each gram, summed over the users of the block."""
        given = np.zeros(len(self.pairs.user), np.int64)
        given[self._rows], _ = spend(self._user, self._guide, self._allowed, self._full)
        return self.pairs.sum_by_gram(given)

    def left(self) -> Array:
        """What is left of each user's budget."""
        left: Array = self.users.budget - price(self._user, self._guide, self._allowed, self._full)
        return left


def _second_share(survey: Survey, shares: tuple[float, ...]) -> float:
    """The part of the allowance that the second look may spend: what the survey and the count leave.

    Where most cells are certain and not all are active, the survey spent most of its share on what was certain, and its
    value is lost for cells that are not active. There the second look may spend as much as the whole allowance, and
    later levels have so much less.
    """
    if survey.rest_guide and survey.floor.any():
        return 1.0
    return shares[1] if survey.counted else shares[1] + shares[2]


def _with_grams(users: Users) -> CandidateBlock:
    if not isinstance(users, CandidateBlock):
        raise TypeError(f"users must be a CandidateBlock, got {type(users).__name__}.")
    return users


def _rest_floor(survey: Survey, previous: int, noise: Noise) -> Array:
    """For each stratum, the bin from which on a cell that was not active is looked at; BINS: none is."""
    if not survey.rest_guide:
        return np.full(len(survey.size), BINS)
    rest = survey.size - np.bincount(survey.stratum, minlength=len(survey.size))
    floor = np.maximum(_first_active_bins(rest, previous, bins_of(noise).tail, 0), GROUP_STARTS[1])
    return np.where(survey.floor > 0, floor, BINS)


def _first_active_bins(size: Array, previous: int, tail: Array, every: int) -> Array:
    """For each stratum of these sizes the first bin whose cells are active: 0 if all are.

    About |S_{k-1}| zero cells of a stratum are active, but at least 2,000 and at most 2^15: enough to find what is
    real, few enough to look at. Strata that are not much larger are active completely, and so are all strata if they
    have at most `every` members together.
    """
    if size.sum() <= every:
        return np.zeros(len(size), np.int64)
    wanted = min(max(previous, _LEAST_ACTIVE), _MOST_ACTIVE)
    enough = size[:, None] * tail[None, :] <= wanted
    enough[:, : GROUP_STARTS[1]] = False
    enough[:, -1] = True
    return np.where(size <= 2 * wanted, 0, np.argmax(enough, axis=1))


def plus_round(plan: ExtractionPlan, n: int, number: int, pruning: str) -> RoundPolicy:
    """Round `number` of level n."""
    first = PlusVocabulary if plan.public_vocabulary else PlusTokens
    kind = first if n == 1 else (PlusSurvey, PlusSecondLook, PlusCount)[number]
    return kind(plan, n, number, pruning)

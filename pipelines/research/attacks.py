"""Worst-case neighbouring data sets, and what to look at in a release to tell them apart.

A pair of trials is a pair of worlds: a small population without one more user (even numbers) and with that user (odd
numbers). Trials share neither tokens nor users, so that one release holds thousands of trials side by side, and their
noise is independent.
"""

import abc
import dataclasses
import math
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from dpngram.accounting import ExtractionPlan, plan_extraction
from dpngram.accounting.evidence import EventBound, GaussianFit, bound_event, fit_gaussian

__all__ = ["ATTACKS", "Attack", "Bound", "Crowd", "Finding", "Gap", "Lone"]

# (window, {n: [(tokens, weight)]}): what an attacker sees of one release. Window 0 for a release without windows.
Release = tuple[int, dict[int, list[tuple[list[str], float]]]]
Array = np.ndarray[Any, np.dtype[Any]]

_PILOT = 5  # one pair of trials in five is used to choose what to look at; only the others count
# Under `plus` users give their whole budget only to grams that are neither hopeless nor certain. A trigram around a
# word that this many trials share is predicted at two to three standard deviations, whatever the noise.
_SHARED = 60


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """What an attack proves. The claim holds if no lower bound is above it."""

    attack: str
    policy: str
    windowed: bool
    claim: tuple[float, float]
    trials: int
    event: EventBound
    fit: GaussianFit | None = None

    @property
    def holds(self) -> bool:
        epsilon, delta = self.claim
        fitted = 0.0 if self.fit is None else self.fit.epsilon_low
        return self.event.epsilon <= epsilon and self.event.delta <= delta and fitted <= epsilon


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attack(abc.ABC):
    """An attack on one plan.

    Args:
        plan: what is attacked; its epsilon and delta are the claim.
        trials: how many pairs of trials.
        windows: how many windows they are spread over; 0: one release in the global window.
    """

    plan: ExtractionPlan
    trials: int
    windows: int = 0

    name: ClassVar[str]
    summary: ClassVar[str]
    bounded: ClassVar[bool] = False  # users are in more windows than the plan allows, and the library limits them

    def windows_of(self, trial: int) -> range:
        first = trial * self.windows // (2 * self.trials)
        return range(first, first + 1)

    @abc.abstractmethod
    def documents(self, trial: int, window: int) -> Iterator[tuple[str, str]]:
        """(user, text) of one trial in one window."""

    @abc.abstractmethod
    def judge(self, releases: Iterator[Release], error: float) -> Finding:
        """What all releases together prove. Each bound is wrong with probability at most `error`."""

    def _finding(self, event: EventBound, fit: GaussianFit | None = None) -> Finding:
        claim = (self.plan.epsilon, self.plan.delta)
        return Finding(
            attack=self.name,
            policy=self.plan.policy,
            windowed=self.windows > 0,
            claim=claim,
            trials=self.trials,
            event=event,
            fit=fit,
        )

    def _bound(self, likely: Array, unlikely: Array | None, error: float) -> EventBound:
        """A bound from what was seen in each trial of the two worlds."""
        seen = (int(likely.sum()), len(likely))
        other = None if unlikely is None else (int(unlikely.sum()), len(unlikely))
        return bound_event(seen, other, epsilon=self.plan.epsilon, delta=self.plan.delta, error=error)


class Crowd(Attack):
    """A crowd says the same as the user. So all is released, and only the noisy weights can tell the worlds apart."""

    name = "crowd"
    summary = "a crowd says what the user says; all of it is released, and the noisy weights are compared"
    slots: ClassVar[int] = 1

    @classmethod
    def make(cls, policy: str, epsilon: float, delta: float, trials: int, windows: int) -> "Crowd":
        plan = plan_extraction(epsilon=epsilon, delta=delta, max_n=3, max_contributions=9, policy=policy)
        return cls(plan=plan, trials=trials, windows=windows)

    @property
    def crowd(self) -> int:
        """So many users that all is released in the first round, except for one n-gram in a million."""
        sigma = max(level.sigma for level in self.plan.levels)
        return math.ceil((160 if self.plan.spec.individual_budgets else 13) * sigma) + 2

    def post(self, trial: int) -> list[str]:
        """`paper`: an n-gram of each length with all of its weight. `plus`: a trigram with nearly all of the budget."""
        if self.plan.spec.individual_budgets:
            return [f"a{trial}", f"shared{trial // _SHARED}", f"b{trial}"]
        return [f"a{trial}"] * self.plan.max_n

    def documents(self, trial: int, window: int) -> Iterator[tuple[str, str]]:
        text = " ".join(self.post(trial))
        for number in range(self.crowd):
            yield f"{trial}:{window}:{number}", text
        if trial % 2:  # the user says all of it, and parts of it again
            for post in (self.post(trial), self.post(trial)[:-1], self.post(trial)[1:]):
                yield f"{trial}:user", " ".join(post)

    def judge(self, releases: Iterator[Release], error: float) -> Finding:
        """Compares mean weights by length and window. The pilot trials choose the direction and the event."""
        sums = self._observe(releases)
        pilot = np.arange(2 * self.trials) // 2 % _PILOT == 0
        present = np.arange(2 * self.trials) % 2 == 1
        sums = np.where(np.isnan(sums), np.nanmean(sums[pilot], axis=0), sums)
        apart = sums[pilot & present].mean(axis=0) - sums[pilot & ~present].mean(axis=0)
        spread = sum(np.atleast_2d(np.cov(sums[pilot & world], rowvar=False)) for world in (present, ~present)) / 2
        least = (
            1e-9 * (np.trace(spread) + apart @ apart) + 1e-30
        )  # if nothing varies, any difference tells the worlds apart
        scores = sums @ np.linalg.solve(spread + least * np.eye(len(apart)), apart)
        worlds = (scores[~pilot & present], scores[~pilot & ~present])
        edge, likely = self._edge(scores[pilot & present], scores[pilot & ~present])
        if likely:
            event = self._bound(worlds[0] > edge, worlds[1] > edge, error)
        else:
            event = self._bound(worlds[1] <= edge, worlds[0] <= edge, error)
        return self._finding(event, fit_gaussian(*worlds, delta=self.plan.delta, error=error))

    def _edge(self, present: Array, absent: Array) -> tuple[float, bool]:
        """Where to cut the scores, and whether the user makes scores above the cut more likely."""
        best = (-1.0, 0.0, True)
        for edge in np.quantile(np.append(present, absent), np.linspace(0.01, 0.99, 99)):
            above = self._bound(present > edge, absent > edge, 0.1).epsilon
            below = self._bound(absent <= edge, present <= edge, 0.1).epsilon
            best = max(best, (above, float(edge), True), (below, float(edge), False))
        return best[1], best[2]

    def _observe(self, releases: Iterator[Release]) -> Array:
        """The mean weight of a trial's n-grams, by trial and by window and length; NaN if none was released."""
        owners = {}
        for trial in range(2 * self.trials):
            post = self.post(trial)
            for n in range(1, self.plan.max_n + 1):
                owners.update({tuple(post[at : at + n]): trial for at in range(len(post) - n + 1)})
        shape = (2 * self.trials, self.slots, self.plan.max_n)
        weight, count = np.zeros(shape), np.zeros(shape)
        for window, levels in releases:
            for n, rows in levels.items():
                for tokens, noisy in rows:
                    trial = owners.get(tuple(tokens), -1)
                    if trial >= 0 and not (n == 1 and tokens[0].startswith("shared")):
                        place = (trial, window - self.windows_of(trial).start, n - 1)
                        weight[place] += noisy
                        count[place] += 1
        with np.errstate(invalid="ignore"):
            means: Array = (weight / count).reshape(2 * self.trials, -1)
        return means


class Bound(Crowd):
    """The user is in more windows than the plan allows. All windows together must keep the claim."""

    name = "bound"
    summary = "the user is in six windows of a plan for two"
    slots = 6
    bounded = True

    @classmethod
    def make(cls, policy: str, epsilon: float, delta: float, trials: int, windows: int) -> "Bound":
        plan = plan_extraction(epsilon=epsilon, delta=delta, max_n=3, max_contributions=9, policy=policy, windows=2)
        return cls(plan=plan, trials=max(10, trials // 40), windows=cls.slots)

    def windows_of(self, trial: int) -> range:
        return range(self.slots)


class Lone(Attack):
    """Nobody else says it: a token that appears at all proves that the user is there. It may, with probability delta.

    With a useful delta this is never seen, so the attack has a delta of 0.05. Users have one token, as many tokens as a
    user may give, or forty times as many.
    """

    name = "lone"
    summary = "the user has tokens that nobody else has, up to forty times the cap; delta is 0.05"

    @classmethod
    def make(cls, policy: str, epsilon: float, delta: float, trials: int, windows: int) -> "Lone":
        plan = plan_extraction(epsilon=epsilon, delta=0.05, max_n=2, max_contributions=4, policy=policy)
        return cls(plan=plan, trials=trials, windows=windows)

    @property
    def sizes(self) -> tuple[int, int, int]:
        cap = self.plan.level(1).max_contributions or 1
        return 1, cap, 40 * cap

    def documents(self, trial: int, window: int) -> Iterator[tuple[str, str]]:
        if trial % 2:
            size = self.sizes[trial // 2 % len(self.sizes)]
            yield f"{trial}:user", " ".join(f"{trial}:{number}" for number in range(size))

    def judge(self, releases: Iterator[Release], error: float) -> Finding:
        seen = np.zeros(2 * self.trials, bool)
        for _, levels in releases:
            for tokens, _ in levels[1]:
                seen[int(tokens[0].partition(":")[0])] = True
        trial, kinds = np.arange(2 * self.trials), len(self.sizes)
        # Without the user these tokens do not exist, so they cannot be released.
        events = [
            self._bound(seen[(trial % 2 == 1) & (trial // 2 % kinds == kind)], None, error / kinds)
            for kind in range(kinds)
        ]
        return self._finding(max(events, key=lambda event: (event.delta, event.likely)))


# A sequence of letters in which each ordered pair of six letters occurs once.
_ALL_PAIRS = "aabacadaeafbbcbdbebfccdcecfddedfeeffa"


class Gap(Attack):
    """Candidates that nobody else has. Without the user some must appear now and then, too, as spurious n-grams."""

    name = "gap"
    summary = "the user has 31 bigrams of known words that nobody else has; eta is 0.5"

    @classmethod
    def make(cls, policy: str, epsilon: float, delta: float, trials: int, windows: int) -> "Gap":
        plan = plan_extraction(epsilon=epsilon, delta=delta, max_n=2, max_contributions=40, eta=0.5, policy=policy)
        return cls(
            plan=plan, trials=trials, windows=max(1, trials // 10)
        )  # few trials in a release, so that it has few such candidates

    def documents(self, trial: int, window: int) -> Iterator[tuple[str, str]]:
        sigma = max(level.sigma for level in self.plan.levels)
        for number in range(math.ceil((70 if self.plan.spec.individual_budgets else 30) * sigma) + 2):
            yield f"{trial}:{number}", " ".join(f"{word}{trial}" for word in "abcdef")
        if trial % 2:
            yield f"{trial}:user", " ".join(f"{word}{trial}" for word in _ALL_PAIRS)

    def judge(self, releases: Iterator[Release], error: float) -> Finding:
        seen = np.zeros(2 * self.trials, bool)
        for _, levels in releases:
            for (first, second), _ in levels[2]:
                if first[1:] == second[1:] and first[0] + second[0] not in "abcdef":
                    seen[int(first[1:])] = True
        return self._finding(self._bound(seen[1::2], seen[::2], error))


ATTACKS: dict[str, type[Crowd] | type[Lone] | type[Gap]] = {attack.name: attack for attack in (Crowd, Bound, Lone, Gap)}

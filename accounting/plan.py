"""From a budget to a plan: every number that the transforms need, fixed before any data is read."""

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any

from dpngram.accounting.gaussian import compose_sigmas, delta_bound, sigma_for
from dpngram.accounting.levels import LevelPlan, RoundPlan, check_fields, read_level, store
from dpngram.accounting.numerics import rounding_cost, touched
from dpngram.accounting.parameters import (
    MAX_CONTRIBUTIONS,
    MAX_N,
    MAX_WINDOWS,
    ParameterError,
    check_choice,
    check_delta,
    check_epsilon,
    check_integer,
    check_number,
    check_sequence,
    check_sigma,
)
from dpngram.accounting.policies import POLICIES, PolicySpec
from dpngram.accounting.schedules import GATE_SHARE, explicit_shares, geometric_shares, level_sigmas
from dpngram.accounting.thresholds import RHO_1_SLACK, first_level_threshold, level_threshold

__all__ = ["ExtractionPlan", "delta_needed", "gate_margin", "plan_extraction"]

FORMAT_VERSION = 1
# The gate stops a run at so many standard deviations of its noise: noise alone does with probability 9.9e-10.
_GATE_DEVIATIONS = 6.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtractionPlan:
    """The parameters of one extraction. A plan that does not meet its own (epsilon, delta) cannot exist.

    Privacy (both directions of the paper's theorem, see docs/privacy.md): over `windows` releases a user moves
    Gaussian queries of total 1/sigma*^2, and each release shows a token that only this user has with probability
    at most `threshold_delta`. The gate, which decides whether there is a release at all, is the first query: a user
    moves it by at most 1. Under `paper` a user moves every level by at most 1, and 1/sigma*^2 is the sum of the
    1/sigma_k^2 and of 1/gate_sigma^2; under `plus` all that a user ever gives to levels has norm at most 1, and
    1/sigma*^2 is 1/sigma^2 + 1/gate_sigma^2 with the one sigma of all levels. With d the sum of the probabilities, the
    release is (epsilon, delta)-DP if

        delta_G(epsilon) + d <= delta         (a user is added)
        delta_G(epsilon + ln(1 - d)) <= delta (a user is removed).

    With a public vocabulary the cells of level 1 are public as all others are: d is 0, and there is no threshold.

    Both lines are about exact Gaussians. The epsilon and delta in them are what `rounding_cost` leaves of the plan's.

    Args:
        policy: a name from `POLICIES`.
        epsilon, delta: the guarantee for one user, over all windows.
        eta: the accepted share of spurious grams.
        windows: how many releases one user may take part in.
        threshold_delta: d for one release.
        gate_sigma: the noise of the gate. It is paid for whether or not a run has a gate.
        levels: one for each length, from 1 on.
        edition: of the policy.
        public_vocabulary: whether S_1 is a list of words that was public before. Then level 1 only weighs its words.
    """

    policy: str
    epsilon: float
    delta: float
    eta: float
    windows: int
    threshold_delta: float
    gate_sigma: float
    levels: tuple[LevelPlan, ...]
    edition: int = 1
    public_vocabulary: bool = False

    def __post_init__(self) -> None:
        check_choice("policy", self.policy, tuple(POLICIES))
        if self.edition != self.spec.edition or isinstance(self.edition, bool):
            raise ParameterError(
                f"edition must be {self.spec.edition} for policy {self.policy}, got {self.edition!r:.40}: "
                "another version of dpngram made this plan. Make it again."
            )
        store(
            self,
            epsilon=check_epsilon(self.epsilon),
            delta=check_delta(self.delta),
            eta=check_number("eta", self.eta, 0.0, 1.0, low_open=True, high_open=True),
            windows=check_integer("windows", self.windows, 1, MAX_WINDOWS),
            threshold_delta=check_number(
                "threshold_delta", self.threshold_delta, 0.0, 1.0, low_open=not self.public_vocabulary, high_open=True
            ),
            gate_sigma=check_sigma(self.gate_sigma),
            levels=tuple(self.levels),
        )
        if [level.n for level in self.levels] != list(range(1, self.max_n + 1)) or not self.levels:
            raise ParameterError("levels must be numbered 1, 2, ... without a gap.")
        _check_vocabulary(self.public_vocabulary, self.max_n, self.spec)
        if (self.levels[0].rho is None) != self.public_vocabulary:
            raise ParameterError("rho must be given for level 1 unless its words are public, and only then.")
        rounds = [len(level.rounds) for level in self.levels]
        if rounds != [
            len(self.spec.rounds(level.n, public_vocabulary=self.public_vocabulary)) for level in self.levels
        ]:
            raise ParameterError(f"levels of policy {self.policy} must have the rounds of the policy, got {rounds}.")
        if not self.spec.individual_budgets and any(
            level.max_contributions is None or [part.share for part in level.rounds] != [1.0] for level in self.levels
        ):
            raise ParameterError(f"levels of policy {self.policy} must have max_contributions, and one whole round.")
        if self.spec.individual_budgets and any(level.max_contributions is not None for level in self.levels[1:]):
            # Rounding is paid for by how many cells a user may touch, and these policies have no cap from level 2 on.
            raise ParameterError(f"levels of policy {self.policy} must have no max_contributions from level 2 on.")
        self._check_guarantee()

    def _check_guarantee(self) -> None:
        epsilon, delta = rounding_cost(self.epsilon, self.delta, *self.touched).left(self.epsilon, self.delta)
        spent = self.windows * self.threshold_delta
        if spent >= 1 or delta_needed(epsilon, self.sigma_star, spent) > delta * (1 + 1e-15):
            raise ParameterError(
                f"the noise of this plan does not give ({self.epsilon:g}, {self.delta:g})-differential privacy."
            )
        first = self.levels[0]
        for part in () if self.public_vocabulary else first.rounds:
            needed = _round_threshold(first.sigma, first.max_contributions, self.threshold_delta, part.share)
            if part.rho is None or part.rho < needed - abs(needed) * RHO_1_SLACK:
                raise ParameterError(f"the level-1 threshold must be at least {needed:.9g}, got {part.rho}.")

    @property
    def spec(self) -> PolicySpec:
        """The policy's half that the accounting knows."""
        return POLICIES[self.policy]

    @property
    def max_n(self) -> int:
        """T: the longest n-gram."""
        return len(self.levels)

    @property
    def first_n(self) -> int:
        """The length of the shortest n-grams that are released: words that are public already are not."""
        return 2 if self.public_vocabulary else 1

    @property
    def sigma_star(self) -> float:
        """The noise of the one Gaussian that costs as much as the whole run, all windows together."""
        return _compose([level.sigma for level in self.levels], self.gate_sigma, self.windows, self.spec)

    @property
    def touched(self) -> tuple[int, int]:
        """How many cells and counts finite precision is charged for, see `numerics.touched`."""
        caps = [level.max_contributions for level in self.levels]
        rounds = [len(level.rounds) for level in self.levels]
        return touched(caps, rounds, self.windows, individual_budgets=self.spec.individual_budgets)

    @property
    def gate_margin(self) -> float:
        """By how many users the noisy number of bad ones must exceed what is allowed before a run stops."""
        return gate_margin(self.gate_sigma)

    def level(self, n: int) -> LevelPlan:
        return self.levels[n - 1]

    def threshold(self, n: int, previous: int, valid: int) -> float:
        """rho_n, given the sizes of S_{n-1} and V_n, which are functions of the release so far.

        Under `plus` thresholds from level 2 on are chosen by stratum; this is what they would be with one stratum.
        """
        level = self.level(n)
        if level.rho is not None:
            return level.rho
        return level_threshold(level.sigma, self.eta, previous, valid)

    def settings(self) -> dict[str, Any]:
        """All that decides what is released. Plans without later additions do not name them, and keep their noise."""
        fields = dataclasses.asdict(self)
        if self.edition == 1:
            del fields["edition"]
        if not self.public_vocabulary:
            del fields["public_vocabulary"]
        return fields

    def to_json(self) -> str:
        """A text that `from_json` reads back to an equal plan; the derived figures are for readers."""
        fields = self.settings()
        for level, written in zip(self.levels, fields["levels"], strict=True):
            written["rho"] = level.rho
        derived = {"max_n": self.max_n, "sigma_star": self.sigma_star, "gate_margin": self.gate_margin}
        return json.dumps({"format_version": FORMAT_VERSION, **fields, "derived": derived}, indent=2)

    @classmethod
    def from_json(cls, text: str) -> "ExtractionPlan":
        """The plan that `to_json` wrote. Checked like any other: a tampered plan is refused."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            raise ParameterError("plan must be a JSON text written by to_json.") from None
        if not isinstance(document, dict):
            raise ParameterError("plan must be a JSON object.")
        version = document.pop("format_version", None)
        if version != FORMAT_VERSION or isinstance(version, bool):
            raise ParameterError(f"plan format_version must be {FORMAT_VERSION}, got {version!r:.40}.")
        document.pop("derived", None)
        levels = document.pop("levels", None)
        if not isinstance(levels, list) or not all(isinstance(level, dict) for level in levels):
            raise ParameterError("plan levels must be a list of objects.")
        document.setdefault("edition", 1)
        document.setdefault("public_vocabulary", False)
        check_fields(cls, {**document, "levels": None})
        return cls(levels=tuple(map(read_level, levels)), **document)


def plan_extraction(
    *,
    epsilon: float,
    delta: float,
    max_n: int,
    max_contributions: int | Sequence[int],
    eta: float = 0.01,
    decay: float | None = None,
    shares: Sequence[float] | None = None,
    windows: int = 1,
    policy: str = "plus",
    public_vocabulary: bool = False,
) -> ExtractionPlan:
    """The plan for releasing n-grams of up to `max_n` tokens under user-level (epsilon, delta)-DP.

    Args:
        epsilon, delta: the guarantee for one user, over the whole run.
        max_n: T, the length of the longest n-gram.
        max_contributions: the most distinct grams one user may give at a level (the paper's Delta):
            one number, or a list with one per level. Policy `plus` clips level 1 only, and takes one number.
        eta: the expected share of spurious grams (released, though no user has them) stays below this; under
            `plus` thresholds are chosen so that its estimate does.
        decay: sigma_k = decay * sigma_{k-1}, or for `plus` the same division of the users' budgets. Below 1 spends
            more on long grams. Default: 1, and 0.8^-0.5 for `plus`.
        shares: instead of `decay`, the share of the budget for each level, in any unit.
        windows: how many windows (releases) one user may take part in.
        policy: "plus", or "paper", the algorithm of Kim et al. (2021), which releases about half as much.
        public_vocabulary: S_1 is a list of words that was public before (`ExtractLevels` gets it). Then level 1 costs
            hardly anything, and all of delta pays for noise. Policy `plus` only.
    """
    spec = POLICIES[check_choice("policy", policy, tuple(POLICIES))]
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    eta = check_number("eta", eta, 0.0, 1.0, low_open=True, high_open=True)
    max_n = check_integer("max_n", max_n, 1, MAX_N)
    windows = check_integer("windows", windows, 1, MAX_WINDOWS)
    _check_vocabulary(public_vocabulary, max_n, spec)
    caps = _contribution_caps(max_contributions, max_n, spec)
    if shares is None:
        level_shares = geometric_shares(max_n, spec.decay if decay is None else decay)
    elif decay is not None:
        raise ParameterError(f"decay must be left out when shares are given, got {decay}.")
    else:
        level_shares = explicit_shares(max_n, shares)

    parts = [spec.rounds(n, public_vocabulary=public_vocabulary) for n in range(1, max_n + 1)]
    rounds = [len(part) for part in parts]
    exact_epsilon, exact_delta = _left_by_rounding(epsilon, delta, caps, rounds, windows, spec)
    # A part of delta pays for the noise, the rest for tokens that only one user has (the paper's theorem).
    spent = 0.0 if public_vocabulary else exact_delta * spec.token_share
    threshold_delta = math.nextafter(spent / windows, 0) if windows > 1 else spent
    sigma_star = max(
        sigma_for(exact_epsilon, exact_delta - spent), sigma_for(exact_epsilon + math.log1p(-spent), exact_delta)
    )
    sigmas, gate_sigma = _divide(sigma_star, level_shares, windows, spec)
    # At an epsilon so small that the bound's own rounding exceeds the slack of the sigmas, a little more noise.
    while (
        delta_needed(exact_epsilon, _compose(sigmas, gate_sigma, windows, spec), windows * threshold_delta)
        > exact_delta
    ):
        sigma_star *= 1 + 2.0**-20
        sigmas, gate_sigma = _divide(sigma_star, level_shares, windows, spec)
    levels = tuple(
        LevelPlan(
            n=n,
            share=level_shares[n - 1],
            sigma=sigmas[n - 1],
            max_contributions=caps[n - 1],
            rounds=tuple(
                RoundPlan(
                    share=part,
                    rho=_round_threshold(sigmas[0], caps[0], threshold_delta, part)
                    if n == 1 and not public_vocabulary
                    else None,
                )
                for part in of_level
            ),
        )
        for n, of_level in enumerate(parts, 1)
    )
    return ExtractionPlan(
        policy=spec.name,
        epsilon=epsilon,
        delta=delta,
        eta=eta,
        windows=windows,
        threshold_delta=threshold_delta,
        gate_sigma=gate_sigma,
        levels=levels,
        edition=spec.edition,
        public_vocabulary=public_vocabulary,
    )


def _check_vocabulary(public_vocabulary: object, max_n: int, spec: PolicySpec) -> None:
    if not isinstance(public_vocabulary, bool):
        raise ParameterError(f"public_vocabulary must be true or false, got {public_vocabulary!r:.40}.")
    if public_vocabulary and not spec.vocabulary_shares:
        raise ParameterError(f"policy must be plus with a public vocabulary, got {spec.name}.")
    if public_vocabulary and max_n < 2:
        raise ParameterError(f"max_n must be at least 2 with a public vocabulary, got {max_n}: words are not released.")


def _divide(
    sigma_star: float, shares: Sequence[float], windows: int, spec: PolicySpec
) -> tuple[tuple[float, ...], float]:
    """The noise of each level, one for all under individual budgets, otherwise by the shares; and that of the gate."""
    parts = (1.0,) if spec.individual_budgets else shares
    *sigmas, gate = level_sigmas(sigma_star, [*((1 - GATE_SHARE) * part for part in parts), GATE_SHARE], windows)
    return tuple(sigmas) * (len(shares) // len(parts)), gate


def _compose(sigmas: Sequence[float], gate: float, windows: int, spec: PolicySpec) -> float:
    """The inverse: the one Gaussian that costs as much as the levels and the gate together, in all windows."""
    levels = [min(sigmas)] if spec.individual_budgets else sigmas
    return compose_sigmas([*levels, gate]) / math.sqrt(windows)


def gate_margin(sigma: float) -> float:
    """The margin of a gate with this noise."""
    return _GATE_DEVIATIONS * sigma


def _left_by_rounding(
    epsilon: float, delta: float, caps: Sequence[int | None], rounds: Sequence[int], windows: int, spec: PolicySpec
) -> tuple[float, float]:
    """The (epsilon, delta) that exact Gaussians must have, so that the noise as it is drawn has the plan's."""
    cells, counts = touched(caps, rounds, windows, individual_budgets=spec.individual_budgets)
    return rounding_cost(epsilon, delta, cells, counts).left(epsilon, delta)


def delta_needed(epsilon: float, sigma: float, spent: float) -> float:
    """The delta of the two directions, a user added and a user removed, whichever is larger."""
    return max(delta_bound(epsilon, sigma) + spent, delta_bound(epsilon + math.log1p(-spent), sigma))


def _round_threshold(sigma: float, cap: int | None, delta: float, share: float) -> float:
    """rho_{1,r}: t <= cap tokens that only one user has get at most sqrt(share/t) each, and delta * share in all."""
    if cap is None:
        raise ParameterError("level 1 must have max_contributions: its threshold depends on them.")
    return first_level_threshold(
        sigma, cap, delta * share, weight=math.sqrt(share) * (1 + 2.0**-50) if share < 1 else 1.0
    )


def _contribution_caps(value: object, max_n: int, spec: PolicySpec) -> tuple[int | None, ...]:
    if spec.individual_budgets:
        if isinstance(value, (list, tuple)):
            raise ParameterError(
                f"max_contributions must be one number with policy {spec.name}, which clips level 1 only (paper takes "
                f"one per level), got {value!r:.60}."
            )
        return (check_integer("max_contributions", value, 1, MAX_CONTRIBUTIONS), *[None] * (max_n - 1))
    given = [value] * max_n
    if isinstance(value, (list, tuple)):
        given = check_sequence("max_contributions", value, max_n, "whole numbers")
    return tuple(check_integer("max_contributions", cap, 1, MAX_CONTRIBUTIONS) for cap in given)

"""What a policy is: the answers to six questions about one round of one level, and what the proof needs of them."""

import abc
import dataclasses
from typing import ClassVar

from dpngram.accounting import ExtractionPlan, LevelPlan, ParameterError, RoundPlan
from dpngram.transforms.blocks.candidates import CandidateBlock, open_candidates
from dpngram.transforms.blocks.columns import Array
from dpngram.transforms.blocks.levels import Level
from dpngram.transforms.blocks.users import Users
from dpngram.transforms.policies.cutoffs import Cutoffs
from dpngram.transforms.randomness.noise import Noise
from dpngram.transforms.randomness.prf import Prf

__all__ = ["RoundPolicy"]


@dataclasses.dataclass(frozen=True)
class RoundPolicy(abc.ABC):
    """One round of level `n` under one policy. The graph is the same for all policies; it asks these questions.

    | method       | question                                                      | asked by           |
    |--------------|---------------------------------------------------------------|--------------------|
    | `allow`      | what may each user spend at this level?                       | `ClipAndWeight`    |
    | `candidates` | which of a user's grams take part in this round?              | `ClipAndWeight`    |
    | `weigh`      | how much weight does each gram get, and what does it cost?    | `ClipAndWeight`    |
    | `cutoffs`    | how much noise, and below which floors is nothing released?   | `NoisyThreshold`   |
    | `thresholds` | which final thresholds follow from the noisy values?          | `AddSpuriousGrams` |
    | `publish`    | which weight is published for a released gram?                | `AddSpuriousGrams` |
    | `finish`     | what does the next level want to know of S_k?                 | `AddSpuriousGrams` |

    Privacy: the proofs in docs/privacy.md are for `paper` and `plus`. They use the following of a policy; a new policy
    must keep all of it, and needs a proof that says so.

    1. *One user's answer looks at that user only.* `allow`, `candidates` and `weigh` compute a user's values from the
       user's own columns, the user's own keyed draws, and from levels that are public already.
    2. *The norm is bounded.* Weights are not negative. If the policy's `PolicySpec` has `individual_budgets`, the
       squared integer weights (units of 2^-32) that a user ever gives, in all rounds of all levels, sum to at most
       2^64. Otherwise those of each level do. At level 1 a user gives at most `max_contributions` grams, and with t
       grams none of them more than sqrt(share / t): the threshold of level 1 relies on it.
    3. *Candidates are cells.* From level 2 on `candidates` gives members of V_k only, and none that an earlier round of
       the level released: users' cells and zero cells must come from one set.
    4. *Cutoffs are public.* `cutoffs` is a function of the plan and of public levels, and uses the plan's sigma. Its
       strata are V_k under `pruning`; `size` leaves out what earlier rounds released. A given `rho` is the one floor.
       Floors of tallied strata are above 0. At level 1 the floor is the plan's threshold.
    5. *The rest is post-processing.* `thresholds`, `publish` and `finish` are functions of the noisy values on all of
       V_k, zero cells included, and of public levels. What they are given is sorted by key; they must not look for
       anything that tells users' cells from zero cells.
    6. *All workers agree.* Strata, guides and what decides about single cells are integers or come from tables made
       once. Where a floating-point result decides which zero cells are drawn, workers compare what they drew, and
       stop if it differs.

    Args:
        plan: the plan of the release.
        n: the level, k.
        number: the round, counted from 0.
        pruning: the rule that defines V_k, see `ValidityFilter`.
    """

    plan: ExtractionPlan
    n: int
    number: int = 0
    pruning: str = "both"

    # Whether `allow` or `weigh` change the users: then the next round must read what this one hands on.
    changes_users: ClassVar[bool] = False

    def __post_init__(self) -> None:
        Noise(self.level.sigma)  # refuses noise beyond exact sums here rather than on a worker
        if self.pruning != "both" and self.plan.spec.both_sides_only:
            raise ParameterError(
                f"pruning must be both with policy {self.plan.policy}, got {self.pruning!r}; policy paper takes it."
            )

    @property
    def level(self) -> LevelPlan:
        """What the plan says of this level."""
        return self.plan.level(self.n)

    @property
    def round(self) -> RoundPlan:
        """What the plan says of this round."""
        return self.level.rounds[self.number]

    @property
    def label(self) -> str:
        return f"Round{self.number + 1}"

    def allow(self, users: Users) -> Users:
        """The users at the start of a level, with what they may spend at it."""
        return users

    def candidates(self, users: Users, earlier: Level) -> CandidateBlock:
        """The grams that take part in this round: all that earlier rounds of the level have not released."""
        return open_candidates(users, earlier)

    @abc.abstractmethod
    def weigh(self, users: Users, candidates: CandidateBlock, clip: Prf) -> tuple[Array, Users | None]:
        """The weight of each candidate, summed over the users of the block; and the users, if that changed them.

        Args:
            users: as `allow` or the round before left them.
            candidates: of these users, see `candidates`.
            clip: the keyed function for choosing among a user's grams.
        """

    @abc.abstractmethod
    def cutoffs(self, previous: Level, earlier: Level) -> Cutoffs:
        """The noise of this round, and for each stratum of V_k the floor below which nothing is released."""

    def thresholds(self, cutoffs: Cutoffs, below: Array, stratum: Array, noisy: Array) -> Array:
        """The final threshold of each stratum, in steps, at or above its floor.

        Args:
            cutoffs: of this round.
            below: for each stratum, how many cells of V_k have a noisy weight below 0; 0 in strata of more than 2^30
                cells, which are not tallied.
            stratum, noisy: of each cell, a user's or zero, that reached its floor.
        """
        return cutoffs.floor

    def publish(self, noisy: Array, keys: Array, previous: Level) -> Array:
        """The weights to publish, in steps, from the noisy values of released cells."""
        return noisy

    def finish(self, level: Level, previous: Level) -> Level:
        """S_k with whatever the next level wants to know of it."""
        return level

"""What a policy is: the answers to some questions about one round of one level, and what the proof needs of them."""

import abc
import dataclasses
from typing import Any, ClassVar

from dpngram.accounting import ExtractionPlan, LevelPlan, ParameterError, RoundPlan
from dpngram.transforms.blocks.candidates import CandidateBlock, open_candidates
from dpngram.transforms.blocks.columns import Array, Block
from dpngram.transforms.blocks.levels import EMPTY_LEVEL, Level
from dpngram.transforms.blocks.users import Users
from dpngram.transforms.policies.cutoffs import Cells, Cutoffs
from dpngram.transforms.randomness.noise import Noise
from dpngram.transforms.randomness.prf import Prf

__all__ = ["RoundPolicy"]


@dataclasses.dataclass(frozen=True)
class RoundPolicy(abc.ABC):
    """One round of level `n` under one policy. The graph is the same for all policies; it asks these questions.

    | method       | question                                                          | asked by           |
    |--------------|-------------------------------------------------------------------|--------------------|
    | `allow`      | what may each user spend at this level?                           | `ClipAndWeight`    |
    | `candidates` | which of a user's grams take part in this round?                  | `ClipAndWeight`    |
    | `weigh`      | how much weight does each gram get, and what does it cost?        | `ClipAndWeight`    |
    | `cutoffs`    | how much noise, and at which cells does the round look?           | `NoisyThreshold`   |
    | `settle`     | what follows from the noisy values: S_k, or what comes next?      | `AddSpuriousGrams` |
    | `publish`    | which weight is published for a released gram?                    | `AddSpuriousGrams` |
    | `finish`     | what does the next level want to know of S_k?                     | `AddSpuriousGrams` |
    | `pay`        | what is left to the users after the rounds that charge them late? | `ExtractLevel`     |

    Privacy: the proofs in docs/privacy.md are for `paper` and `plus`. They use the following of a policy; a new policy
    must keep all of it, and needs a proof that says so.

    1. *One user's answer looks at that user only.* `allow`, `candidates`, `weigh` and `pay` compute a user's values
       from the user's own columns, the user's own keyed draws, and from what is public already: released levels, and
       what earlier rounds found out.
    2. *The norm is bounded.* Weights are not negative. If the policy's `PolicySpec` has `individual_budgets`, the
       squared integer weights (units of 2^-32) that a user ever gives, in all rounds of all levels, sum to at most
       2^64. Otherwise those of each level do. At level 1 a user gives at most `max_contributions` grams, and with t
       grams none of them more than sqrt(share / t): the threshold of level 1 relies on it.
    3. *Candidates are cells.* From level 2 on `candidates` gives members of V_k only, and at level 1 none that an
       earlier round released: users' cells and zero cells must come from one set.
    4. *Cutoffs are public.* `cutoffs` is a function of the plan and of what is public, and uses the plan's sigma. Its
       strata are V_k under `pruning`. A given `rho` is the one floor. At level 1 the floor is the plan's threshold.
    5. *The rest is post-processing.* `settle`, `publish` and `finish` are functions of the noisy values on all of
       V_k, zero cells included, and of what is public. What they are given is sorted by key; they must not look for
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
    # Whether users pay for some rounds when the level is over, see `pay`.
    charges_late: ClassVar[bool] = False
    # What the round gives to the next ones if it had nothing to look at: its class is what `settle` gives.
    nothing: ClassVar[Block] = EMPTY_LEVEL

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
        """The name of the round in the graph."""
        return f"Round{self.number + 1}"

    def allow(self, users: Users) -> Users:
        """The users at the start of a level, with what they may spend at it."""
        return users

    def candidates(self, users: Users, earlier: Any) -> CandidateBlock:
        """The grams that take part in this round: all that earlier rounds of the level have not released."""
        return open_candidates(users, earlier)

    @abc.abstractmethod
    def weigh(self, users: Users, candidates: CandidateBlock, clip: Prf, earlier: Any) -> tuple[Array, Users | None]:
        """The weight of each candidate, summed over the users of the block; and the users, if that changed them.

        Args:
            users: as `allow` or the round before left them.
            candidates: of these users, see `candidates`.
            clip: the keyed function for choosing among a user's grams.
            earlier: what earlier rounds of this level have found out.
        """

    @abc.abstractmethod
    def cutoffs(self, previous: Level, earlier: Any) -> Cutoffs:
        """The noise of this round, and for each stratum of V_k the floor below which no cell is looked at."""

    def settle(self, cells: Cells, cutoffs: Cutoffs, previous: Level, earlier: Any) -> Any:
        """From level 2 on: what follows from the cells that the round looked at. By default, all of them are S_k."""
        rho = float("inf") if cutoffs.rho is None else cutoffs.rho
        weight = self.publish(cells.noisy)
        return self.finish(previous.extend(cells.keys, weight, cutoffs.noise.grid, rho, self.pruning), previous)

    def publish(self, noisy: Array) -> Array:
        """The weights to publish, in steps, from the noisy values of released cells."""
        return noisy

    def finish(self, level: Level, previous: Level) -> Level:
        """S_k with whatever the next level wants to know of it."""
        return level

    def pay(self, users: Users, found: Any) -> Users:
        """The users at the end of the level, where its last rounds did not hand them on.

        `found` is what the rounds before the last found out.
        """
        return users

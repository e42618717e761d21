"""One round of a level: everything its transforms share, and the keyed draws that are its own."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import apache_beam as beam

from dpngram.accounting import LevelPlan
from dpngram.transforms.blocks.levels import EMPTY_LEVEL, Level
from dpngram.transforms.randomness.noise_key import KeySource, Randomness
from dpngram.transforms.randomness.prf import Prf
from dpngram.transforms.side_inputs import for_sides

__all__ = ["Draw", "Round"]


if TYPE_CHECKING:
    from dpngram.transforms.policies.paper import PaperPolicy


Draw = Callable[[str], Prf]


@dataclasses.dataclass(frozen=True)
class Round:
    """Level `n`, round `number` (from 0); most levels have one. Rounds never share a draw."""

    policy: "PaperPolicy"
    n: int
    number: int
    randomness: Randomness
    pruning: str = "both"

    @property
    def level(self) -> LevelPlan:
        return self.policy.plan.level(self.n)

    @property
    def share(self) -> float:
        return self.level.rounds[self.number].share

    def draws(self, source: KeySource, window: bytes, binding: bytes) -> Draw:
        """The keyed function for each purpose."""
        return lambda purpose: source.prf(purpose, self.n, self.number, window, binding)

    @staticmethod
    def sides(binding: beam.PCollection[bytes] | None, **levels: beam.PCollection[Level] | None) -> dict[str, Any]:
        """Side inputs: the binding, which has no default, and levels, where a missing one is empty."""
        given = {
            name: beam.pvalue.AsSingleton(for_sides(level, name.capitalize()), default_value=EMPTY_LEVEL)
            for name, level in levels.items()
            if level is not None
        }
        if binding is not None:
            given["binding"] = beam.pvalue.AsSingleton(binding)
        return given

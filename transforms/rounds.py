"""One round of a level: everything its transforms share, and the keyed draws that are its own."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import apache_beam as beam

from dpngram.accounting import LevelPlan
from dpngram.transforms.keyed import Prf
from dpngram.transforms.keys import KeySource, Randomness
from dpngram.transforms.levels import EMPTY_LEVEL, Level
from dpngram.transforms.sides import for_sides
from dpngram.transforms.windows import window_name

if TYPE_CHECKING:
    from dpngram.transforms.policies import PaperPolicy

__all__ = ["Draw", "Round", "RoundDoFn"]

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


class RoundDoFn(beam.DoFn):
    """A DoFn of one round; it reads the key when a worker sets it up."""

    _source: KeySource

    def __init__(self, round_: Round) -> None:
        self._round = round_

    def setup(self) -> None:
        self._source = self._round.randomness.open()

    def draws(self, window: Any, binding: bytes) -> Draw:
        return self._round.draws(self._source, window_name(window), binding)

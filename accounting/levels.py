"""A level of a plan and its rounds: frozen records that check themselves, also when they are read from JSON."""

import dataclasses
import math
from typing import Any

from dpngram.accounting.parameters import (
    MAX_CONTRIBUTIONS,
    MAX_N,
    ParameterError,
    check_integer,
    check_number,
    check_sigma,
)
from dpngram.accounting.schedules import LEAST_SHARE

__all__ = ["LevelPlan", "RoundPlan", "check_fields", "read_level", "store"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundPlan:
    """One query of a level.

    Args:
        share: the part of the level's budget.
        rho: the threshold; at level 1 only, since later ones follow from the release.
    """

    share: float
    rho: float | None = None

    def __post_init__(self) -> None:
        store(self, share=check_number("round share", self.share, LEAST_SHARE, 1.0))
        if self.rho is not None:
            store(self, rho=check_number("round rho", self.rho, -1e100, 1e100))


@dataclasses.dataclass(frozen=True, kw_only=True)
class LevelPlan:
    """What one level may spend, and in which rounds.

    Args:
        n: the length of the grams.
        share: the part of what all levels together may spend.
        sigma: the standard deviation of the noise.
        max_contributions: the most distinct grams that a user gives; None for all of a user's grams.
        rounds: the queries of the level.
    """

    n: int
    share: float
    sigma: float
    max_contributions: int | None
    rounds: tuple[RoundPlan, ...]

    def __post_init__(self) -> None:
        store(
            self,
            n=check_integer("level n", self.n, 1, MAX_N),
            share=check_number("level share", self.share, LEAST_SHARE, 1.0),
            sigma=check_sigma(self.sigma),
            rounds=tuple(self.rounds),
        )
        if self.max_contributions is not None:
            cap = check_integer("max_contributions", self.max_contributions, 1, MAX_CONTRIBUTIONS)
            store(self, max_contributions=cap)
        if not self.rounds or math.fsum(part.share for part in self.rounds) > 1:
            raise ParameterError(f"the rounds of level {self.n} must be at least one, with shares of at most 1 in all.")
        known = [part.rho for part in self.rounds if part.rho is not None]
        if known and (self.n > 1 or len(known) < len(self.rounds)):
            raise ParameterError(f"rho must be given for level 1 and for no other, got {self.rounds} at {self.n}.")

    @property
    def rho(self) -> float | None:
        """Level 1: the (lowest) threshold; None where its words are public. Later ones follow from the release."""
        return min((part.rho for part in self.rounds if part.rho is not None), default=None)


def read_level(fields: dict[str, Any]) -> LevelPlan:
    """A level as `ExtractionPlan.to_json` writes it; its fields are checked like any others."""
    rho = fields.pop("rho", None)
    check_fields(LevelPlan, fields)
    rounds = fields.pop("rounds")
    if not isinstance(rounds, list) or not all(isinstance(part, dict) for part in rounds):
        raise ParameterError("plan rounds must be a list of objects.")
    for part in rounds:
        check_fields(RoundPlan, part)
    level = LevelPlan(rounds=tuple(RoundPlan(**part) for part in rounds), **fields)
    if rho != level.rho:
        raise ParameterError(f"plan rho of level {level.n} must be the lowest of its rounds, got {rho!r:.40}.")
    return level


def store(record: Any, **values: Any) -> None:
    """Replaces fields of a frozen record: what was checked, as plain numbers, is what is kept."""
    for name, value in values.items():
        object.__setattr__(record, name, value)


def check_fields(cls: type, given: dict[str, Any]) -> None:
    """Raises ParameterError unless a record of this class has exactly these fields."""
    known = {field.name for field in dataclasses.fields(cls)}
    if wrong := sorted(known.symmetric_difference(given)):
        raise ParameterError(f"plan fields must be exactly {', '.join(sorted(known))}; differs in {wrong[0]!r:.40}.")

"""DoFns that draw keyed randomness: they read the key when a worker sets them up, never from the job graph."""

from typing import Any

import apache_beam as beam

from dpngram.transforms.policies.base import RoundPolicy
from dpngram.transforms.randomness.noise_key import Draw, KeySource, Randomness
from dpngram.transforms.windowing import window_name

__all__ = ["KeyedDoFn", "RoundDoFn"]


class KeyedDoFn(beam.DoFn):
    """A DoFn with an opened key, `self._source`."""

    _source: KeySource

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness

    def setup(self) -> None:
        self._source = self._randomness.open()

    def window_name(self, window: Any) -> bytes:
        """What stands for a window in key derivation."""
        return window_name(window, self._randomness.window_delay)


class RoundDoFn(KeyedDoFn):
    """A DoFn of one round of a level."""

    def __init__(self, policy: RoundPolicy, randomness: Randomness) -> None:
        super().__init__(randomness)
        self._policy = policy

    def draws(self, window: Any, binding: bytes, past: int = 0) -> Draw:
        """The keyed function for each purpose of this round, in this window. Rounds never share a draw.

        `past` names what the round goes on from, see `Survey.name`.
        """
        return self._source.draws(self._policy.n, self._policy.number, self.window_name(window), binding, past)

"""DoFns that draw keyed randomness."""

from typing import Any

import apache_beam as beam

from dpngram.transforms.policies.base import Draw, Round
from dpngram.transforms.randomness.noise_key import KeySource
from dpngram.transforms.windowing import window_name

__all__ = ["RoundDoFn"]


class RoundDoFn(beam.DoFn):
    """A DoFn of one round; it reads the key when a worker sets it up."""

    _source: KeySource

    def __init__(self, round_: Round) -> None:
        self._round = round_

    def setup(self) -> None:
        self._source = self._round.randomness.open()

    def draws(self, window: Any, binding: bytes) -> Draw:
        return self._round.draws(self._source, window_name(window), binding)

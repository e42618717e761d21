"""DecideRelease: whether there is a release at all, decided by a noisy query like any other."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import apache_beam as beam
import numpy as np

from dpngram.accounting import ExtractionPlan, UnionPlan
from dpngram.accounting.parameters import check_number
from dpngram.transforms.keyed_dofn import KeyedDoFn
from dpngram.transforms.messages import Message
from dpngram.transforms.randomness.draws import standard_normal
from dpngram.transforms.randomness.noise import UNIT
from dpngram.transforms.randomness.noise_key import Randomness
from dpngram.transforms.randomness.prf import Bits128, Prf

__all__ = ["DEFAULT_BAD_FRACTION", "DecideRelease", "Gate", "TooManyBadRecords", "make_gate"]

DEFAULT_BAD_FRACTION = 0.01
_GRID_BITS = 14


class TooManyBadRecords(Exception):
    """Stops a run before anything is released. One line, fit to show to a user."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gate:
    """The query that decides whether there is a release at all.

    With f = `max_bad_fraction` the statistic is

        X = (users with a bad record + bad records without a user) - f * (users + bad records without a user).

    The run stops if X with Gaussian noise exceeds `margin`.

    Privacy: a user adds 1 - f to X with any number of bad records, and -f without any, so one user moves X by at most
    1. X is an exact integer in units of 2^-32, and is rounded to a grid after the noise, as weights are: the verdict is
    post-processing of a Gaussian query of sensitivity 1 and noise `sigma`, which the plan pays for. Bad records without
    a user belong to nobody in the guarantee, and count one each.

    Args:
        sigma: the standard deviation of the noise, from the plan.
        margin: in users, from the plan: with X at 0 or below, noise alone reaches it with probability below 1e-9.
        max_bad_fraction: f, from 0 to 1.
        by_default: nobody asked for this gate by name. In windows, where there can be none, it is left out; one that
            was asked for is an error there.
    """

    sigma: float
    margin: float
    max_bad_fraction: float
    by_default: bool = False

    def excess(self, counts: Sequence[int]) -> int:
        """X in units of 2^-32, from the three counts of a `UserBlock`; exact."""
        users, bad, unnamed = map(int, counts)
        allowed = int(Fraction(self.max_bad_fraction) * UNIT)
        return (bad + unnamed) * UNIT - allowed * (users + unnamed)

    def stops(self, counts: Sequence[int], bits: Bits128, prf: Prf) -> bool:
        """The verdict, from exact counts and 128 bits of `prf`."""
        step = max(1, int(Fraction(self.sigma) * UNIT / (1 << _GRID_BITS)))
        noise = math.floor(float(standard_normal(bits, prf)[0]) * (self.sigma * UNIT))
        noisy = (self.excess(counts) + noise) // step
        return noisy > math.ceil(Fraction(self.margin) * UNIT / step)


def make_gate(plan: ExtractionPlan | UnionPlan, max_bad_fraction: float | None) -> Gate | None:
    """The gate of a plan; None with a fraction of 1, where nothing is to be decided.

    Args:
        plan: pays for the gate, whether or not there is one.
        max_bad_fraction: f; None: DEFAULT_BAD_FRACTION in the global window, and no gate in others.
    """
    by_default = max_bad_fraction is None
    most = DEFAULT_BAD_FRACTION if max_bad_fraction is None else max_bad_fraction
    most = check_number("max_bad_fraction", most, 0.0, 1.0)
    if most == 1:
        return None
    return Gate(sigma=plan.gate_sigma, margin=plan.gate_margin, max_bad_fraction=most, by_default=by_default)


class DecideRelease(beam.PTransform):
    """Content, from `FingerprintUsers` -> the same content, if there may be a release; otherwise the run fails.

    Privacy: see `Gate`. The noise is a keyed draw, bound to the content, so every retry has the same verdict. A key
    that was used for other data is refused before the draw. The error names no number of the data.

    Args:
        randomness: where the key is, and what the noise is bound to.
        gate: the query.
    """

    def __init__(self, randomness: Randomness, gate: Gate) -> None:
        super().__init__()
        self._randomness, self._gate = randomness, gate

    def expand(self, content: beam.PCollection[bytes]) -> beam.PCollection[bytes]:
        return content | beam.ParDo(_DecideDoFn(self._randomness, self._gate))


@beam.typehints.with_output_types(bytes)
class _DecideDoFn(KeyedDoFn):
    def __init__(self, randomness: Randomness, gate: Gate) -> None:
        super().__init__(randomness)
        self._gate = gate

    def process(self, content: bytes, window: Any = beam.DoFn.WindowParam) -> Iterator[bytes]:
        binding = self._source.bind(self.window_name(window), content[:16])
        draw = self._source.prf("gate", 0, 0, self.window_name(window), binding)  # the query before level 1
        counts = np.frombuffer(content, np.int64, offset=16).tolist()
        if self._gate.stops(counts, draw.encrypt(np.zeros((1, 2), np.uint64)), draw):
            raise TooManyBadRecords(Message.TOO_MANY_BAD_RECORDS.format(allowed=self._gate.max_bad_fraction))
        yield content

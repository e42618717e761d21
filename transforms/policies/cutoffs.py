"""What the noisy cells of one round are compared with."""

import dataclasses

import numpy as np

from dpngram.transforms.blocks.columns import Array
from dpngram.transforms.policies.selection import MAX_TALLIED
from dpngram.transforms.policies.strata import Strata
from dpngram.transforms.randomness.draws import binomial
from dpngram.transforms.randomness.noise import Noise
from dpngram.transforms.randomness.prf import Prf

__all__ = ["Cutoffs"]


@dataclasses.dataclass(frozen=True)
class Cutoffs:
    """Noise, strata, and for each stratum a floor below which nothing is released. All public."""

    noise: Noise
    strata: Strata
    size: Array  # int64: members of each stratum that are not released yet
    floor: Array  # int64, in steps of the noise's grid
    rho: float | None = None  # the one threshold, if it is known in advance: then it is the floor

    @classmethod
    def fixed(cls, noise: Noise, strata: Strata, rho: float) -> "Cutoffs":
        """One stratum, and a threshold that is known before any noise is drawn."""
        return cls(noise=noise, strata=strata, size=strata.size, floor=np.array([noise.least(rho)]), rho=rho)

    @property
    def tallied(self) -> bool:
        """Whether thresholds are chosen from tallies."""
        return self.rho is None

    def zero_cells(self, walk: Prf) -> tuple[Array, Array]:
        """Members of V_k, each with the probability that a zero cell reaches its floor: sorted keys, and strata.

        A keyed walk: the same wherever it is made. Those that some user contributed are no zero cells, and go.
        """
        return self.strata.draw(self.noise.zero_probability(self.floor), walk)

    def zeros_below(self, present: Array, above: Array, draw: Prf) -> Array:
        """How many zero cells of each stratum have noise below 0, given how many cells users have (`present`) and how
        many zero cells lie `above` the floor. A zero cell under the floor is below 0 with probability
        (1/2) / (1 - Phi(-floor)), independently: the law of noise on every cell, without the cells.
        """
        words = draw.blocks(np.arange(len(self.size), dtype=np.uint64), 0)
        chance = 0.5 / (1 - self.noise.zero_probability(self.floor))
        rest = self.size - present - above
        return np.array(
            [
                binomial(words[s : s + 1], int(rest[s]), float(chance[s])) if size <= MAX_TALLIED else 0
                for s, size in enumerate(self.size)
            ],
            np.int64,
        )

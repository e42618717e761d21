"""Per-stratum release cutoffs of one round, together with the noise they apply to."""

import dataclasses

import numpy as np

from dpngram.accounting import ParameterError
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

    def __post_init__(self) -> None:
        if self.rho is not None and len(self.floor) != 1:
            raise ParameterError("rho must be left out where there are several strata: each has its floor.")

    @classmethod
    def fixed(cls, noise: Noise, strata: Strata, rho: float) -> "Cutoffs":
        """One stratum, and a threshold that is known before any noise is drawn."""
        return cls(noise=noise, strata=strata, size=strata.size, floor=np.array([noise.least(rho)]), rho=rho)

    @property
    def tallied(self) -> bool:
        """Whether thresholds are chosen from tallies."""
        return self.rho is None

    def zero_cells(self, draw: Prf) -> tuple[Array, Array]:
        """Candidate spurious grams: sorted keys, and strata.

        Every member of V_k is taken with the probability that a cell of weight 0 reaches its floor. The draw is keyed,
        so every worker that makes it gets the same set. Members that some user contributed are not zero cells; whoever
        knows them takes them out.
        """
        return self.strata.draw(self.noise.zero_probability(self.floor), draw)

    def zeros_below(self, present: Array, above: Array, draw: Prf) -> Array:
        """Simulates, for each stratum, how many n-grams that no user has would get negative noise.

        We cannot draw noise for all of them (there may be billions), so we draw their *number* from the binomial
        distribution it would have: a zero cell under the floor is below 0 with probability (1/2) / (1 - Phi(-floor)),
        independently of all others.

        Args:
            present: how many cells of each stratum some user has.
            above: how many zero cells of each stratum reached the floor.
            draw: the keyed function for this purpose.
        """
        bits = draw.blocks(np.arange(2 * len(self.size), dtype=np.uint64), 0).reshape(-1, 4)
        chance = 0.5 / (1 - self.noise.zero_probability(self.floor))
        rest = self.size - present - above
        return np.array(
            [
                binomial(bits[s : s + 1], int(rest[s]), float(chance[s])) if size <= MAX_TALLIED else 0
                for s, size in enumerate(self.size)
            ],
            np.int64,
        )

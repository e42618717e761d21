"""What one round does with the cells of V_k: the noise, and which of them it looks at one by one.

V_k may have billions of members, most of them zero cells. A round with a *floor* for a stratum looks only at the cells
whose noisy value reaches it: users' cells that do, and the zero cells that would, which are drawn. A stratum without a
floor is looked at completely: every member gets noise under its own name.
"""

import dataclasses

import numpy as np

from dpngram.accounting import ParameterError
from dpngram.transforms.blocks.columns import Array
from dpngram.transforms.blocks.surveys import Survey
from dpngram.transforms.policies.prior import GROUP_STARTS, bins_of
from dpngram.transforms.policies.strata import Strata
from dpngram.transforms.randomness.draws import binomial
from dpngram.transforms.randomness.noise import Noise
from dpngram.transforms.randomness.prf import Prf

__all__ = ["ALL", "GROUPS", "MAX_TALLIED", "NONE", "Cells", "Cutoffs"]

ALL = np.iinfo(np.int64).min  # the floor of a stratum that is looked at completely
NONE = np.iinfo(np.int64).max  # of one that is not looked at
GROUPS = len(GROUP_STARTS)
MAX_TALLIED = 1 << 30  # larger strata are taken to be all zero cells; hardly any user's gram can matter among so many


@dataclasses.dataclass(frozen=True)
class Cutoffs:
    """Noise, strata, and for each stratum a floor below which no cell is looked at. All public."""

    noise: Noise
    strata: Strata
    floor: Array  # int64, in steps of the noise's grid; ALL, NONE
    rho: float | None = None  # the one threshold, if it is known in advance: then it is the floor
    active: Survey | None = None  # cells that are looked at in any case

    def __post_init__(self) -> None:
        if self.rho is not None and len(self.floor) != 1:
            raise ParameterError("rho must be left out where there are several strata: each has its floor.")

    @classmethod
    def fixed(cls, noise: Noise, strata: Strata, rho: float) -> "Cutoffs":
        """One stratum, and a threshold that is known before any noise is drawn."""
        return cls(noise=noise, strata=strata, floor=np.array([noise.least(rho)]), rho=rho)

    @property
    def size(self) -> Array:
        """The members of each stratum."""
        return self.strata.size

    @property
    def tallied(self) -> bool:
        """Whether the cells below the floors are counted: in groups, see `groups_of`."""
        return self.rho is None and self.active is None

    def floors_of(self, keys: Array) -> tuple[Array, Array]:
        """The stratum and the floor of each of these members of V_k."""
        stratum = self.strata.of(keys)
        least = self.floor[stratum]
        if self.active is not None:
            rows = self.active.find(keys)
            known = rows >= 0
            least[known] = ALL
            stratum[known] = self.active.stratum[rows[known]]
        return stratum, least

    def groups_of(self, noisy: Array) -> Array:
        """In which group each value below a floor is counted: below 0, up to 1, up to 2 standard deviations, beyond."""
        return np.searchsorted(bins_of(self.noise).edges[np.array(GROUP_STARTS[1:]) - 1], noisy, side="right")

    def zero_cells(self, draw: Prf) -> tuple[Array, Array]:
        """Candidate spurious grams of the strata with a floor: sorted keys, and strata.

        Every member is taken with the probability that a cell of weight 0 reaches its floor. The draw is keyed,
        so every worker that makes it gets the same set. Members that some user contributed are not zero cells; whoever
        knows them takes them out, and so are those that are looked at in any case.
        """
        has_floor = (self.floor != ALL) & (self.floor != NONE)
        return self.strata.draw(np.where(has_floor, self.noise.zero_probability(self.floor), 0.0), draw)

    def members(self) -> tuple[Array, Array]:
        """All cells that are looked at in any case, zero cells or not: sorted keys, and strata."""
        if self.active is not None:
            return self.active.keys, self.active.stratum.astype(np.int64)
        keys, strata = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
        for stratum in np.flatnonzero(self.floor == ALL):
            keys.append(self.strata.unrank(int(stratum), np.arange(self.size[stratum])))
            strata.append(np.full(len(keys[-1]), stratum))
        every = np.concatenate(keys)
        order = np.argsort(every)
        return every[order], np.concatenate(strata)[order]

    def zeros_below(self, present: Array, above: Array, draw: Prf) -> Array:
        """Simulates, for each stratum, how many n-grams that no user has would be in each group below the floor.

        We cannot draw noise for all of them (there may be billions), so we draw their *numbers* from the multinomial
        distribution they would have: group after group from the binomial distribution, given those before. Strata of
        more than 2^30 members get the expected numbers for all their members, so there users' cells do not matter.

        Args:
            present: how many cells of each stratum some user has.
            above: how many zero cells of each stratum reached the floor.
            draw: the keyed function for this purpose.
        """
        bins = bins_of(self.noise)
        counts = np.zeros((len(self.floor), GROUPS), np.int64)
        for stratum in np.flatnonzero((self.floor != ALL) & (self.size > 0)):
            floor = int(bins.of(self.floor[stratum]))
            starts = [start for start in GROUP_STARTS if start < floor]
            masses = bins.tail[starts] - bins.tail[[*starts[1:], floor]]
            if self.size[stratum] > MAX_TALLIED:
                counts[stratum, : len(masses)] = np.rint(float(self.size[stratum]) * masses)
                continue
            rest = int(self.size[stratum] - present[stratum] - above[stratum])
            bits = draw.blocks(np.arange(2 * GROUPS, dtype=np.uint64), int(stratum)).reshape(-1, 4)
            for group in range(len(masses) - 1):
                share = float(masses[group] / masses[group:].sum())
                counts[stratum, group] = binomial(bits[group : group + 1], rest, share)
                rest -= int(counts[stratum, group])
            counts[stratum, len(masses) - 1] = rest
        return counts


@dataclasses.dataclass(frozen=True)
class Cells:
    """The cells that a round looked at, users' and zero cells alike, sorted by key; and how many were below floors."""

    keys: Array
    noisy: Array  # int64, in steps
    stratum: Array
    below: Array  # strata x groups

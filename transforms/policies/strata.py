"""V_k by strata: how many members each has, which stratum a gram is in, and the member with a given rank.

A member of V_k is a pair of overlapping rows of S_{k-1}: a prefix a = xy and a suffix b = yz with the same middle y.
Each row has a bin as a prefix and one as a suffix, and the sum of the two is the stratum of the pair. Without a
prediction (policy `paper`) all bins are 0 and V_k is one stratum. Everything here is a function of the release.
"""

import numpy as np

from dpngram.transforms.blocks.columns import Array, run_starts
from dpngram.transforms.blocks.levels import Level, pack_keys, unpack_keys
from dpngram.transforms.randomness.draws import binomial, distinct_ranks
from dpngram.transforms.randomness.prf import Prf

__all__ = ["Strata"]


class Strata:
    """V_k for both-side or one-side pruning, given S_{k-1}."""

    size: Array  # int64: members of each stratum
    origin: int  # the sum of bins of the first stratum; the others follow one by one

    def __init__(self, previous: Level, pruning: str) -> None:
        self._previous, self._pruning = previous, pruning
        self.origin = 0
        if not len(previous) or pruning == "single":
            self.size = np.array([previous.valid(pruning)], np.int64)
            return
        none = np.zeros(len(previous), np.int16)
        # Small columns: a level may have millions of rows.
        self._bin_left = previous.left if previous.has_guide else none
        self._bin_right = previous.right if previous.has_guide else none
        self._join()

    def _join(self) -> None:
        """Rows in groups of one middle and bin, on both sides; pairs of groups that share the middle, by stratum."""
        left = _Groups(self._previous.suffix, self._bin_left)
        right = _Groups(self._previous.parent.astype(np.int32), self._bin_right)
        first = np.searchsorted(right.middle, left.middle, side="left")
        partners = np.searchsorted(right.middle, left.middle, side="right") - first
        mine = np.repeat(np.arange(len(left.middle), dtype=np.int32), partners)
        # The partners of a group are consecutive; each pair knows how many pairs came before its group.
        theirs = np.arange(len(mine)) + np.take(first - np.cumsum(partners) + partners, mine)
        stratum = left.bin[mine] + right.bin[theirs]
        self.origin = int(stratum.min()) if len(stratum) else 0
        order = np.argsort(stratum, kind="stable")
        self._left, self._right = left, right
        self._mine, self._theirs = mine[order], theirs[order].astype(np.int32)
        stratum = stratum[order] - np.int16(self.origin)
        strata = int(stratum[-1]) + 1 if len(stratum) else 1
        self._pair_start = np.searchsorted(stratum, np.arange(strata + 1))
        members = left.count[self._mine] * right.count[self._theirs].astype(np.int64)
        self._ends = np.cumsum(members, out=members)
        self.size = np.diff(np.append(0, self._ends)[self._pair_start])

    def of(self, keys: Array) -> Array:
        """The stratum of each of these members of V_k."""
        if len(self.size) == 1:
            return np.zeros(len(keys), np.int64)
        prefix, _ = unpack_keys(keys)
        suffix = self._previous.suffix_rows(keys)
        stratum: Array = self._bin_left[prefix] + self._bin_right[suffix] - np.int16(self.origin)
        return stratum.astype(np.int64)

    def unrank(self, stratum: int, ranks: Array) -> Array:
        """The keys of the members with these ranks in [0, size[stratum]).

        S_1 has three tokens and no prediction, so V_2 is one stratum of nine pairs:

        >>> tokens = np.arange(6, dtype=np.uint64).reshape(3, 2)
        >>> s1 = Level.first(np.arange(4), np.frombuffer(b"abc", np.uint8), tokens, np.array([9, 9, 9]), 1.0, 1.0)
        >>> keys = Strata(s1, "both").unrank(0, np.array([0, 1, 5, 8]))
        >>> [(int(key) >> 32, int(key) & 0xFFFFFFFF) for key in keys]
        [(0, 0), (0, 1), (1, 2), (2, 2)]
        """
        if not len(ranks):
            return np.zeros(0, np.uint64)
        if self._pruning == "single":
            return pack_keys(ranks // self._previous.vocabulary_size, ranks % self._previous.vocabulary_size)
        first, last = self._pair_start[stratum], self._pair_start[stratum + 1]
        before = self._ends[first - 1] if first else 0
        pair = first + np.searchsorted(self._ends[first:last], ranks + before, side="right")
        within = ranks + before - np.where(pair > 0, self._ends[pair - 1], 0)
        left, right = self._mine[pair], self._theirs[pair]
        prefix = self._left.rows[self._left.start[left] + within // self._right.count[right]]
        suffix = self._right.rows[self._right.start[right] + within % self._right.count[right]]
        return pack_keys(prefix, self._previous.last[suffix])

    def draw(self, probability: Array, prf: Prf) -> tuple[Array, Array]:
        """Members of V_k, each with the `probability` of its stratum, independently: sorted keys, and their strata.

        First how many of a stratum (binomial), then which (every set of that size alike). Including each member of V_k
        and then dropping those that some user contributed has exactly the law of Algorithm 1, which draws noise for
        every member that nobody contributed.
        """
        keys, strata = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
        for stratum, (size, chance) in enumerate(zip(self.size.tolist(), probability.tolist(), strict=True)):
            if size and chance > 0:
                count = binomial(prf.blocks(np.arange(2, dtype=np.uint64), 2 * stratum + 1).reshape(1, 4), size, chance)
                keys.append(self.unrank(stratum, distinct_ranks(size, count, prf, 2 * stratum)))
                strata.append(np.full(len(keys[-1]), stratum))
        drawn = np.concatenate(keys)
        order = np.argsort(drawn)
        return drawn[order], np.concatenate(strata)[order]


class _Groups:
    """Rows grouped by (middle, bin), in that order."""

    def __init__(self, middle: Array, bins: Array) -> None:
        # One sort of both, packed; bins are moved to be non-negative.
        packed = (middle.astype(np.int64) << 16) | (bins.astype(np.int64) + (1 << 15))
        order = np.argsort(packed, kind="stable")
        packed = packed[order]
        self.rows = order.astype(np.int32)
        self.start = np.flatnonzero(run_starts(packed)).astype(np.int32)
        self.count = np.diff(np.append(self.start, np.int32(len(packed))))
        packed = packed[self.start]
        self.middle, self.bin = (packed >> 16).astype(np.int32), ((packed & 0xFFFF) - (1 << 15)).astype(np.int16)

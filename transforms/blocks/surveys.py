"""What the rounds of a level have found out so far about the cells of V_k that may still be released.

Users' cells and zero cells are in one list, sorted by key, and nothing tells them apart. All of it is a function of
noisy values on all of V_k and of earlier releases: as public as the release.
"""

import dataclasses
import functools
import hashlib

import numpy as np

from dpngram.transforms.blocks.cells import hash_keys
from dpngram.transforms.blocks.columns import Array, Block, empty_column, find_keys, register_block

__all__ = ["EMPTY_SURVEY", "Survey", "name_after", "name_of"]

_MOST_HASHED = 1 << 20  # larger surveys are searched: their slots would not fit a processor's cache


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class Survey(Block):
    """Cells that may still be released (*active* cells), and how the next rounds weigh them.

    The survey makes it, the second look adds columns and drops those that only it needs. `Level` follows from it.
    """

    keys: Array = empty_column(np.uint64)  # sorted, distinct
    guide: Array = empty_column(np.uint16)  # lambda_2 of each cell, in units of 2^-12; 0: it is certain already
    counted: int = 0  # 1: the level has a count
    rest_guide: int = 0  # lambda_2 of all cells that are not active
    name: int = 0  # names all that the next query depends on, see `name_of`
    floor: Array = empty_column(np.int64)  # the first active bin of each stratum; 0: all its cells are active

    # From the survey to the second look, one per cell:
    noisy: Array = empty_column(np.int64)  # in steps of the noise's grid
    stratum: Array = empty_column(np.int16)
    # and one per stratum:
    size: Array = empty_column(np.int64)  # members of V_k
    guide_by_stratum: Array = empty_column(np.uint16)  # lambda_1
    guide_by_bin: Array = empty_column(np.uint16, shape=(0, 0))  # lambda_2, strata x bins
    zeros: Array = empty_column(np.float64)  # about how many members are zero cells
    certainty: Array = empty_column(np.float64)  # from how many cells that is known
    prior: Array = empty_column(np.float64, shape=(0, 0))  # strata x heights, see policies/prior.py

    # From the second look on, one per cell:
    rank: Array = empty_column(np.uint16)  # the smaller, the surer; see policies/ranking.py
    weight: Array = empty_column(np.int64)  # to publish, in steps
    # and one per rank:
    reached: Array = empty_column(np.int64)  # cells of this rank and below
    expected: Array = empty_column(np.float64)  # at most so many of them are expected to be zero cells
    cut: int = -1  # the last rank to release if there is no count; -1: nothing
    count_sigma: float = 0.0  # the noise of the count

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, keys: Array) -> Array:
        """The row of each key, int32; -1 where it is not active. For many blocks of users twice as fast as `find_keys`.

        A key's hash names a slot, and a slot has one row. What is not there, but whose slot is taken, is searched for.
        """
        if not 0 < len(self) <= _MOST_HASHED:
            return find_keys(self.keys, keys)
        rows = np.take(self._slots, _slots_of(keys, len(self._slots)))
        doubtful = np.flatnonzero((rows >= 0) & (np.take(self.keys, rows) != keys))
        rows[doubtful] = find_keys(self.keys, keys[doubtful])
        return rows

    @functools.cached_property
    def _slots(self) -> Array:
        """For each hash a row with it, -1 where there is none. Two to four slots for a row."""
        slots = np.full(1 << (2 * len(self)).bit_length(), -1, np.int32)
        slots[_slots_of(self.keys, len(slots))] = np.arange(len(self), dtype=np.int32)
        return slots


def _slots_of(keys: Array, slots: int) -> Array:
    """The slot of each key, by the first bits of its hash. Signed, as numpy 1.26 wants the places of `take`."""
    place: Array = (hash_keys(keys) >> np.uint64(65 - slots.bit_length())).view(np.int64)
    return place


def name_of(*parts: Array | int | float) -> int:
    """A name of 63 bits, not 0, for these columns and numbers.

    The noise of a round is drawn under the name of everything that its query depends on: which cells there are, and how
    users weigh them. If a step is repeated on another processor, whose exponential differs in the last bit, there are
    two cases. The integers that decide about the next query are the same: then the name and the noise are, too. Or one
    of them differs: then the next query is another one, and must not have the same noise.
    """
    digest = hashlib.sha256()
    for part in parts:
        data = part.tobytes() if isinstance(part, np.ndarray) else float(part).hex().encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return (int.from_bytes(digest.digest()[:8], "little") >> 1) | 1


def name_after(past: int, name: int) -> int:
    """The name of what has this name by itself and went on from `past`.

    What users have left depends on all that they have given, and so on everything that was found before: two runs may
    release the same S_k after surveys that differ in one weight, and their next queries differ.
    """
    return name_of(np.array([past, name], np.uint64))


EMPTY_SURVEY = Survey()

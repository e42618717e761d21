"""Policy `plus`: one threshold for each stratum, chosen from noisy tallies.

Privacy: everything here is a function of noisy values on all of V_k and of earlier releases, so any choice is
post-processing. Only the share of spurious grams depends on it.
"""

import functools

import numpy as np
from scipy import special

from dpngram.transforms.blocks.columns import Array
from dpngram.transforms.randomness.noise import Noise

__all__ = ["MAX_TALLIED", "choose_thresholds", "floors", "threshold_grid", "zero_cell_bound"]

_PER_SIGMA = 20  # thresholds are tried every 0.05 standard deviations
_LOWEST, _HIGHEST = 10, 139  # 0.5 and 6.95
_MOST_WANTED = 1 << 16  # zero cells of one stratum; with eta = 0.01 that is a bound from |S_{k-1}| = 330,000 on
MAX_TALLIED = 1 << 30  # larger strata are taken to be all zero cells; hardly any user's gram can matter among so many


@functools.lru_cache(maxsize=16)
def threshold_grid(noise: Noise) -> Array:
    """The thresholds that are tried, in steps of the noise's grid; the last one releases nothing."""
    tried = [noise.least(noise.sigma * place / _PER_SIGMA) for place in range(_LOWEST, _HIGHEST + 1)]
    grid = np.array([*tried, np.iinfo(np.int64).max], np.int64)
    grid.setflags(write=False)
    return grid


def floors(noise: Noise, size: Array, previous: int, eta: float) -> Array:
    """For each stratum a value, in steps, below which no threshold will be chosen; set before anything is drawn.

    About max(20 eta |S_{k-1}|, 50) zero cells of the stratum are above it: enough to choose well, few enough to draw.
    About 2^16 at most, whatever `eta` and the level are, or a level could be many times as large as the last. That is
    the number expected before the floor is rounded down to a place of the grid, which makes it up to 1.5 times as
    large; and no floor is above 6.9, so in strata of more than 2.5e16 cells more are expected: Phi(-6.9) of them.
    """
    wanted = min(max(20 * eta * previous, 50), _MOST_WANTED)
    z = special.ndtri(1 - np.minimum(0.4, wanted / np.maximum(size, 1)))
    place = np.floor(np.clip(z, _LOWEST / _PER_SIGMA, 6.9) * _PER_SIGMA + 1e-6).astype(np.int64)
    return threshold_grid(noise)[place - _LOWEST]


def zero_cell_bound(size: Array, below: Array) -> Array:
    """At most this many zero cells: half of them have noise below 0, so twice those, and some for chance."""
    bound = np.minimum(size, 2 * below + 2 * np.sqrt(below) + 1)
    return np.where(size > MAX_TALLIED, size, bound)


def choose_thresholds(noise: Noise, floor: Array, zeros: Array, stratum: Array, noisy: Array, eta: float) -> Array:
    """Thresholds, in steps, that release many cells, at most `eta` of them expected to be zero cells.

    R_s(z) cells of stratum s reach z, and at most C_s(z) = zeros_s * Phi(-z) of them are expected to be zero cells.
    To make sum R large under sum C <= eta * sum R every stratum takes the z that maximises R_s - L * C_s, for one
    multiplier L in [0, 1/eta], the smallest that keeps the bound: bisected. Among equals the higher threshold is taken.
    """
    grid = threshold_grid(noise)
    reached = np.zeros((len(floor), len(grid)))
    np.add.at(reached, (stratum, np.searchsorted(grid, noisy, side="right") - 1), 1)
    reached = np.cumsum(reached[:, ::-1], axis=1)[:, ::-1]
    tail = noise.zero_probability(grid)
    tail[-1] = 0.0
    reached[:, -1] = 0.0
    spurious = zeros[:, None] * tail[None, :]
    barred = grid[None, :] < floor[:, None]
    rows = np.arange(len(floor))

    def best(multiplier: float) -> Array:
        score = np.where(barred, -np.inf, reached - multiplier * spurious)
        places: Array = len(grid) - 1 - np.argmax(score[:, ::-1], axis=1)
        return places

    low, high = 0.0, 1 / eta  # at 1/eta no stratum is chosen at a loss
    for _ in range(40):
        middle = (low + high) / 2
        places = best(middle)
        if spurious[rows, places].sum() <= eta * reached[rows, places].sum():
            high = middle
        else:
            low = middle
    chosen: Array = grid[best(high)]
    return chosen

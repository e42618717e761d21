"""Floors and thresholds of strata, from tallies."""

import numpy as np
import pytest

from dpngram.transforms.policies.selection import (
    MAX_TALLIED,
    choose_thresholds,
    floors,
    threshold_grid,
    zero_cell_bound,
)
from dpngram.transforms.randomness.noise import Noise

NOISE = Noise(2.0)


def test_the_grid_ascends_and_ends_where_nothing_is_released():
    grid = threshold_grid(NOISE)
    assert (np.diff(grid) > 0).all()
    assert grid[0] == NOISE.least(1.0)  # half a standard deviation
    assert grid[-1] == np.iinfo(np.int64).max


def test_about_as_many_zero_cells_as_wanted_lie_above_a_floor():
    """At least those, and up to what lies within one step of the grid, 0.05 deviations."""
    size = np.array([0, 10, 1000, 10**6, 10**9])
    floor = floors(NOISE, size, 1000, 0.01)
    expected = size * NOISE.zero_probability(floor)
    wanted = 20 * 0.01 * 1000
    assert np.isin(floor, threshold_grid(NOISE)).all()
    assert (np.diff(floor) >= 0).all()
    assert (expected[2:] >= 0.99 * wanted).all()
    assert (expected[2:] < 1.5 * wanted).all()
    assert floor[0] == floor[1] == threshold_grid(NOISE)[0]  # too few to want more of them: the lowest of the grid


def test_a_bound_on_zero_cells():
    assert zero_cell_bound(np.array([100, 100]), np.array([0, 9])).tolist() == [1, 25]
    assert zero_cell_bound(np.array([20]), np.array([9])).tolist() == [20]  # never more than there are
    assert zero_cell_bound(np.array([MAX_TALLIED + 1]), np.array([0])).tolist() == [MAX_TALLIED + 1]  # all


@pytest.mark.parametrize("eta", [0.01, 0.2])
def test_thresholds_keep_the_share_of_zero_cells(eta):
    """Two strata: one of users' cells alone, which is released whole; one with zero cells, which is cut."""
    floor = np.repeat(threshold_grid(NOISE)[:1], 2)
    values = np.linspace(0.6, 8, 200) * NOISE.sigma
    noisy = np.array([NOISE.least(value) for value in values])
    stratum = np.zeros(200, np.int64)
    zeros = np.array([0, 10_000])
    chosen = choose_thresholds(NOISE, floor, zeros, np.append(stratum, stratum + 1), np.append(noisy, noisy), eta)
    reached = [(noisy >= least).sum() for least in chosen]
    assert reached[0] == 200
    assert 0 < reached[1] < 200
    assert zeros[1] * NOISE.zero_probability(chosen)[1] <= eta * sum(reached)
    lower = threshold_grid(NOISE)[np.searchsorted(threshold_grid(NOISE), chosen[1]) - 5]
    assert zeros[1] * NOISE.zero_probability(lower) > eta * (200 + (noisy >= lower).sum())  # not much lower


def test_a_floor_is_kept():
    floor = threshold_grid(NOISE)[[60, 60]]
    noisy = np.full(50, NOISE.least(9.0))
    chosen = choose_thresholds(NOISE, floor, np.zeros(2), np.zeros(50, np.int64), noisy, 0.1)
    assert (chosen >= floor).all()
    assert chosen[1] == threshold_grid(NOISE)[-1]  # nothing there: among equals the highest

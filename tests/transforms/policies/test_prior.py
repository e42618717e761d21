"""Bins of noisy values, the law of heights, and what it says of a cell: against slow loops."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dpngram.transforms.policies.prior import BINS, GROUP_STARTS, HEIGHTS, bins_of, fit_prior, weigh_evidence
from dpngram.transforms.randomness.noise import Noise

SIGMAS = [2.0**-28, 0.48, 2.0, 1e5]


@pytest.mark.parametrize("sigma", SIGMAS)
def test_edges_of_bins(sigma):
    """An edge is the first step of its bin; edges are eighths of a standard deviation, rounded up to a step."""
    noise = Noise(sigma)
    bins = bins_of(noise)
    assert len(bins.edges) == BINS - 1 == 89
    assert bins.of(bins.edges).tolist() == list(range(1, BINS))
    assert bins.of(bins.edges - 1).tolist() == list(range(BINS - 1))
    assert bins.of(np.array([-(2**62), 2**62])).tolist() == [0, BINS - 1]
    places = np.arange(-24, 65) / 8
    step = noise.grid / sigma
    assert (noise.bound(bins.edges) >= places - 1e-12).all()
    assert (noise.bound(bins.edges) < places + step + 1e-12).all()
    assert bins.edges[GROUP_STARTS[1] - 1] == 0
    assert [round(float(noise.bound(bins.edges[start - 1]))) for start in GROUP_STARTS[1:]] == [0, 1, 2]
    lower, upper = noise.bound(bins.edges[:-1]), noise.bound(bins.edges[1:])
    assert ((lower < bins.centre[1:-1]) & (bins.centre[1:-1] < upper)).all()
    assert bins.centre[0] < noise.bound(bins.edges[0])
    assert bins.centre[-1] > noise.bound(bins.edges[-1])


@pytest.mark.parametrize("sigma", SIGMAS)
def test_masses_sum_to_one(sigma):
    noise = Noise(sigma)
    bins = bins_of(noise)
    edges = [-math.inf, *noise.bound(bins.edges), math.inf]
    assert bins.mass.sum() == pytest.approx(1, abs=1e-12)
    assert (bins.mass > 0).all()
    assert bins.tail[0] == 1
    assert bins.tail == pytest.approx(stats.norm.sf(edges[:-1]), rel=1e-9)
    assert bins.tail == pytest.approx(np.cumsum(bins.mass[::-1])[::-1], rel=1e-9, abs=1e-15)
    assert bins.likelihood.sum(axis=1) == pytest.approx(np.ones(len(HEIGHTS)), abs=1e-12)
    for row, height in enumerate(HEIGHTS):
        for place, (low, high) in enumerate(itertools.pairwise(edges)):
            direct = abs(
                stats.norm.sf(low - height) - stats.norm.sf(high - height)
                if low > height
                else stats.norm.cdf(high - height) - stats.norm.cdf(low - height)
            )
            assert bins.likelihood[row, place] == pytest.approx(direct, rel=1e-6, abs=1e-300)


def slow_prior(bins, counts, floor, steps=150):
    """EM for one stratum, value by value: groups below the floor are one value each."""
    starts = [start for start in GROUP_STARTS if start < floor]
    ranges = [(a, b) for a, b in zip(starts, [*starts[1:], floor], strict=True)] if floor else []
    ranges += [(place, place + 1) for place in range(floor, BINS)]
    prior = [0.7] + [0.3 / 24] * 24
    for _ in range(steps):
        fresh = [0.0] * 25
        for a, b in ranges:
            if counts[a]:
                joint = [prior[h] * float(bins.likelihood[h, a:b].sum()) for h in range(25)]
                for h in range(25):
                    fresh[h] += counts[a] * joint[h] / sum(joint)
        prior = [value / sum(fresh) for value in fresh]
    return prior


def test_the_law_of_heights_against_a_slow_loop():
    bins = bins_of(Noise(2.0))
    random = np.random.default_rng(1)
    floors = np.array([0, 25, 30, 41, 60])
    counts = np.zeros((5, BINS), np.int64)
    for row, floor in enumerate(floors):
        heights = np.repeat([0.0, 1.5, 6.0], [3000, 60, 20])
        place = bins.of(np.floor((heights + random.standard_normal(len(heights))) * 2.0**14).astype(np.int64))
        below = place < floor
        group = np.searchsorted(GROUP_STARTS, place[below], side="right") - 1
        place[below] = np.array(GROUP_STARTS)[group]
        counts[row] = np.bincount(place, minlength=BINS)
    prior = fit_prior(bins, counts, floors)
    assert prior.sum(axis=1) == pytest.approx(np.ones(5), abs=1e-12)
    assert (prior >= 0).all()
    for row, floor in enumerate(floors):
        assert prior[row] == pytest.approx(slow_prior(bins, counts[row], int(floor)), rel=1e-6, abs=1e-12)
    # It knows about how much is not a zero cell: 80 of 3,080, of mean height 2.6.
    assert (prior @ HEIGHTS) * 3080 == pytest.approx(np.full(5, 210), rel=0.5)


def test_a_stratum_without_cells_has_a_law_too():
    prior = fit_prior(bins_of(Noise(2.0)), np.zeros((2, BINS), np.int64), np.array([0, 40]))
    assert np.isfinite(prior).all()


def test_evidence_against_direct_sums():
    random = np.random.default_rng(2)
    prior = random.dirichlet(np.ones(25), 3)
    value = random.normal(2, 4, (3, 5))
    precision = random.uniform(0.1, 30, (3, 1))
    evidence = weigh_evidence(prior, value, precision)
    for stratum in range(3):
        for place in range(5):
            parts = [
                g * math.exp(min(h * value[stratum, place] - h * h * precision[stratum, 0] / 2, 600))
                for g, h in zip(prior[stratum], HEIGHTS, strict=True)
            ]
            assert evidence.ratio[stratum, place] == pytest.approx(sum(parts), rel=1e-9)
            mean = sum(h * part for h, part in zip(HEIGHTS, parts, strict=True)) / sum(parts)
            assert evidence.height[stratum, place] == pytest.approx(mean, rel=1e-9)


def test_evidence_of_extreme_values_is_finite():
    """Nothing overflows, and no cell is so unlikely that its rate cannot be written."""
    prior = np.zeros((2, 25))
    prior[0, 24] = prior[1, 0] = 1.0
    evidence = weigh_evidence(prior, np.array([[-1e6, 0.0, 1e6]] * 2), np.ones((2, 3)))
    assert np.isfinite(evidence.ratio).all()
    assert (evidence.ratio > 0).all()
    assert np.isfinite(evidence.height).all()
    assert evidence.ratio[1].tolist() == [1.0] * 3

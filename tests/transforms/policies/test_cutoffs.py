"""Zero cells that are drawn have the law of noise on cells that nobody contributed to."""

import math

import numpy as np
import pytest
from helpers.levels import first_level
from scipy import special, stats

from dpngram.accounting import ParameterError
from dpngram.transforms.blocks.levels import EMPTY_LEVEL
from dpngram.transforms.blocks.surveys import Survey
from dpngram.transforms.policies.cutoffs import ALL, GROUPS, MAX_TALLIED, NONE, Cutoffs
from dpngram.transforms.policies.guide import predict
from dpngram.transforms.policies.prior import bins_of
from dpngram.transforms.policies.strata import Strata
from dpngram.transforms.randomness.noise import Noise
from dpngram.transforms.randomness.prf import Prf

NOISE = Noise(2.0)


def three_strata():
    """V_2 of 20 words, in strata of several sizes, some of them empty."""
    return Strata(predict(first_level(20), EMPTY_LEVEL, 1.0), "both")


class Sizes:
    """Strata of which only the sizes are known."""

    def __init__(self, size):
        self.size = np.asarray(size)


def test_zero_cells_follow_the_law_of_noise():
    """Of 90,000 zero cells as many reach the threshold as noise would carry there, with the weights that it would give.

    Flake rate below 1e-6 for each, if the keys were random; they are fixed, so the outcome is too.
    """
    noise, level = Noise(2.0), first_level(300)
    cut = Cutoffs.fixed(noise, Strata(level, "both"), 3.0)
    p = float(special.ndtr(-float(cut.floor[0]) * noise.grid / noise.sigma))
    keys, stratum = cut.zero_cells(Prf(b"z" * 32))
    assert abs(len(keys) - 90_000 * p) < stats.norm.isf(5e-7) * math.sqrt(90_000 * p * (1 - p))
    prf = Prf(b"w" * 32)
    steps = noise.zero_cells(prf.blocks(keys, 0), cut.floor[stratum], prf)
    assert (steps >= cut.floor[0]).all()
    assert stats.kstest(stats.norm.sf((steps + 0.5) * noise.grid / noise.sigma) / p, "uniform").pvalue > 1e-6


def test_only_strata_with_a_floor_have_zero_cells():
    """Each stratum by its own floor; none where all cells are looked at, or none."""
    strata = three_strata()
    assert len(strata.size) >= 3
    large = np.argsort(strata.size)[-3:]
    floor = np.full(len(strata.size), NONE)
    floor[large] = [ALL, NOISE.least(0.0), NOISE.least(2.0)]
    cut = Cutoffs(NOISE, strata, floor)
    drawn = np.zeros(len(floor))
    for run in range(200):
        keys, stratum = cut.zero_cells(Prf(run.to_bytes(32, "little")))
        assert (np.diff(keys.astype(object)) > 0).all()
        assert strata.of(keys).tolist() == stratum.tolist()
        drawn += np.bincount(stratum, minlength=len(floor))
    chance = np.zeros(len(floor))
    chance[large[1:]] = special.ndtr([0.0, -1.0])
    # Five standard errors of a binomial, for two strata: with random keys 1.2e-6 would fail.
    error = 5 * np.sqrt(200 * strata.size * chance * (1 - chance))
    assert (np.abs(drawn - 200 * strata.size * chance) <= error + 0.05 * (chance > 0)).all()


@pytest.mark.parametrize("floor", [0.0, 0.5, 1.0, 1.75, 2.5])
def test_zero_cells_below_the_floor_are_multinomial(floor):
    """Of 42 zero cells under the floor each group has as many as noise would put there; chi-square of each group.

    1,500 strata; correlations of groups show that they are drawn from one sum. The key is fixed, so the outcome is too;
    with a random one the flake rate would be below 1e-5.
    """
    strata = 1500
    least = np.full(strata, NOISE.least(2 * floor))
    cut = Cutoffs(noise=NOISE, strata=Sizes(np.full(strata, 60)), floor=least)
    below = cut.zeros_below(np.full(strata, 10), np.full(strata, 8), Prf(b"b" * 32))
    assert below.shape == (strata, GROUPS)
    assert (below.sum(axis=1) == 42).all()
    edges = [0.0, *(z for z in (1.0, 2.0) if z < floor), floor] if floor else [0.0]
    masses = np.diff([0.0, *special.ndtr(edges)]) / special.ndtr(floor)
    assert (below[:, len(masses) :] == 0).all()
    for group, mass in enumerate(masses):
        law = stats.binom(42, mass)
        bounds = np.unique(law.ppf([0.05, 0.2, 0.4, 0.6, 0.8, 0.95]))
        expected = strata * np.diff([0.0, *law.cdf(bounds), 1.0])
        observed = np.bincount(np.searchsorted(bounds, below[:, group]), minlength=len(bounds) + 1)
        used = expected > 5
        assert (observed[~used] <= 30).all()
        statistic = ((observed - expected)[used] ** 2 / expected[used]).sum()
        assert statistic < stats.chi2.isf(1e-6, max(used.sum() - 1, 1))
    if len(masses) > 2:
        share = masses[0] / (1 - masses[0]) * masses[1] / (1 - masses[1])
        found = np.corrcoef(below[:, 0], below[:, 1])[0, 1]
        assert abs(found + math.sqrt(share)) < stats.norm.isf(5e-7) / math.sqrt(strata)


def test_strata_too_large_for_a_tally_have_expected_numbers():
    """Whatever users have: neither their cells nor the key changes them."""
    cut = Cutoffs(NOISE, Sizes([MAX_TALLIED + 1, MAX_TALLIED]), np.full(2, NOISE.least(3.0)))
    none, some = np.zeros(2, np.int64), np.array([1000, 0])
    one, other = (cut.zeros_below(*users, Prf(b"k" * 32)) for users in ((none, none), (some, some)))
    assert one[0].tolist() == other[0].tolist()
    edges = special.ndtr([0.0, 1.0, 1.5])
    assert one[0].tolist() == pytest.approx([*np.diff([0, *edges]) * (MAX_TALLIED + 1), 0.0], rel=1e-3)
    assert one[1].sum() == MAX_TALLIED
    assert cut.zeros_below(none, none, Prf(b"l" * 32))[0].tolist() == one[0].tolist()
    assert cut.zeros_below(none, none, Prf(b"l" * 32))[1].tolist() != one[1].tolist()


def test_groups_of_values():
    """Below 0, up to 1, up to 2 standard deviations, beyond: an edge belongs to the group above it."""
    cut = Cutoffs(NOISE, Sizes([1]), np.array([NOISE.least(6.0)]))
    edges = [NOISE.least(z * NOISE.sigma) for z in (0, 1, 2)]
    for group, edge in enumerate(edges):
        assert cut.groups_of(np.array([edge - 1, edge, edge + 1])).tolist() == [group, group + 1, group + 1]


def test_members_are_all_cells_of_strata_without_a_floor():
    strata = three_strata()
    every = np.sort(np.concatenate([strata.unrank(s, np.arange(n)) for s, n in enumerate(strata.size)]))
    assert len(every) == 400
    floor = np.full(len(strata.size), NOISE.least(1.0))
    floor[np.argsort(strata.size)[-2:]] = ALL
    keys, stratum = Cutoffs(NOISE, strata, floor).members()
    assert keys.tolist() == every[floor[strata.of(every)] == ALL].tolist()
    assert stratum.tolist() == strata.of(keys).tolist()
    assert 0 < len(keys) < 400
    keys, stratum = Cutoffs(NOISE, strata, np.full(len(floor), NOISE.least(1.0))).members()
    assert len(keys) == len(stratum) == 0


def test_active_cells_are_looked_at_in_any_case():
    """Whatever the floor of their stratum is: they have none, and they are the members. Others keep their floors."""
    strata = three_strata()
    every = np.sort(np.concatenate([strata.unrank(s, np.arange(n)) for s, n in enumerate(strata.size)]))
    active = Survey(keys=every[::7], stratum=strata.of(every[::7]).astype(np.int16))
    floor = NOISE.least(1.0) + np.arange(len(strata.size))
    cut = Cutoffs(NOISE, strata, floor, active=active)
    assert not cut.tallied
    stratum, least = cut.floors_of(every)
    assert stratum.tolist() == strata.of(every).tolist()
    assert (least[::7] == ALL).all()
    others = np.arange(len(every)) % 7 > 0
    assert least[others].tolist() == floor[strata.of(every[others])].tolist()
    assert cut.members()[0].tolist() == active.keys.tolist()
    assert cut.members()[1].tolist() == active.stratum.tolist()
    # Without strata only active cells are looked at, and they keep the strata that the survey knows.
    closed = Cutoffs(NOISE, Strata(EMPTY_LEVEL, "both"), np.array([NONE]), active=active)
    stratum, least = closed.floors_of(every)
    assert least.tolist() == np.where(others, NONE, ALL).tolist()
    assert stratum[~others].tolist() == active.stratum.tolist()
    assert len(closed.zero_cells(Prf(b"z" * 32))[0]) == 0


def test_a_fixed_threshold_is_for_one_stratum():
    with pytest.raises(ParameterError, match="rho must be left out"):
        Cutoffs(NOISE, three_strata(), np.zeros(2, np.int64), rho=1.0)
    assert not Cutoffs.fixed(NOISE, Sizes([5]), 1.0).tallied
    assert Cutoffs(NOISE, Sizes([5]), np.array([ALL])).tallied
    assert bins_of(NOISE) is bins_of(Noise(2.0))

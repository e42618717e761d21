"""Ranks of cells, and where the ranking is cut: on small arrays that are made by hand."""

import dataclasses
import math

import numpy as np
import pytest

from dpngram.transforms.blocks.surveys import Survey
from dpngram.transforms.policies import ranking
from dpngram.transforms.policies.cutoffs import GROUPS, Cells
from dpngram.transforms.policies.guide import GUIDE_UNIT
from dpngram.transforms.policies.prior import BINS, bins_of
from dpngram.transforms.policies.ranking import choose_cut, in_zone, make_survey, rank_cells
from dpngram.transforms.randomness.noise import Noise

NOISE = Noise(2.0)
SHARES = (0.4, 0.52, 0.08)
ETA = 0.05
ZONE, LAST = (math.ceil(32 * math.log(rate * 1e12)) for rate in (0.01, 0.25))


def steps(z):
    """Values in standard deviations, in steps."""
    return np.floor(np.asarray(z) * NOISE.sigma / NOISE.grid).astype(np.int64)


def first_values(seed=1, floor=40, doubtful=60):
    """Two strata: one of 900 cells that are all looked at, one of 5,000 with a floor. Some of their cells are high."""
    random = np.random.default_rng(seed)
    size = np.array([900, 5000])
    noisy, stratum, below = [], [], np.zeros((2, GROUPS), np.int64)
    first, second = np.repeat([0, 3.0, 9], [840 - doubtful, doubtful, 60]), np.repeat([0, 4.0], [4950, 50])
    for place, heights in enumerate((first, second)):
        values = steps(heights + random.standard_normal(len(heights)))
        if place:
            low = bins_of(NOISE).of(values) < floor
            below[1] = np.bincount(np.searchsorted(steps([0, 1, 2]), values[low], side="right"), minlength=GROUPS)
            values = values[~low]
        noisy.append(values)
        stratum.append(np.full(len(values), place))
    noisy, stratum = np.concatenate(noisy), np.concatenate(stratum)
    order = random.permutation(len(noisy))  # keys say nothing
    keys = np.arange(len(noisy), dtype=np.uint64) * np.uint64(3)
    return Cells(keys=keys, noisy=noisy[order], stratum=stratum[order], below=below), size, np.array([0, floor])


def survey_of(cells, size, floor, eta=ETA, shares=SHARES):
    return make_survey(NOISE, cells, size, floor, np.array([GUIDE_UNIT, 2500], np.uint16), eta, shares)


def second_values(survey, seed=2):
    """Each active cell as high as before, more or less, with fresh noise."""
    random = np.random.default_rng(seed)
    height = np.where(survey.noisy > steps(2.5), survey.noisy, 0)
    noisy = height + steps(random.standard_normal(len(survey)))
    stratum = survey.stratum.astype(np.int64)
    return Cells(keys=survey.keys, noisy=noisy, stratum=stratum, below=np.zeros((1, GROUPS), np.int64))


def ranked(eta=ETA, seed=1):
    survey = survey_of(*first_values(seed), eta=eta)
    return survey, rank_cells(NOISE, survey, second_values(survey), np.full(2, BINS), eta, SHARES[:2])


def test_ranks_are_rounded_up():
    """A rank is never better than the rate: rates up to exp(rank / 32) * 1e-12."""
    rates = np.concatenate([np.geomspace(1e-12, 1, 5000), [0.0, 1e-300, 0.25, np.nextafter(0.25, 1), 2.0]])
    ranks = ranking._ranks(rates)
    clipped = np.clip(rates, 1e-12, 1)
    assert (np.exp(ranks / 32) * 1e-12 >= clipped * (1 - 1e-12)).all()
    assert (np.exp((ranks - 1) / 32) * 1e-12 < clipped * (1 + 1e-12)).all()
    assert ranks.min() == 0
    assert ranks.max() == math.ceil(32 * math.log(1e12)) < 2**16
    assert (ranking._rank(0.01), ranking._rank(0.25)) == (ZONE, LAST)


def test_the_survey_is_a_table_over_strata_and_bins():
    """Cells of one stratum and bin have the same guide, and zero if their rate is below 0.001."""
    cells, size, floor = first_values()
    survey = survey_of(cells, size, floor)
    place = bins_of(NOISE).of(cells.noisy)
    assert survey.guide.tolist() == survey.guide_by_bin[cells.stratum, place].tolist()
    assert survey.guide_by_bin.shape == (2, BINS)
    assert (survey.guide[cells.noisy > steps(8)] == 0).all()
    assert (survey.guide[cells.noisy < steps(1)] >= 1).all()
    assert survey.guide.max() <= GUIDE_UNIT
    assert survey.keys.tolist() == cells.keys.tolist()
    assert survey.noisy.tolist() == cells.noisy.tolist()
    # Half of the zero cells are below 0: of stratum 0 about 390 cells, of stratum 1 about 2,475.
    negative = [(cells.noisy[cells.stratum == 0] < 0).sum(), cells.below[1, 0]]
    assert survey.certainty.tolist() == [count + 1 for count in negative]
    assert survey.zeros.tolist() == [min(2 * count + 1, n) for count, n in zip(negative, size, strict=True)]


def test_a_level_is_counted_if_it_is_large_and_doubtful():
    cells, size, floor = first_values(doubtful=200)
    few = survey_of(cells, size, floor, eta=0.001)
    many = survey_of(cells, size, floor, eta=0.2)
    assert few.counted == 0
    assert many.counted == 1
    assert many.rest_guide == 0
    # Nearly all cells certain or hopeless: no count, and cells that are not active have a chance.
    clear = np.concatenate([np.full(500, steps(20)), steps(np.random.default_rng(3).standard_normal(400))])
    sure = Cells(np.arange(900, dtype=np.uint64), clear, np.zeros(900, np.int64), np.zeros((1, GROUPS), np.int64))
    survey = make_survey(NOISE, sure, np.array([900]), np.array([0]), np.array([4096], np.uint16), 0.2, SHARES)
    assert (survey.counted, survey.rest_guide) == (0, 1)


def test_the_order_of_cells_changes_nothing():
    """Keys only name cells: other names for the same values give every value the same guide, rank and weight."""
    cells, size, floor = first_values()
    survey = survey_of(cells, size, floor)
    second = second_values(survey)
    found = rank_cells(NOISE, survey, second, np.full(2, BINS), ETA, SHARES[:2])
    order = np.random.default_rng(7).permutation(len(cells.keys))
    moved = dataclasses.replace(cells, noisy=cells.noisy[order], stratum=cells.stratum[order])
    other = survey_of(moved, size, floor)
    assert other.guide.tolist() == survey.guide[order].tolist()
    assert (other.counted, other.rest_guide) == (survey.counted, survey.rest_guide)
    again = dataclasses.replace(second, noisy=second.noisy[order], stratum=second.stratum[order])
    others = rank_cells(NOISE, other, again, np.full(2, BINS), ETA, SHARES[:2])
    assert others.rank.tolist() == found.rank[order].tolist()
    assert others.weight.tolist() == found.weight[order].tolist()
    assert (others.cut, others.count_sigma) == (found.cut, found.count_sigma)
    assert others.reached.tolist() == found.reached.tolist()
    assert others.expected.tolist() == found.expected.tolist()


def test_cells_of_one_class_have_one_rank():
    """The rank is a function of the stratum and both bins: a tie is released whole or not at all."""
    survey, found = ranked()
    second = second_values(survey)
    place = bins_of(NOISE)
    ranks = {}
    for name in zip(survey.stratum, place.of(survey.noisy), place.of(second.noisy), found.rank, strict=True):
        ranks.setdefault(name[:3], set()).add(int(name[3]))
    assert all(len(mine) == 1 for mine in ranks.values())
    assert len(ranks) < len(found) - 100  # there are ties
    assert found.reached.tolist() == [(found.rank <= rank).sum() for rank in range(LAST + 1)]
    released = found.rank <= choose_cut(found, None, ETA)
    assert 100 < released.sum() < 250
    for rank in np.unique(found.rank):
        assert len(set(released[found.rank == rank].tolist())) == 1


def test_higher_values_are_surer():
    survey, found = ranked()
    second = second_values(survey)
    sure, hopeless = (survey.noisy > steps(6)) & (second.noisy > steps(6)), (second.noisy < 0) & (survey.noisy < 0)
    assert found.rank[sure].max() < found.rank[hopeless].min()
    assert (found.rank[sure] <= found.cut).all()
    assert (found.rank[hopeless] > LAST).all()
    assert (found.weight[found.rank > LAST] == 0).all()
    assert (found.weight[sure] > 0).all()


@pytest.mark.parametrize("eta", [0.001, 0.05, 0.5, 0.99])
def test_nothing_above_a_rate_of_a_quarter_is_released(eta):
    """Whatever eta, and whatever the count says."""
    _, found = ranked(eta)
    assert len(found.reached) == len(found.expected) == LAST + 1
    assert -1 <= found.cut <= LAST
    for counted in (None, -1e9, 0.0, 50.0, 1e9):
        assert choose_cut(dataclasses.replace(found, counted=1), counted, eta) <= LAST
    assert (found.rank > LAST).sum() > 100


def test_the_nominal_cut_is_the_last_that_fits():
    _, found = ranked(0.01)
    fits = found.expected <= 0.01 * found.reached
    assert fits[found.cut]
    assert found.reached[found.cut] > 0
    assert not fits[found.cut + 1 :].any()
    assert found.cut < LAST
    assert (np.diff(found.expected) >= 0).all()
    assert found.count_sigma == np.clip(0.25 * 0.01 * found.reached[found.cut], 0.5, 2.0**24)


def by_hand(cells=100, cut=ZONE - 10):
    """A ranking with 1,000 cells before the zone and 10 in each of its ranks; 0.5 of each are expected to be zero."""
    ranks = np.arange(LAST + 1)
    inside = np.clip(ranks - ZONE, 0, None)
    return Survey(
        counted=1,
        rank=np.array([0, cut, ZONE, ZONE + 1, LAST, LAST + 1], np.uint16),
        keys=np.arange(6, dtype=np.uint64),
        reached=np.where(ranks < cut, 10, 1000) + cells // 10 * inside,
        expected=np.where(ranks < cut, 0.0, 2.0) + 0.5 * inside,
        cut=cut,
        count_sigma=1.5,
    )


def test_the_count_moves_the_cut():
    found = by_hand()
    zone_cells = 10 * (LAST - ZONE)
    assert in_zone(found).tolist() == [False, False, False, True, True, False]
    assert not in_zone(dataclasses.replace(found, counted=0)).any()
    assert choose_cut(found, None, 0.01) == found.cut
    # All cells of the zone are users': nothing but the 2 before it and the margin is spurious.
    assert choose_cut(found, zone_cells, 0.01) == LAST
    assert choose_cut(found, 10.0 * zone_cells, 0.01) == LAST
    # None is, or much less than none by the noise: no more than is expected, so what fits by expectation.
    poor = choose_cut(found, 0.0, 0.03)
    assert poor == choose_cut(found, -1e6, 0.03)
    inside = max(i for i in range(LAST - ZONE + 1) if 2 + 1.5 + 0.5 * i <= 0.03 * (1000 + 10 * i))
    assert poor == ZONE + inside
    # Half-way: the expected zero cells are scaled down to what the count leaves.
    for left in (1.0, 20.0, 30.0):
        share = left / (0.5 * (LAST - ZONE))
        fitting = [i for i in range(LAST - ZONE + 1) if 3.5 + min(share, 1) * 0.5 * i <= 0.01 * (1000 + 10 * i)]
        assert choose_cut(found, zone_cells - left, 0.01) == ZONE + max(fitting)
    falls = [choose_cut(found, zone_cells - left, 0.012) for left in range(60)]
    assert falls == sorted(falls, reverse=True)


@pytest.mark.parametrize("cut", [-1, 0, ZONE - 1, ZONE, ZONE + 20, LAST])
def test_the_cut_is_never_before_the_nominal_one(cut):
    found = dataclasses.replace(by_hand(cut=ZONE), cut=cut)
    for counted in (-1e9, 0.0, 500.0, 1030.0, 1e9):
        for eta in (1e-6, 0.01, 0.3):
            assert choose_cut(found, counted, eta) >= cut


def test_cells_that_were_not_active_have_a_class_of_their_own():
    """One per stratum, ranked by the second look only; nothing below the floor of the rest is expected."""
    cells, size, floor = first_values()
    survey = dataclasses.replace(survey_of(cells, size, floor), counted=0, rest_guide=1)
    second = second_values(survey)
    # Four more cells of the stratum with a floor, two of them equal.
    keys = np.array([1, 4, 7, 10], np.uint64)
    extra = steps([3.55, 9.0, 30.0, 3.55])
    order = np.argsort(np.concatenate([second.keys, keys]))
    rest_floor = np.array([BINS, 53])
    both = Cells(
        keys=np.concatenate([second.keys, keys])[order],
        noisy=np.concatenate([second.noisy, extra])[order],
        stratum=np.concatenate([second.stratum, [1] * 4])[order],
        below=second.below,
    )
    found = rank_cells(NOISE, survey, both, rest_floor, ETA, (0.4, 0.6))
    rows = found.find(keys)
    assert found.rank[rows[0]] == found.rank[rows[3]]
    assert found.rank[rows[0]] > found.rank[rows[1]] >= found.rank[rows[2]]
    assert found.guide[rows].tolist() == [1] * 4
    assert found.guide[found.find(survey.keys)].tolist() == survey.guide.tolist()
    # Cells of the rest could be anywhere above their floor: what is expected is more than without them.
    without = rank_cells(NOISE, survey, second, np.full(2, BINS), ETA, (0.4, 0.6))
    assert (found.expected >= without.expected - 1e-9).all()


def test_no_cells_at_all():
    nothing = Cells(
        np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((1, GROUPS), np.int64)
    )
    guide = np.array([4096], np.uint16)
    survey = make_survey(NOISE, nothing, np.array([0]), np.array([0]), guide, ETA, SHARES)
    found = rank_cells(NOISE, survey, nothing, np.array([BINS]), ETA, SHARES[:2])
    assert len(found) == 0
    assert found.cut == -1
    assert choose_cut(found, None, ETA) == -1

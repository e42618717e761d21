"""Policy `plus`: from noisy values to a ranking of cells, and how far down the ranking the release goes.

Three functions, one for the end of each round of a level:

* `make_survey`: which weight each active cell gets in the second look, and whether there is a count;
* `rank_cells`: both noisy values of a cell become a rank, by its local false-discovery rate;
* `choose_cut`: the last rank that is released.

A rank is a *class*: all cells with these bins of these strata, users' or zero. Classes are released whole, and their
expected number of zero cells is known exactly: (members that are zero cells) * (probability of the bins under noise).

Privacy: everything here is a function of noisy values on all of V_k and of earlier releases, so any choice is
post-processing. Only the share of spurious grams depends on it. Nothing here knows which cells are users'.
"""

import dataclasses

import numpy as np
from scipy import special

from dpngram.transforms.blocks.columns import Array
from dpngram.transforms.blocks.surveys import Survey, name_of
from dpngram.transforms.policies.cutoffs import MAX_TALLIED, Cells
from dpngram.transforms.policies.guide import GUIDE_UNIT
from dpngram.transforms.policies.prior import BINS, GROUP_STARTS, HEIGHTS, bins_of, fit_prior, weigh_evidence
from dpngram.transforms.randomness.noise import UNIT, Noise

__all__ = ["choose_cut", "in_zone", "make_survey", "rank_cells"]

_PER_NAT = 32  # ranks
_LEAST_RATE = 1e-12
_SURE, _ZONE, _LAST = 0.001, 0.01, 0.25  # rates: not weighed again; counted from here on; never released beyond
_LEAST_COUNT = 8.0  # a level is counted if about so many spurious grams are accepted,
_LEAST_DOUBTFUL = 0.5  # and if the survey leaves so many cells in the zone for each that it would release
_COUNT_NOISE, _COUNT_NOISES = 0.25, (0.5, 2.0**24)  # of the accepted spurious grams; and its range
_LOW, _FLOOR, _HIGH = 0.5, 0.1, 3.0  # of lambda_2
_GAINS = tuple(2.0 ** (power / 2) for power in range(-6, 11))
_REST_GAINS = tuple(2.0 ** (power / 2) for power in range(-16, 7))
_LOWEST_SHARE = 0.3  # the least likely classes that hold so much of the noise tell how many zero cells there are
_FAR = 5.0  # standard deviations: from here on a value speaks for itself


def make_survey(
    noise: Noise, cells: Cells, size: Array, floor: Array, guide: Array, eta: float, shares: tuple[float, ...]
) -> Survey:
    """What the first round says about the cells that reached their floors.

    Args:
        noise: of the round.
        cells: that reached their floors.
        size: members of each stratum.
        floor: for each stratum its first active bin.
        guide: lambda_1 of each stratum, in units of 2^-12.
        eta: the accepted share of spurious grams.
        shares: of the budget: first look, second look, count.
    """
    bins = bins_of(noise)
    place = bins.of(cells.noisy)
    counts = np.bincount(cells.stratum * BINS + place, minlength=len(size) * BINS).reshape(-1, BINS)
    counts[:, GROUP_STARTS] += cells.below
    prior = fit_prior(bins, counts, floor)
    # Half of the zero cells are below 0: there are about twice as many as cells below 0.
    certainty = counts[:, : GROUP_STARTS[1]].sum(axis=1) + 1.0
    zeros = np.where(size > MAX_TALLIED, size, np.minimum(size, 2 * certainty - 1))

    evidence = weigh_evidence(prior, np.broadcast_to(bins.centre, counts.shape), np.ones(counts.shape))
    rate = _rates(zeros, size)[:, None] / evidence.ratio
    active = np.arange(BINS)[None, :] >= floor[:, None]
    stratum = np.broadcast_to(np.arange(len(size))[:, None], counts.shape)
    ranks = _ranks(rate)
    reached = _reached(ranks[active], counts[active])
    expected = _expected(ranks[active], stratum[active], (zeros[:, None] * bins.mass)[active], certainty)
    cut = _last_rank(expected <= eta * reached, reached)
    likely = reached[cut] if cut >= 0 else 0
    doubtful = reached[_rank(_LAST)] - reached[_rank(_ZONE)]
    counted = eta * likely >= _LEAST_COUNT and doubtful >= _LEAST_DOUBTFUL * likely

    height = np.maximum(evidence.height, 1e-9) / (np.sqrt(shares[0]) * guide[:, None] / GUIDE_UNIT)
    second = np.clip(height / _LOW, _FLOOR, 1) * np.minimum(1, _HIGH / height)
    table = np.where(rate < _SURE, 0, np.maximum(np.floor(second * GUIDE_UNIT), 1)).astype(np.uint16)
    rest_guide = int(not counted and doubtful < likely)
    second_guide, stratum_of_cell = table[cells.stratum, place], cells.stratum.astype(np.int16)
    return Survey(
        keys=cells.keys,
        guide=second_guide,
        counted=int(counted),
        rest_guide=rest_guide,
        name=name_of(cells.keys, second_guide, int(counted), rest_guide, stratum_of_cell, size, floor),
        noisy=cells.noisy,
        stratum=stratum_of_cell,
        size=size,
        floor=floor,
        guide_by_stratum=guide,
        guide_by_bin=table,
        zeros=zeros.astype(np.float64),
        certainty=certainty,
        prior=prior,
    )


def rank_cells(
    noise: Noise, survey: Survey, cells: Cells, rest_floor: Array, eta: float, shares: tuple[float, ...]
) -> Survey:
    """The survey after the second look: every cell has a rank, and a weight to publish.

    The two values of a cell are combined as X = z_1 + rho z_2 with precision Q = 1 + rho^2, where rho is how much more
    the second look has of the cell's height than the first: by the weights that both gave, times one gain for all,
    which is estimated from all active cells. Nothing that was measured is thrown away, and a cell that got no weight in
    the second look has rho = 0. Cells that were not active in the first look have X = rho z_2 and Q = rho^2.

    Args:
        noise: of both rounds.
        survey: from `make_survey`.
        cells: all active cells with their second values, and others that reached `rest_floor`.
        rest_floor: for each stratum, the first bin of the second look for cells that were not active; BINS: none.
        eta: the accepted share of spurious grams.
        shares: of the budget: first look, second look (with what the count does not use), count.
    """
    bins = bins_of(noise)
    rows = _Rows(survey, rest_floor)
    known = survey.find(cells.keys)
    first = np.append(survey.noisy, 0)[known]
    active = known >= 0
    row = rows.of(cells.stratum, np.where(active, bins.of(first), -1))
    place = bins.of(cells.noisy)
    counts = np.bincount(row * BINS + place, minlength=len(rows) * BINS).reshape(-1, BINS)

    prior = rows.prior(noise.bound(bins.edges))
    first_mass = np.where(rows.is_rest, 1 - bins.tail[survey.floor[rows.stratum]], bins.mass[rows.bin])
    unseen = rows.is_rest[:, None] & (np.arange(BINS) < rest_floor[rows.stratum][:, None])
    mass = np.where(unseen, 0.0, first_mass[:, None] * bins.mass)
    rho = _gains(rows, prior, bins.centre, counts, mass, np.sqrt(shares[1] / shares[0]))
    value, precision = rows.combine(rho, bins.centre)
    evidence = weigh_evidence(prior, value, precision[:, None])
    zeros, certainty = _fewer_zeros(survey, rows, evidence.ratio, mass, counts)
    rank = _ranks(_rates(zeros, survey.size)[rows.stratum][:, None] / evidence.ratio)
    stratum = np.broadcast_to(rows.stratum[:, None], rank.shape)
    reached = _reached(rank, counts)
    expected = _expected(rank, stratum, zeros[rows.stratum][:, None] * mass, certainty)
    cut = _last_rank(expected <= eta * reached, reached)

    # X and Q of each cell, from its values and not from their bins.
    combined = ~rows.is_rest[row] * noise.bound(first) + rho[row] * noise.bound(cells.noisy)
    is_far = combined > _FAR * np.sqrt(precision[row])
    height = np.where(is_far, combined / np.maximum(precision[row], 1e-9), evidence.height[row, place])
    weight = np.floor(height / (np.sqrt(shares[0]) * rows.guide[row]) * (noise.sigma * UNIT / noise.step))
    cell_rank = rank[row, place]
    nominal = int(reached[cut]) if cut >= 0 else 0
    ranked = Survey(
        keys=cells.keys,
        guide=np.append(survey.guide, np.uint16(survey.rest_guide))[known],
        counted=survey.counted,
        rest_guide=survey.rest_guide,
        floor=survey.floor,
        rank=cell_rank.astype(np.uint16),
        weight=np.where(cell_rank <= _rank(_LAST), weight, 0).astype(np.int64),
        reached=reached.astype(np.int64),
        expected=expected,
        cut=cut,
        count_sigma=float(np.clip(_COUNT_NOISE * eta * nominal, *_COUNT_NOISES)),
    )
    query = (ranked.keys, ranked.guide, ranked.counted, ranked.rest_guide, in_zone(ranked), ranked.count_sigma)
    return dataclasses.replace(ranked, name=name_of(*query))


def in_zone(survey: Survey) -> Array:
    """Which cells the count looks at: those that are neither nearly certain nor hopeless."""
    zone: Array = (survey.rank > _rank(_ZONE)) & (survey.rank <= _rank(_LAST)) & bool(survey.counted)
    return zone


def choose_cut(survey: Survey, counted: float | None, eta: float) -> int:
    """The last rank to release, given the noisy number of cells in the zone that users have; -1: nothing.

    Up to the zone the expected number of zero cells is a bound. In the zone there are at most (cells - those that users
    have) zero cells: if that is less than expected, the release goes further down. It never ends before `survey.cut`.
    """
    if counted is None:
        return survey.cut
    zone, last = _rank(_ZONE), _rank(_LAST)
    expected = survey.expected[last] - survey.expected[zone]
    spurious = min(float(survey.reached[last] - survey.reached[zone]) - counted, expected)
    certain = survey.expected[zone] + survey.count_sigma
    if certain + spurious <= eta * survey.reached[last]:
        return last
    share = (survey.expected[zone:] - survey.expected[zone]) / max(expected, 1e-12)
    fits = certain + max(spurious, 0.0) * share <= eta * survey.reached[zone:]
    return max(survey.cut, zone + _last_rank(fits, survey.reached[zone:]) if fits.any() else -1)


class _Rows:
    """The rows of the tables: one for each stratum and first bin from its floor on; and one before them for the cells
    of the stratum that were not active, if the second look has some.
    """

    def __init__(self, survey: Survey, rest_floor: Array) -> None:
        self._survey = survey
        lowest = survey.floor - (rest_floor < BINS)
        self._start = np.cumsum(BINS - lowest) - BINS  # where bin 0 would be
        self.stratum = np.repeat(np.arange(len(lowest)), BINS - lowest)
        self.bin = np.arange(len(self.stratum)) - self._start[self.stratum]
        self.is_rest = self.bin < survey.floor[self.stratum]
        self.size = survey.size[self.stratum]
        self.guide = (survey.guide_by_stratum / GUIDE_UNIT)[self.stratum]  # lambda_1
        second = survey.guide_by_bin[self.stratum, self.bin] / GUIDE_UNIT
        self.second = np.where(self.is_rest, 1.0, second)  # lambda_2

    def __len__(self) -> int:
        return len(self.stratum)

    def of(self, stratum: Array, place: Array) -> Array:
        """The row of cells of these strata with these first bins; -1: not active."""
        rows: Array = self._start[stratum] + np.where(place < 0, self._survey.floor[stratum] - 1, place)
        return rows

    def prior(self, edges: Array) -> Array:
        """The law of heights of each row; of cells that were not active, given that they are below the floor."""
        prior = self._survey.prior[self.stratum]
        rest = np.flatnonzero(self.is_rest)
        edge = edges[self._survey.floor[self.stratum[rest]] - 1]
        prior[rest] *= special.ndtr(edge[:, None] - HEIGHTS) / special.ndtr(edge)[:, None]
        return prior

    def combine(self, rho: Array, centre: Array) -> tuple[Array, Array]:
        """X of each row and second bin, and Q of each row."""
        seen = ~self.is_rest
        return (seen * centre[self.bin])[:, None] + rho[:, None] * centre, seen + rho * rho


def _gains(rows: _Rows, prior: Array, centre: Array, counts: Array, mass: Array, ratio: float) -> Array:
    """rho of each row: the height of its cells in the second look, over that in the first.

    By the weights of both looks, times a gain: the one that makes the noisy values most likely. It says how much more
    or less users gave than their guides tell, which differs because users have other cells, too. Active cells have one
    gain, the others another: few users give them anything, so it may be next to nothing.
    """
    weights = ratio * rows.second / rows.guide

    row, place = np.nonzero(counts * ~rows.is_rest[:, None])
    first, number, law = centre[rows.bin[row]], counts[row, place], prior[row]
    rest = np.flatnonzero(rows.is_rest)

    def likelihood(gain: float) -> float:
        """The logarithm of the probability of all active cells' second values, given their first."""
        rho = gain * weights[row]
        return float((number * np.log(weigh_evidence(law, first + rho * centre[place], 1 + rho * rho).ratio)).sum())

    def rest_likelihood(gain: float) -> float:
        """That of the numbers of others, by Poisson's law: how many there are in a bin says something, too."""
        rho = gain * weights[rest, None]
        ratio = weigh_evidence(prior[rest], rho * centre, rho * rho).ratio
        return float((counts[rest] * np.log(ratio) - rows.size[rest, None] * mass[rest] * ratio).sum())

    gain = max(_GAINS, key=likelihood)
    rest_gain = max(_REST_GAINS, key=rest_likelihood) if len(rest) else gain
    return np.asarray(np.where(rows.is_rest, rest_gain, gain) * weights)


def _fewer_zeros(survey: Survey, rows: _Rows, ratio: Array, mass: Array, counts: Array) -> tuple[Array, Array]:
    """About how many zero cells each stratum has, after both looks; and from how many cells that is known.

    The classes that are least likely to hold anything else, up to 0.3 of the noise, have hardly any other cells. If
    they make it fewer zero cells than the survey did, they are right.
    """
    zeros, certainty = survey.zeros.copy(), survey.certainty.copy()
    for stratum in range(len(zeros)):
        mine = (rows.stratum == stratum) & ~rows.is_rest
        order = np.argsort(ratio[mine].ravel(), kind="stable")
        below = np.cumsum(mass[mine].ravel()[order])
        few = int(np.searchsorted(below, _LOWEST_SHARE * below[-1], side="right"))
        if few:
            cells = float(counts[mine].ravel()[order[:few]].sum()) + 1
            if cells / below[few - 1] < zeros[stratum]:
                zeros[stratum], certainty[stratum] = cells / below[few - 1], cells
    return zeros, certainty


def _rates(zeros: Array, size: Array) -> Array:
    """The share of zero cells in each stratum."""
    return zeros / np.maximum(size, 1)


def _ranks(rate: Array) -> Array:
    """Local false-discovery rates as ranks, rounded up: 0 for the surest."""
    ranks: Array = np.ceil(_PER_NAT * np.log(np.clip(rate, _LEAST_RATE, 1) / _LEAST_RATE)).astype(np.int64)
    return ranks


def _rank(rate: float) -> int:
    return int(_ranks(np.array([rate]))[0])


def _reached(rank: Array, counts: Array) -> Array:
    """How many cells have each rank that can be released, or a smaller one."""
    last = _rank(_LAST)
    return np.cumsum(np.bincount(rank.ravel(), weights=counts.ravel(), minlength=last + 1)[: last + 1])


def _expected(rank: Array, stratum: Array, zeros: Array, certainty: Array) -> Array:
    """How many of them are expected to be zero cells, and half a standard error on top.

    The number of zero cells of a stratum is known from `certainty` of them, so its relative error is 1/sqrt(certainty).
    """
    last = _rank(_LAST)
    place = stratum.ravel() * (last + 1) + np.minimum(rank.ravel(), last)
    weights = np.where(rank.ravel() <= last, zeros.ravel(), 0.0)
    sums = np.bincount(place, weights=weights, minlength=len(certainty) * (last + 1)).reshape(-1, last + 1)
    sums = np.cumsum(sums, axis=1)
    expected: Array = sums.sum(axis=0) + 0.5 * np.sqrt((sums * sums / certainty[:, None]).sum(axis=0))
    return expected


def _last_rank(fits: Array, reached: Array) -> int:
    """The last rank that fits and has a cell at it or before; -1 if there is none."""
    places = np.flatnonzero(fits & (reached > 0))
    return int(places[-1]) if len(places) else -1

"""The tables of policy plus, second edition, written from its description: bins, prior, rates, ranks, cut.

Nothing here is the library's. Sums run in the order in which the library has them, so that last bits agree.
"""

import bisect
import itertools
import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from scipy import special

UNIT = 2**32
WHOLE = 2**12  # a guide of 1
HEIGHTS = [0, 0.15, 0.3, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 10, 12, 16, 24, 40, 80]
BINS, ZERO_BIN = 90, 25  # below -3, 88 bins of 1/8, above 8; the first bin above 0
GROUPS = [0, 25, 33, 41]  # what is below a floor is counted from here to the next: below 0, up to 1, up to 2, beyond


class Bins:
    """Bins of noisy values: edges in steps, all else in standard deviations."""

    def __init__(self, sigma):
        self.step = max(1, int(Fraction(sigma) * UNIT / 2**14))
        self.to_sigma = self.step / (sigma * UNIT)
        self.edges = [math.ceil(Fraction(sigma * place / 8) * UNIT / self.step) for place in range(-24, 65)]
        at = [edge * self.to_sigma for edge in self.edges]
        middles = [(high + low) / 2 for low, high in itertools.pairwise(at)]
        self.centre = np.array([at[0] - 0.3, *middles, at[-1] + 0.5])
        self.tail = [1.0, *(float(special.ndtr(-edge)) for edge in at)]
        self.mass = np.array([here - above for here, above in itertools.pairwise([*self.tail, 0.0])])
        self.at = at
        ends = [-math.inf, *at, math.inf]
        self.likelihood = [
            [between(low - theta, high - theta) for low, high in itertools.pairwise(ends)] for theta in HEIGHTS
        ]

    def of(self, value):
        return bisect.bisect_right(self.edges, value)

    def first_with(self, size, most):
        """The first bin above 0 which so few zero cells of a stratum of this size reach."""
        return next((b for b in range(ZERO_BIN, BINS) if size * self.tail[b] <= most), BINS - 1)


def between(low, high):
    """The probability of a standard normal between two values, from the nearer tail."""
    if low > 0:
        return special.ndtr(-low) - special.ndtr(-high)
    return special.ndtr(high) - special.ndtr(low)


def fit_prior(bins, counts, floor):
    """150 steps of EM for the law of heights; what is below the floor is known by groups."""
    likelihood = np.array(bins.likelihood)
    starts = [start for start in GROUPS if start < floor]
    for start, end in zip(starts, [*starts[1:], floor], strict=False):
        likelihood[:, start] = [math.fsum(chances[start:end]) for chances in bins.likelihood]
    share = np.array([counts[b] for b in range(BINS)]) / max(math.fsum(counts.values()), 1)
    law = np.array([0.7] + [0.3 / 24] * 24)
    for _ in range(150):
        law = law * (likelihood @ (share / np.maximum(law @ likelihood, 1e-300)))
        law = law / max(law.sum(), 1e-300)
    return law


def evidence(law, value, precision):
    """D, the likelihood over that of a zero cell, and the expected height, at X = value and Q = precision."""
    ratio, moment = np.zeros(value.shape), np.zeros(value.shape)
    for theta, chance in zip(HEIGHTS, law, strict=True):
        part = chance * np.exp(np.minimum(theta * value - theta * theta / 2 * precision, 600.0))
        ratio = ratio + part
        moment = moment + theta * part
    ratio = np.maximum(ratio, 1e-300)
    return ratio, moment / ratio


def rank_of(rate):
    """1/32 of a natural logarithm is a rank; rates below 1e-12 have rank 0."""
    return np.ceil(32 * np.log(np.minimum(np.maximum(rate, 1e-12), 1) / 1e-12)).astype(int)


ZONE = int(rank_of(0.01))


class Limits(NamedTuple):
    """Numbers of the policy that matter in large corpora only."""

    every: int = 1 << 17  # up to so many members all of V_k is active
    least: int = 2000  # otherwise about |S_{k-1}| zero cells of a stratum are, but at least so many,
    most: int = 1 << 15  # and at most so many
    counted: float = 8.0  # a level is counted if about so many spurious grams are accepted

    even: float = 4.0  # where most is certain, users at their last level give each of m grams at least even / sqrt(m)
    last: float = 0.25  # no cell is released that is a zero cell with a larger probability

    def last_rank(self):
        return int(rank_of(self.last))

    def wanted(self, previous):
        return min(max(previous, self.least), self.most)


def first_guide(stratum):
    """lambda_1 in units of 2^-12."""
    m = math.exp((stratum + 1) / 2)
    return max(math.floor(max(0.6, min(1, m / 0.5)) * min(1, (4 / m) ** 0.6) * WHOLE + 2.0**-20), 1)


class Ranking:
    """Cells and expected zero cells by rank.

    Args:
        classes: {stratum: (rank, cells, expected zero cells) of each of its classes}, three arrays.
        certainty: {stratum: from how many cells the number of its zero cells is known}.
        eta: the accepted share of spurious grams.
        last: the last rank that may be released.
    """

    def __init__(self, classes, certainty, eta, last):
        self.last = last
        cells, zeros = [0] * (last + 1), {}
        for stratum, (rank, count, expected) in classes.items():
            zeros[stratum] = np.bincount(rank.ravel(), expected.ravel(), last + 1).tolist()
            for place, number in zip(rank[count > 0].tolist(), count[count > 0].tolist(), strict=True):
                if place <= last:
                    cells[place] += number
        self.reached, self.expected, self.cut = [], [], -1
        so_far, total = dict.fromkeys(certainty, 0.0), 0
        for rank in range(last + 1):
            total += cells[rank]
            expected = variance = 0.0
            for stratum, known_from in certainty.items():
                so_far[stratum] += zeros[stratum][rank]
                expected += so_far[stratum]
                variance += so_far[stratum] ** 2 / known_from
            self.reached.append(total)
            self.expected.append(expected + 0.5 * math.sqrt(variance))
            if total and self.expected[-1] <= eta * total:
                self.cut = rank
        self.nominal = self.reached[self.cut] if self.cut >= 0 else 0

    def cut_after_count(self, counted, sigma, eta):
        """How far the release goes, given how many cells of the zone users have, with noise sigma."""
        before, expected = self.expected[ZONE], self.expected[self.last] - self.expected[ZONE]
        spurious = min(self.reached[self.last] - self.reached[ZONE] - counted, expected)
        if before + sigma + spurious <= eta * self.reached[self.last]:
            return self.last
        cut = self.cut
        for rank in range(ZONE, self.last + 1):
            share = (self.expected[rank] - before) / max(expected, 1e-12)
            if self.reached[rank] and before + sigma + max(spurious, 0.0) * share <= eta * self.reached[rank]:
                cut = max(cut, rank)
        return cut

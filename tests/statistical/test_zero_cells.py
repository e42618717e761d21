"""Policy plus: simulated zero cells against noise on every cell of an explicit V_k, over thousands of levels."""

import dataclasses
import itertools

import numpy as np
import pytest
from helpers.levels import first
from scipy import stats

from dpngram.accounting import plan_extraction
from dpngram.transforms.add_spurious_grams import join_zero_cells
from dpngram.transforms.blocks.candidates import CandidateBlock, make_postings
from dpngram.transforms.blocks.cells import split_cells
from dpngram.transforms.blocks.levels import EMPTY_LEVEL
from dpngram.transforms.blocks.surveys import Survey
from dpngram.transforms.clip_and_weight import weigh_users
from dpngram.transforms.noisy_threshold import threshold_cells
from dpngram.transforms.policies import make_rounds, plus, prior, ranking
from dpngram.transforms.policies.cutoffs import ALL, GROUPS, NONE, Cells
from dpngram.transforms.policies.guide import guide_weights
from dpngram.transforms.policies.ranking import choose_cut
from dpngram.transforms.randomness.draws import binomial
from dpngram.transforms.randomness.prf import Prf
from dpngram.transforms.testing import key_source

WORDS = 24
EVERYTHING = np.array([a << 32 | b for a, b in itertools.product(range(WORDS), repeat=2)], np.uint64)
USERS_CELLS = np.random.default_rng(2).permutation(WORDS * WORDS)[:240]
FLAKE_RATE = 1e-4  # of each of the two tests of a whole level, with random keys; theirs are fixed


def make_plan(eta):
    return plan_extraction(epsilon=8, delta=1e-3, max_n=3, max_contributions=30, eta=eta, policy="plus")


def first_level(plan):
    """S_1 of 24 words with three weights, so that V_2 has strata of several sizes."""
    words = first([b"w%02d" % word for word in range(WORDS)])
    weight = np.repeat([30, 60, 200], [14, 7, 3]) * 1000
    return make_rounds(plan)[0][-1].finish(dataclasses.replace(words, weight=weight, grid=2.0**-10), EMPTY_LEVEL)


def make_users(level, heights):
    """One block: for each of these cells so many users, who have another one beside it or not."""
    random = np.random.default_rng(5)
    mine = []
    for cell, height in zip(USERS_CELLS, heights, strict=True):
        mine += [
            [cell] if random.random() < 0.7 else [cell, random.choice(USERS_CELLS[heights > 0])] for _ in range(height)
        ]
    lengths = [len(cells) + 1 for cells in mine]  # a place after each post is empty
    start = np.cumsum([0, *lengths]).astype(np.int32)
    cells = np.concatenate(mine)
    positions = np.concatenate([np.arange(s, s + len(c)) for s, c in zip(start[:-1], mine, strict=True)])
    grams, gram_start, places = make_postings(
        cells // WORDS, cells % WORDS, positions.astype(np.int32), prefixes=WORDS, lasts=WORDS, length=int(start[-1])
    )
    return CandidateBlock(
        user=np.arange(len(mine), dtype=np.uint64),
        user_start=start,
        grams=grams,
        gram_start=gram_start,
        positions=places,
        guide_weight=guide_weights(level, (grams >> np.uint64(32)).astype(int), (grams & np.uint64(31)).astype(int)),
        budget=np.full(len(mine), 2**63, np.uint64),
    )


class Simulated:
    """A level as the library makes it, with a key; histograms in three shards."""

    def __init__(self, run):
        source = key_source(run.to_bytes(32, "little"))
        binding = source.binding(b"f" * 16)
        self._draws = lambda policy, past: source.draws(2, policy.number, b"global", binding, past)

    def look(self, policy, cutoffs, histogram, level, earlier):
        draw = self._draws(policy, earlier.name or level.name)
        parts = [threshold_cells(cells, cutoffs, draw) for _, cells in split_cells(histogram, 3)]
        return join_zero_cells(parts, cutoffs, draw)

    def release(self, policy, histogram, level, survey):
        exact = sum(policy.count(cells) for _, cells in split_cells(histogram, 3))
        return policy.release(exact, level, survey, self._draws(policy, survey.name)("count"))


class Explicit:
    """The same level with a generator's noise on every cell of V_2, and on the count."""

    def __init__(self, run):
        self._random = np.random.default_rng([99, run])

    def look(self, policy, cutoffs, histogram, level, earlier):
        noise, strata = cutoffs.noise, plus.Strata(level, "both")
        exact = np.zeros(len(EVERYTHING), np.int64)
        exact[np.searchsorted(EVERYTHING, histogram.keys)] = histogram.weight
        drawn = np.floor(self._random.standard_normal(len(exact)) * (noise.sigma * 2**32)).astype(np.int64)
        noisy, stratum = (exact + drawn) // noise.step, strata.of(EVERYTHING)
        seen = noisy >= (cutoffs.floor[stratum] if len(cutoffs.floor) > 1 else NONE)
        below = np.zeros((len(cutoffs.floor), GROUPS), np.int64)
        if policy.number == 1:
            seen |= np.isin(EVERYTHING, earlier.keys)
        else:
            group = sum((noisy >= noise.least(noise.sigma * z)).astype(int) for z in (0, 1, 2))
            np.add.at(below, (stratum[~seen], group[~seen]), 1)
        return Cells(keys=EVERYTHING[seen], noisy=noisy[seen], stratum=stratum[seen], below=below)

    def release(self, policy, histogram, level, survey):
        counted = None
        if survey.counted:
            exact = np.minimum(histogram.weight / 2**16, 1.0).sum()
            counted = exact + survey.count_sigma * self._random.standard_normal()
        rows = np.flatnonzero(survey.rank <= choose_cut(survey, counted, policy.plan.eta))
        return level.extend(survey.keys[rows], survey.weight[rows], 1.0, 0.0, "both")


class Tally:
    """What all levels of one kind have shown."""

    def __init__(self, strata):
        self.seen = np.zeros((3, len(EVERYTHING)), np.int64)  # active; ranked; released
        self.tallies, self.active = [], []  # by stratum and group; by stratum
        self.ranked, self.released, self.beyond = [], [], []
        self.counted, self.rest = [], []
        self.weights, self.pairs = [], []  # of one spurious gram of each level; z_1 and z_2 of one active zero cell
        self._strata = strata

    def add(self, number, cells, survey, second, ranked, released):
        for place, found in enumerate((survey, ranked, released)):
            self.seen[place, np.searchsorted(EVERYTHING, found.keys)] += 1
        self.tallies.append(cells.below)
        self.active.append(np.bincount(survey.stratum, minlength=self._strata))
        self.ranked.append(len(ranked))
        self.released.append(len(released))
        self.beyond.append(len(released) - int((ranked.rank <= ranked.cut).sum()))
        self.counted.append(survey.counted)
        self.rest.append(survey.rest_guide)
        spurious = released.weight[~np.isin(released.keys, EVERYTHING[USERS_CELLS])]
        if len(spurious):
            self.weights.append(spurious[number % len(spurious)])
        zero = np.flatnonzero(~np.isin(survey.keys, EVERYTHING[USERS_CELLS]))
        row = zero[number % len(zero)]
        self.pairs.append((survey.noisy[row], second.noisy[np.searchsorted(second.keys, survey.keys[row])]))


def make_level(kind, number, rounds, level, users, tally):
    """Survey, second look and count, with noise of one kind."""
    looks = kind(number)
    survey_round, second_round, count_round = rounds
    cells, users = weigh_users(users, EMPTY_LEVEL, survey_round, Prf(b"c" * 32))
    cutoffs = survey_round.cutoffs(level, EMPTY_LEVEL)
    seen = looks.look(survey_round, cutoffs, cells, level, EMPTY_LEVEL)
    survey = survey_round.settle(seen, cutoffs, level, EMPTY_LEVEL)
    cells, users = weigh_users(users, survey, second_round, Prf(b"c" * 32))
    cutoffs = second_round.cutoffs(level, survey)
    second = looks.look(second_round, cutoffs, cells, level, survey)
    ranked = second_round.settle(second, cutoffs, level, survey)
    cells, _ = weigh_users(users, ranked, count_round, Prf(b"c" * 32))
    tally.add(number, seen, survey, second, ranked, looks.release(count_round, cells, level, ranked))


@pytest.mark.parametrize("counted", [False, True], ids=["with-the-rest", "with-a-count"])
@pytest.mark.parametrize("runs", [400, pytest.param(10_000, marks=pytest.mark.campaign)])
def test_a_whole_round_has_the_law_of_noise_on_every_cell(runs, counted, monkeypatch):
    """All rounds of level 2, so many times with the zero cells simulated, and as often with a generator's noise on all
    576 cells: the same law of all that is found out on the way and released.

    Constants are changed so that the small V_2 has what a large one has: strata with floors and others without, and
    cells that are not active. Either these take part in the second look, or the level has a count.

    Keys and seeds are fixed, so the outcome is too; with random ones the flake rate would be FLAKE_RATE, which is
    divided evenly between all comparisons: exact tests of proportions, normal ones of means, chi-square, and
    Kolmogorov-Smirnov.
    """
    monkeypatch.setattr(plus, "_ALL_ACTIVE", 0)
    monkeypatch.setattr(plus, "_LEAST_ACTIVE", 24)
    monkeypatch.setattr(plus, "_MOST_ACTIVE", 24)
    monkeypatch.setattr(prior, "_STEPS", 15)  # half of the time
    monkeypatch.setattr(ranking, "_LEAST_COUNT", 0.5 if counted else 1000.0)
    monkeypatch.setattr(ranking, "_LEAST_DOUBTFUL", 0.1)
    monkeypatch.setattr(ranking, "_COUNT_NOISES", (0.1, 2.0**24))
    plan = make_plan(0.015 if counted else 0.2)
    level = first_level(plan)
    heights = np.full(240, 3) if counted else np.repeat([0, 1, 2, 20], [160, 20, 20, 40])
    rounds, users = make_rounds(plan)[1], make_users(level, heights)
    cutoffs = rounds[0].cutoffs(level, EMPTY_LEVEL)
    strata = len(cutoffs.floor)
    assert cutoffs.size.sum() == 576
    assert ((cutoffs.floor == ALL) & (cutoffs.size > 0)).sum() >= 2
    assert ((cutoffs.floor != ALL) & (cutoffs.size > 0)).sum() >= 2

    ours, theirs = (Tally(strata) for _ in range(2))
    for number in range(runs):
        make_level(Simulated, number, rounds, level, users, ours)
        make_level(Explicit, number, rounds, level, users, theirs)
    for tally in (ours, theirs):
        for name in ("tallies", "active", "ranked", "released", "beyond", "counted", "rest", "weights", "pairs"):
            setattr(tally, name, np.array(getattr(tally, name)))

    check = Comparison(4 * len(EVERYTHING))
    for place in range(3):
        check.proportions(ours.seen[place], theirs.seen[place], runs)
    check.proportions(ours.counted.sum(), theirs.counted.sum(), runs)
    check.proportions(ours.rest.sum(), theirs.rest.sum(), runs)
    check.proportions((ours.beyond > 0).sum(), (theirs.beyond > 0).sum(), runs)
    check.means(ours.tallies.reshape(runs, -1), theirs.tallies.reshape(runs, -1))
    check.means(ours.tallies.reshape(runs, -1) ** 2, theirs.tallies.reshape(runs, -1) ** 2)
    check.means(ours.active, theirs.active)
    check.means(ours.active**2, theirs.active**2)
    # Pairs of neighbouring groups, and a group with what is active: a multinomial has these covariances.
    check.means(ours.tallies[:, :, 0] * ours.tallies[:, :, 1], theirs.tallies[:, :, 0] * theirs.tallies[:, :, 1])
    check.means(ours.tallies[:, :, 0] * ours.active, theirs.tallies[:, :, 0] * theirs.active)
    for name in ("ranked", "released", "beyond"):
        check.counts(getattr(ours, name), getattr(theirs, name))
    busiest = int(np.argmax(cutoffs.size))
    check.counts(ours.active[:, busiest], theirs.active[:, busiest])
    check.counts(ours.tallies[:, busiest, 0], theirs.tallies[:, busiest, 0])
    check.counts(ours.tallies[:, :, 0].sum(axis=1), theirs.tallies[:, :, 0].sum(axis=1))
    check.samples(ours.weights, theirs.weights)
    # The second look at a zero cell has fresh noise: the law of noise, whatever the survey saw.
    sigma_steps = cutoffs.noise.sigma / cutoffs.noise.grid
    check.law(ours.pairs[:, 1] / sigma_steps)
    check.means(ours.pairs.prod(axis=1, keepdims=True) / 1e8, theirs.pairs.prod(axis=1, keepdims=True) / 1e8)
    assert check.made <= check.most

    # Something was compared: spurious grams, cells that are not active, and what each kind is for.
    assert len(ours.weights) > runs / 4
    assert (ours.active.sum(axis=1) < 576).all()
    if counted:
        assert ours.counted.mean() > 0.9
        assert 0.02 < (ours.beyond > 0).mean() < 0.98
    else:
        assert ours.rest.mean() > 0.9
        assert (ours.ranked > ours.active.sum(axis=1)).mean() > 0.9


class Comparison:
    """Comparisons of two samples, each at an even part of the flake rate."""

    def __init__(self, most):
        self.made, self.most = 0, most
        self._least = FLAKE_RATE / most

    def _check(self, pvalues):
        self.made += np.size(pvalues)
        assert np.min(pvalues) > self._least, f"{np.argmin(pvalues)}: {np.min(pvalues):.1e}"

    def proportions(self, first, second, runs):
        """How often something happened: Fisher's exact test."""
        law = stats.hypergeom(2 * runs, np.asarray(first + second), runs)
        self._check(2 * np.minimum(law.cdf(first), law.sf(np.asarray(first) - 1)))

    def means(self, first, second):
        """Columns of numbers: normal, with room for columns that are nearly always the same."""
        error = np.sqrt(np.maximum(first.var(axis=0) + second.var(axis=0), 0.1) / len(first))
        self._check(2 * stats.norm.sf(np.abs(first.mean(axis=0) - second.mean(axis=0)) / error))

    def counts(self, first, second):
        """Two samples of counts, by chi-square on bins of at least 40."""
        joined = np.sort(np.concatenate([first, second]))
        edges = np.unique(joined[:: len(joined) // 25])
        bins = [np.searchsorted(edges, values, side="right") for values in (first, second)]
        table = np.array([np.bincount(places, minlength=len(edges) + 1) for places in bins])
        table = table[:, table.sum(axis=0) >= 40]
        self._check(stats.chi2_contingency(table).pvalue if table.shape[1] > 1 else 1.0)

    def samples(self, first, second):
        """Two samples of weights."""
        self._check(stats.ks_2samp(first, second).pvalue)

    def law(self, values):
        """The law of noise, in standard deviations."""
        self._check(stats.kstest(values, "norm").pvalue)


@pytest.mark.parametrize("runs", [300, pytest.param(10_000, marks=pytest.mark.campaign)])
def test_the_count_has_its_noise_even_if_nobody_vouches(runs, monkeypatch):
    """What `choose_cut` is given, minus the exact count, is N(0, sigma_F^2). Flake rate with random keys: 2e-6."""
    plan = make_plan(0.1)
    level = first_level(plan)
    count = make_rounds(plan)[1][2]
    survey = Survey(
        keys=EVERYTHING[:3],
        counted=1,
        rank=np.array([800, 800, 800], np.uint16),
        weight=np.ones(3, np.int64),
        reached=np.full(841, 3),
        expected=np.zeros(841),
        count_sigma=1.75,
    )
    given = []
    monkeypatch.setattr(plus, "choose_cut", lambda survey, counted, eta: given.append(counted) or -1)
    for exact in (0, 3 << 16):
        given.clear()
        for run in range(runs):
            count.release(exact, level, survey, Prf(run.to_bytes(32, "little")))
        assert stats.kstest((np.array(given) - exact / 2**16) / 1.75, "norm").pvalue > 1e-6


@pytest.mark.parametrize("draws", [4000, pytest.param(20_000, marks=pytest.mark.campaign)])
def test_binomial_law(draws):
    """Thousands of draws for each of several laws: chi-square at 1e-6; and the quantiles, against scipy's."""
    prf = Prf(b"b" * 32)
    for number, (count, chance) in enumerate([(1, 0.5), (7, 0.6), (100, 0.5006), (1000, 0.02), (10**6, 0.51)]):
        words = prf.blocks(np.arange(2 * draws, dtype=np.uint64), number).reshape(-1, 4)
        drawn = np.array([binomial(words[i : i + 1], count, chance) for i in range(len(words))])
        law = stats.binom(count, chance)
        edges = np.unique(law.ppf(np.linspace(0.02, 0.98, 25)))
        observed = np.bincount(np.searchsorted(edges, drawn, side="left"), minlength=len(edges) + 1)
        expected = np.diff(np.concatenate([[0.0], law.cdf(edges), [1.0]])) * len(drawn)
        usable = expected > 5
        statistic = ((observed - expected)[usable] ** 2 / expected[usable]).sum()
        assert statistic < stats.chi2.isf(1e-6, max(usable.sum() - 1, 1))
        for place in range(0, draws, 100):
            uniform = (int(words[place, 0]) + 0.5) / 2**64
            assert drawn[place] == law.ppf(uniform)

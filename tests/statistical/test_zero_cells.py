"""Policy plus: simulated zero cells against noise on every cell of an explicit V_k, over thousands of runs."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dpngram.accounting import plan_extraction
from dpngram.transforms import policies
from dpngram.transforms.add_spurious_grams import complete_level
from dpngram.transforms.blocks.cells import CellBlock
from dpngram.transforms.blocks.levels import EMPTY_LEVEL
from dpngram.transforms.document_form import DocumentForm, collect_documents
from dpngram.transforms.noisy_threshold import threshold_cells
from dpngram.transforms.policies import make_rounds
from dpngram.transforms.policies.plus import PlusRound
from dpngram.transforms.policies.selection import choose_thresholds, zero_cell_bound
from dpngram.transforms.randomness.draws import binomial
from dpngram.transforms.randomness.prf import Prf, derive_key
from dpngram.transforms.testing import extract_in_memory, key_source
from dpngram.transforms.tokenizers import make_tokenizer

PLAN = plan_extraction(epsilon=8, delta=1e-3, max_n=2, max_contributions=30, eta=0.2, policy="plus")
WORDS = 24


def first_level():
    """S_1 of 24 words with weights over three orders of magnitude, so that V_2 has many strata."""
    posts = [(f"u{user}", [f"w{user % WORDS:02d}"]) for user in range(12_000)]
    posts += [(f"v{user}", [f"w{user % 6:02d}"]) for user in range(100_000)]
    blocks, _ = collect_documents(posts, DocumentForm())
    levels = []

    class Spy(PlusRound):
        def finish(self, level, previous):
            levels.append(super().finish(level, previous))
            return levels[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(policies.ROUND_POLICIES, "plus", Spy)
        extract_in_memory(blocks, PLAN, key_source(b"s" * 32), make_tokenizer("words"))
    (level,) = [level for level in levels if level.n == 1 and len(level) == WORDS][-1:]
    return level


def text_cells():
    """40 of the 576 bigrams, with weights from nothing much to certain."""
    rows = np.random.default_rng(2).choice(WORDS * WORDS, 40, replace=False)
    keys = np.sort(np.array([(row // WORDS) << 32 | row % WORDS for row in rows], np.uint64))
    weight = (np.geomspace(0.05, 12, 40) * 2**32).astype(np.int64)
    return CellBlock(
        keys=keys,
        weight=weight,
    )


@pytest.mark.parametrize("runs", [1000, pytest.param(10_000, marks=pytest.mark.campaign)])
def test_a_whole_round_has_the_law_of_noise_on_every_cell(runs):
    """One round of level 2, so many times with the zero cells simulated, and as often with a generator's noise on all
    576 cells: the same law of what is released (users' cells, others, each cell, the tallies).

    Keys and seeds are fixed, so the outcome is too; with random ones the flake rate would be below 1e-4: about 600
    comparisons of proportions at 5.5 standard errors, and three chi-square tests at 1e-5.
    """
    level = first_level()
    cells = text_cells()
    policy = make_rounds(PLAN)[1][0]
    everything = np.array([a << 32 | b for a, b in itertools.product(range(WORDS), repeat=2)], np.uint64)
    exact = np.zeros(len(everything), np.int64)
    exact[np.searchsorted(everything, cells.keys)] = cells.weight
    cut = policy.cutoffs(level, EMPTY_LEVEL)
    assert len(cut.size) > 8
    assert cut.size.sum() == 576
    stratum = cut.strata.of(everything)
    assert np.bincount(stratum, minlength=len(cut.size)).tolist() == cut.size.tolist()

    seen = np.zeros((2, len(everything)))
    totals = np.zeros((2, runs), np.int64)
    weights = ([], [])
    tallies = np.zeros((2, runs, len(cut.size)), np.int64)

    with pytest.MonkeyPatch.context() as patch:
        run_below = []
        original = PlusRound.thresholds

        def spy(self, cut, below, stratum, noisy):
            run_below.append(below)
            return original(self, cut, below, stratum, noisy)

        patch.setattr(PlusRound, "thresholds", spy)
        for run in range(runs):
            key = run.to_bytes(32, "little")

            def draw(purpose, key=key):
                return Prf(derive_key(key, purpose))

            part = threshold_cells(cells, cut, draw)
            found = complete_level([part], level, EMPTY_LEVEL, policy, draw)
            places = np.searchsorted(everything, found.keys)
            seen[0, places] += 1
            totals[0, run] = len(found)
            weights[0].extend(found.weight.tolist())
            tallies[0, run] = run_below[-1]

    random = np.random.default_rng(99)
    noise = cut.noise
    for run in range(runs):
        drawn = np.floor(random.standard_normal(len(everything)) * (noise.sigma * 2**32)).astype(np.int64)
        noisy = (exact + drawn) // noise.step
        below = np.bincount(stratum[noisy < 0], minlength=len(cut.size))
        reach = noisy >= cut.floor[stratum]
        zeros = zero_cell_bound(cut.size, below)
        least = choose_thresholds(noise, cut.floor, zeros, stratum[reach], noisy[reach], PLAN.eta)
        passed = np.flatnonzero(reach & (noisy >= least[stratum]))
        seen[1, passed] += 1
        totals[1, run] = len(passed)
        weights[1].extend(policy.publish(noisy[passed], everything[passed], level).tolist())
        tallies[1, run] = below

    # Each cell, users' or zero, is released as often.
    share = seen.sum(axis=0) / (2 * runs)
    error = np.sqrt(np.maximum(share * (1 - share), 1 / runs) * 2 / runs)
    assert (np.abs(seen[0] - seen[1]) / runs < 5.5 * error).all()
    assert seen[:, exact == 0].sum() > runs / 5
    # The number released in a run, and the tallies below zero that thresholds are chosen from.
    assert same_law(totals[0], totals[1])
    busiest = int(np.argmax(cut.size))
    assert same_law(tallies[0, :, busiest], tallies[1, :, busiest])
    assert same_law(tallies[0].sum(axis=1), tallies[1].sum(axis=1))
    for s in range(len(cut.size)):
        difference = tallies[0, :, s].mean() - tallies[1, :, s].mean()
        assert abs(difference) <= 5.5 * math.sqrt(2 * max(tallies[:, :, s].var(), 0.25) / runs)
    # Tallies of two strata are independent, and so are a stratum's tally and what is released beyond it.
    pair = np.argsort(cut.size)[-2:]
    correlation = np.corrcoef(tallies[0, :, pair[0]], tallies[0, :, pair[1]])[0, 1]
    assert abs(correlation) < 5.5 / math.sqrt(runs)
    assert stats.ks_2samp(weights[0], weights[1]).pvalue > 1e-5


def same_law(first, second):
    """Two samples of counts, by chi-square on bins of at least 40."""
    joined = np.sort(np.concatenate([first, second]))
    edges = np.unique(joined[:: max(len(joined) // 25, 1)])
    table = np.array(
        [
            np.bincount(np.searchsorted(edges, values, side="right"), minlength=len(edges) + 1)
            for values in (first, second)
        ]
    )
    table = table[:, table.sum(axis=0) >= 40]
    return stats.chi2_contingency(table).pvalue > 1e-5


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

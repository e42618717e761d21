"""The law of spurious grams over thousands of whole runs."""

import math

import numpy as np
import pytest
from scipy import stats

from dpngram.accounting import plan_extraction
from dpngram.transforms.document_form import DocumentForm, collect_documents
from dpngram.transforms.randomness.noise import Noise
from dpngram.transforms.testing import extract_in_memory, key_source
from dpngram.transforms.tokenizers import make_tokenizer

WORDS = "abcdef"
# Every user has one of the cyclic bigrams ab, bc, ..., fa; the other 30 of the 36 bigrams are zero cells.
POSTS = [(f"u{i}", [WORDS[i % 6], WORDS[(i + 1) % 6]]) for i in range(240)]
ETA = 0.2


@pytest.mark.parametrize("runs", [2000, pytest.param(10_000, marks=pytest.mark.campaign)])
def test_spurious_grams_follow_the_law(runs):
    """Each of the 30 zero cells is released with Phi(-rho/sigma), independently; chi-square and a pair count.

    The keys are the run numbers, so the outcome is fixed; with random keys the flake rate would be 1e-6.
    """
    blocks, _ = collect_documents(POSTS, DocumentForm())
    plan = plan_extraction(epsilon=8, delta=1e-3, max_n=2, max_contributions=4, eta=ETA, policy="paper")
    noise = Noise(plan.level(2).sigma)
    least = noise.least(plan.threshold(2, 6, 36))
    p = float(noise.zero_probability(least))
    tokenizer = make_tokenizer("words")
    real = {(WORDS[i], WORDS[(i + 1) % 6]) for i in range(6)}
    zero = [(a, b) for a in WORDS for b in WORDS if (a, b) not in real]
    visits = dict.fromkeys(zero, 0)
    total = spurious = squares = 0
    weights = []
    for run in range(runs):
        tables = extract_in_memory(blocks, plan, key_source(run.to_bytes(32, "little")), tokenizer)
        assert len(tables[1]) == 6
        rows = list(tables[2].rows())
        found = [(tuple(row.tokens), row.weight) for row in rows if tuple(row.tokens) not in real]
        for gram, weight in found:
            visits[gram] += 1
            weights.append(weight)
        total += len(rows) + 6
        spurious += len(found)
        squares += len(found) ** 2
    counts = np.array(list(visits.values()))
    assert ((counts - runs * p) ** 2 / (runs * p * (1 - p))).sum() < stats.chi2.isf(1e-6, len(zero))
    # The number per run is binomial: so is its variance.
    mean, variance = spurious / runs, squares / runs - (spurious / runs) ** 2
    assert abs(variance / (30 * p * (1 - p)) - 1) < 5 * math.sqrt(2 / runs)
    # The weights follow the tail of the Gaussian above the threshold, on the grid.
    tail = stats.norm.sf(np.array(weights) / noise.sigma) / p
    assert stats.kstest(np.minimum(tail, 1), "uniform").pvalue > 1e-6
    assert (np.array(weights) >= least * noise.grid).all()
    # Proposition 1: at most eta * |S_1| expected at this level, so at most eta of what is released.
    error = 5 * math.sqrt(30 * p * (1 - p) / runs)
    assert mean <= ETA * 6 + error
    assert spurious / total <= ETA + error

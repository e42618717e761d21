"""An attack on the count of policy plus: a user spends a whole budget on it, and the attacker sees the noisy number."""

import numpy as np
import pytest
from helpers.levels import first_level

from dpngram.accounting import plan_extraction
from dpngram.accounting.evidence import fit_gaussian
from dpngram.transforms.blocks.candidates import CandidateBlock
from dpngram.transforms.blocks.levels import EMPTY_LEVEL
from dpngram.transforms.blocks.surveys import Survey
from dpngram.transforms.clip_and_weight import weigh_users
from dpngram.transforms.policies import make_rounds, plus
from dpngram.transforms.policies.budgets import FULL_BUDGET
from dpngram.transforms.policies.ranking import _rank
from dpngram.transforms.randomness.prf import Prf

PLAN = plan_extraction(epsilon=4, delta=1e-5, max_n=2, max_contributions=30, policy="plus")
COUNT = make_rounds(PLAN)[1][2]
WORDS = make_rounds(PLAN)[0][-1].finish(first_level(20), EMPTY_LEVEL)
CELLS = np.array([a << 32 | b for a in range(20) for b in range(20)], np.uint64)
ERROR = 1e-6
RUNS = 1500  # in each world


def all_in_the_zone(count_sigma):
    """A survey in which all cells are in doubt, and none was worth a second look: the count has all of the budget."""
    last = _rank(0.25)
    return Survey(
        name=1,
        keys=CELLS,
        guide=np.zeros(len(CELLS), np.uint16),
        counted=1,
        rank=np.full(len(CELLS), last, np.uint16),
        weight=np.ones(len(CELLS), np.int64),
        reached=np.append(np.zeros(last), len(CELLS)),
        expected=np.append(np.zeros(last), 40.0),
        count_sigma=count_sigma,
    )


def users_with(*cells):
    """One user for each list of cells, with a whole budget and no higher level to save for."""
    gram, user = np.concatenate(cells), np.repeat(np.arange(len(cells)), [len(mine) for mine in cells])
    position = np.arange(len(gram)) + user  # a place after each post is empty
    order = np.lexsort((position, gram))
    grams, start = np.unique(gram[order], return_index=True)
    budget = np.full(len(cells), FULL_BUDGET)
    return CandidateBlock(
        user=np.arange(len(cells), dtype=np.uint64),
        user_start=np.cumsum([0, *(len(mine) + 1 for mine in cells)]).astype(np.int32),
        grams=grams,
        gram_start=np.append(start, len(gram)).astype(np.int32),
        positions=position[order].astype(np.int32),
        guide_weight=np.full(len(grams), 4096, np.uint16),
        budget=budget,
        allowance=budget,
        is_last=np.ones(len(cells), bool),
    )


@pytest.mark.parametrize("cells", [1, 7, 400])
def test_the_noisy_number_keeps_the_claim(cells, monkeypatch):
    """Others vouch for a few cells, and one more user for as much as it can, of cells that nobody else has.

    The lower bound on epsilon must not be above the plan's, and the attack must be about as good as the plan allows:
    a user with enough cells moves the number by as much as it pays for. Keys are fixed; with random ones each of the
    two comparisons would fail with probability 1e-6, or 2e-6.
    """
    noisy = []
    monkeypatch.setattr(plus, "choose_cut", lambda _survey, counted, _eta: noisy.append(counted) or -1)
    found = all_in_the_zone(count_sigma=3.0)
    others = [CELLS[:3], CELLS[1:9], CELLS[2:3]] if cells < 400 else []
    worlds = []
    for world, everybody in enumerate((others, [*others, CELLS[-cells:]])):
        exact = 0
        if everybody:
            users = users_with(*everybody)
            histogram, after = weigh_users(users, found, COUNT, Prf(b"c" * 32))
            assert (after.allowance == FULL_BUDGET).all()
            exact = COUNT.count(histogram)
        noisy.clear()
        for run in range(RUNS):
            COUNT.release(exact, WORDS, found, Prf((2 * run + world).to_bytes(32, "little")))
        worlds.append(list(noisy))
    absent, present = worlds
    fit = fit_gaussian(present, absent, delta=PLAN.delta, error=ERROR)
    assert fit.epsilon_low <= PLAN.epsilon
    sigma = COUNT.level.sigma
    moved = min(cells, 3.0 / sigma) / 3.0  # in deviations: a cell counts for one at most
    assert abs(fit.mu - moved) < 5 * np.sqrt(2 / RUNS + moved * moved / (4 * RUNS))

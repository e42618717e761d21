"""Policy paper: equal weights, and one threshold that is known before the noise."""

import math

import pytest
from helpers.blocks import candidates
from helpers.levels import first_level

from dpngram.accounting import ParameterError, plan_extraction
from dpngram.transforms.blocks.levels import EMPTY_LEVEL
from dpngram.transforms.policies import make_rounds
from dpngram.transforms.randomness.prf import Prf

PLAN = plan_extraction(epsilon=4, delta=1e-3, max_n=2, max_contributions=[3, 2], policy="paper")
ROUNDS = [level[0] for level in make_rounds(PLAN)]


def test_users_share_a_norm_of_one_among_the_grams_of_each_level():
    block = candidates([[1], [1, 2], [4, 5, 6, 7, 8]])
    for policy, cap in zip(ROUNDS, (3, 2), strict=True):
        weight, users = policy.weigh(block, block, Prf(b"c" * 32), EMPTY_LEVEL)
        assert users is None  # nothing is kept of what was given
        given = dict(zip(block.grams.tolist(), weight.tolist(), strict=True))
        half = math.isqrt(2**63)
        assert (given[1], given[2]) == (2**32 + half, half)
        kept = [given[gram] for gram in (4, 5, 6, 7, 8) if given[gram]]
        assert kept == [math.isqrt(2**64 // cap)] * cap


def test_the_threshold_is_that_of_the_plan():
    level = first_level(50)
    for policy, previous in zip(ROUNDS, (EMPTY_LEVEL, level), strict=True):
        cut = policy.cutoffs(previous, EMPTY_LEVEL)
        rho = PLAN.threshold(policy.n, len(previous), previous.valid("both"))
        assert cut.noise.sigma == PLAN.level(policy.n).sigma
        assert cut.floor.tolist() == [cut.noise.least(rho)]
        assert cut.rho == rho


def test_noise_beyond_exact_sums_is_refused():
    plan = plan_extraction(epsilon=1e-5, delta=1e-12, max_n=1, max_contributions=1, windows=10**4, policy="paper")
    with pytest.raises(ParameterError, match="sigma must be below"):
        make_rounds(plan)

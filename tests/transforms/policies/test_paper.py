"""Policy paper: equal weights, and one threshold that is known before the noise."""

import math

import numpy as np
import pytest
from helpers.blocks import candidates
from helpers.levels import first_level

from dpngram.accounting import ParameterError, plan_extraction
from dpngram.transforms.blocks.levels import EMPTY_LEVEL
from dpngram.transforms.policies import make_policy
from dpngram.transforms.policies.base import Round
from dpngram.transforms.randomness.prf import Prf
from dpngram.transforms.testing import key_source

PLAN = plan_extraction(epsilon=4, delta=1e-3, max_n=2, max_contributions=[3, 2], policy="paper")
POLICY = make_policy(PLAN, "both")
RANDOMNESS = key_source(b"p" * 32).randomness


def test_users_share_a_norm_of_one_among_the_grams_of_each_level():
    block = candidates([[1], [1, 2], [4, 5, 6, 7, 8]])
    for n, cap in ((1, 3), (2, 2)):
        weight, users = POLICY.weigh(None, block, Round(POLICY, n, 0, RANDOMNESS), Prf(b"c" * 32))
        assert users is None  # nothing is kept of what was given
        given = dict(zip(block.grams.tolist(), weight.tolist(), strict=True))
        half = math.isqrt(2**63)
        assert (given[1], given[2]) == (2**32 + half, half)
        kept = [given[gram] for gram in (4, 5, 6, 7, 8) if given[gram]]
        assert kept == [math.isqrt(2**64 // cap)] * cap


def test_the_threshold_is_that_of_the_plan():
    level = first_level(50)
    for n, previous in ((1, EMPTY_LEVEL), (2, level)):
        cut = POLICY.cut(Round(POLICY, n, 0, RANDOMNESS), previous, EMPTY_LEVEL)
        rho = PLAN.threshold(n, len(previous), previous.valid("both"))
        assert cut.noise.sigma == PLAN.level(n).sigma
        assert cut.floor.tolist() == [cut.noise.least(rho)]
        assert POLICY.thresholds(cut, np.zeros(1), np.zeros(0), np.zeros(0)) is cut.floor


def test_noise_beyond_exact_sums_is_refused():
    plan = plan_extraction(epsilon=1e-6, delta=1e-12, max_n=64, max_contributions=1, windows=1000, policy="paper")
    with pytest.raises(ParameterError, match="sigma must be below"):
        make_policy(plan, "both")

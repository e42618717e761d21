"""What finite precision costs: constants against high precision, the bound against every draw of a small version."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from scipy import special

from dpngram.accounting import ParameterError
from dpngram.accounting.numerics import (
    CELL_ERROR,
    CELL_TAIL,
    COUNT_ERROR,
    COUNT_TAIL,
    MAX_STRATA,
    REACH,
    rounding_cost,
    switching_bound,
    touched,
)

# What noise.py promises: edges of steps are off by at most this part of max(1, |z|).
EDGE_ERROR = 8 * 2.0**-53
GRID = 2.0**-14


def test_the_reach_and_what_lies_beyond():
    """At REACH a step still has 2^33 draws of 2^256, edges are as near as needed, and the tails beyond are charged."""
    with mpmath.workdps(50):
        density = mpmath.npdf(REACH + GRID)
        draws = density * GRID * mpmath.mpf(2) ** 256
        assert draws > 2**33
        # Both edges of a step, by at most one draw and by the error of the quantile; e^(z grid) is the slope inside it.
        error = 2 / draws + 2 * EDGE_ERROR * REACH / GRID * mpmath.exp(REACH * GRID)
        assert error < mpmath.mpf(CELL_ERROR)
        assert 2 * mpmath.ncdf(-REACH) * (1 + error) + mpmath.mpf(2) ** -256 < CELL_TAIL


def test_the_quantile_is_as_precise_as_promised():
    """ndtri, from 2^-257 to 1/2, against 50 digits: within 6 * 2^-53 of max(1, |z|); 2 are for what surrounds it."""
    random = np.random.default_rng(1)
    tails = np.concatenate([2.0 ** -random.uniform(1, 257, 1500), random.uniform(0.05, 0.5, 1500)])
    with mpmath.workdps(50):
        for tail in tails.tolist():
            found = mpmath.mpf(float(special.ndtri(tail)))
            exact = found
            for _ in range(2):  # Newton, on the logarithm: each step squares the error
                below = mpmath.ncdf(exact)
                exact -= mpmath.log(below / mpmath.mpf(tail)) * below / mpmath.npdf(exact)
            assert abs(found - exact) <= 6 * 2.0**-53 * max(1, abs(exact))


def test_the_tail_quantile_is_as_precise_as_promised():
    """Zero cells: ln U + log_ndtr(-bound), then ndtri_exp: edges of steps, as parts of the step's probability."""
    random = np.random.default_rng(2)
    with mpmath.workdps(50):
        for bound, log_u in zip(random.uniform(-2.33, 9, 600), -random.exponential(20, 600), strict=True):
            found = float(log_u + special.log_ndtr(-bound))
            z = -float(special.ndtri_exp(found) if found < math.log(0.5) else special.ndtri(math.exp(found)))
            if not bound <= z <= REACH:
                continue
            exact = mpmath.log(mpmath.ncdf(-mpmath.mpf(z)))
            wanted = mpmath.mpf(float(log_u)) + mpmath.log(mpmath.ncdf(-mpmath.mpf(float(bound))))
            step = mpmath.npdf(z) / mpmath.ncdf(-mpmath.mpf(z)) * GRID
            slack = 2.0**-53 * (abs(float(log_u)) + 1)  # of the logarithm of U itself
            assert (abs(exact - wanted) + slack) / step < CELL_ERROR / 2


def test_how_many_cells_a_user_touches():
    """The gate is one more in each release."""
    assert touched([300] * 9, [1] * 9, 1, individual_budgets=False) == (2701, 8)
    assert touched([7, 5], [1, 1], 10, individual_budgets=False) == (130, 10)
    assert touched([1_000_000] * 64, [1] * 64, 1, individual_budgets=False) == (64_000_001, 63)
    whole = 1 << 24  # a weight is at least 2^-12
    assert touched([300], [3], 1, individual_budgets=True) == (901, 0)
    # From level 2 on: one noisy count more, and five numbers of zero cells for each stratum.
    assert touched([300, None], [3, 3], 4, individual_budgets=True) == (4 * (whole + 2), 4 * 5 * MAX_STRATA)
    assert touched([300, *[None] * 63], [3] * 64, 1, individual_budgets=True)[0] == whole + 64


@pytest.mark.parametrize(("epsilon", "delta"), [(4, 1e-7), (0.5, 1e-12), (75, 1e-7), (4, 1e-40), (1, 0.1)])
@pytest.mark.parametrize(("cells", "counts"), [(1, 0), (3, 1), (2700, 8), (1 << 24, 11264), (64_000_000, 63)])
def test_the_cost_against_high_precision(epsilon, delta, cells, counts):
    cost = rounding_cost(epsilon, delta, cells, counts)
    with mpmath.workdps(60):
        tail = cells * mpmath.mpf(CELL_TAIL) + counts * mpmath.mpf(COUNT_TAIL)
        spread = cells * mpmath.mpf(CELL_ERROR) ** 2 + counts * mpmath.mpf(COUNT_ERROR) ** 2
        amplified = 1 + mpmath.exp(epsilon)
        chance = delta * mpmath.mpf(2) ** -20 / amplified
        martingale = tail + 2 * spread + mpmath.sqrt(2 * spread * mpmath.log(1 / chance))
        factors = min(cells * CELL_ERROR + counts * COUNT_ERROR, martingale)
        assert 0 <= cost.epsilon / (2 * factors) - 1 < 1e-9
        assert 0 <= cost.delta / (amplified * (tail + chance)) - 1 < 1e-6
        left_epsilon, left_delta = cost.left(epsilon, delta)
        assert left_epsilon + 2 * factors <= epsilon
        assert mpmath.exp(factors) * left_delta + amplified * (tail + chance) <= delta


@pytest.mark.parametrize(("epsilon", "delta", "cells"), [(200, 1e-7, 1), (4, 1e-70, 1), (1e-5, 1e-7, 1 << 24)])
def test_what_does_not_fit_is_refused(epsilon, delta, cells):
    with pytest.raises(ParameterError, match="must be"):
        rounding_cost(epsilon, delta, cells)


def test_switching_bound():
    assert switching_bound(2**30) == 2.0**-69
    assert switching_bound(2**40) == 2.0**-49


# The same construction with few bits: every draw is enumerated, so the law is known exactly.

SMALL_GRID = 0.25


def small_law(bits, weight, more=0, far=0):
    """{step: probability} of floor((weight + z) / grid), where z is the quantile of `bits` bits, in tails of `more`.

    A draw whose folded value is below 2^far has the further bits.
    """
    law = {}
    for draw in range(1 << bits):
        upper = draw >> (bits - 1)
        folded = (1 << bits) - 1 - draw if upper else draw
        extra = 1 << more if folded < 1 << far else 1
        for rest in range(extra):
            z = float(special.ndtri((folded * extra + rest + 0.5) / ((1 << bits) * extra)))
            step = math.floor((weight + (-z if upper else z)) / SMALL_GRID)
            law[step] = law.get(step, 0.0) + 1 / ((1 << bits) * extra)
    return law


def exact_law(steps, weight):
    edges = [(step * SMALL_GRID - weight, (step + 1) * SMALL_GRID - weight) for step in steps]
    return {
        step: float(special.ndtr(-low) - special.ndtr(-high) if low > 0 else special.ndtr(high) - special.ndtr(low))
        for step, (low, high) in zip(steps, edges, strict=True)
    }


def small_constants(bits):
    """REACH, error and tail of a cell by the rules above, for draws of so many bits and an exact quantile."""
    reach = max(z for z in np.arange(0, 10, SMALL_GRID) if math.exp(-z * z / 2) / 2.5067 * SMALL_GRID * 2**bits > 64)
    error = 2 / (math.exp(-reach * reach / 2) / 2.5067 * SMALL_GRID * 2**bits)
    return reach, -math.log1p(-error), 2 * float(special.ndtr(-reach)) * (1 + error) + 2.0**-bits


@pytest.mark.parametrize(("bits", "more", "far"), [(12, 0, 0), (16, 0, 0), (12, 8, 7)])
@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_every_draw_of_a_small_version(bits, more, far, weight):
    """Within its reach every step has its exact probability to the charged factor, and the tails are as charged.

    Further bits in the tails do what more bits everywhere would do: 12 + 8 reach further than 16.
    """
    law = small_law(bits, weight, more, far)
    reach, error, tail = small_constants(bits + more)
    inside = [step for step in range(-80, 80) if abs((step + 0.5) * SMALL_GRID - weight) + SMALL_GRID / 2 <= reach]
    exact = exact_law(inside, weight)
    assert all(abs(math.log(law[step] / exact[step])) <= error for step in inside)
    assert 1 - sum(law[step] for step in inside) <= tail + 2 * SMALL_GRID
    assert (reach > small_constants(16)[0]) == (bits + more > 16)


@pytest.mark.parametrize("bits", [12, 16])
def test_the_charge_is_enough_and_needed(bits):
    """Two cells with weights 0.6 and 0.8 of one user, and without: the delta of the small version, by enumeration.

    It is more than the Gaussian's, so something must be charged; and no more than `e^e delta_0 + (1 + e^epsilon) t`.
    """
    cells = [(small_law(bits, 0.0), small_law(bits, weight)) for weight in (0.6, 0.8)]
    _, error, tail = small_constants(bits)
    needed = 0
    for epsilon in (1.0, 3.0, 5.0, 7.0):
        for present, absent in ((1, 0), (0, 1)):
            found = sum(
                max(
                    0.0,
                    math.prod(cell[present].get(step, 0.0) for cell, step in zip(cells, steps, strict=True))
                    - math.exp(epsilon)
                    * math.prod(cell[absent].get(step, 0.0) for cell, step in zip(cells, steps, strict=True)),
                )
                for steps in itertools.product(*(cell[present] for cell in cells))
            )
            exact = float(special.ndtr(0.5 - epsilon) - math.exp(epsilon) * special.ndtr(-0.5 - epsilon))
            inner = epsilon - 2 * 2 * error
            left = float(special.ndtr(0.5 - inner) - math.exp(inner) * special.ndtr(-0.5 - inner))
            assert found <= math.exp(2 * error) * left + (1 + math.exp(epsilon)) * 2 * tail
            needed += found > exact
    assert needed

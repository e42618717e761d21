"""Laws of chance: precise at their ends, and the right ones."""

import collections
import math

import mpmath
import numpy as np
import pytest
from scipy import special, stats

from dpngram.transforms.randomness.draws import binomial, distinct_ranks, standard_normal, tail_normal, uniform
from dpngram.transforms.randomness.prf import Prf

KEY = bytes(range(32))


def test_uniform_keeps_its_precision_near_zero():
    words = np.array([[0, 0], [0, 1], [1, 0], [2**64 - 1, 2**64 - 1]], np.uint64)
    assert uniform(words).tolist() == pytest.approx([2.0**-129, 1.5 * 2.0**-128, 2.0**-64, 1.0], rel=1e-15, abs=0)


class Further:
    """In place of a keyed function: these words are the further bits of every draw."""

    def __init__(self, *words):
        self.words = words

    def encrypt(self, bits):
        return np.array([self.words] * len(bits), np.uint64)


def test_normal_is_symmetric_and_finite():
    words = np.array([[0, 0], [5, 9], [2**24, 7], [2**62, 3], [2**63 - 1, 2**64 - 1]], np.uint64)
    z = standard_normal(words, Further(0, 0))
    assert np.isfinite(z).all()
    assert (standard_normal(~words, Further(0, 0)) == -z).all()
    assert z[0] == pytest.approx(special.ndtri(2.0**-257), rel=1e-15)
    assert -18.7 < z[0] < -18.6


def test_draws_in_the_far_tail_have_256_bits():
    """Below 2^-40 the further bits count, from the value of the same function; above it nothing is asked for."""
    words = np.array([[2**24 - 1, 1], [2**24, 1]], np.uint64)
    prf = Prf(KEY)
    more = [int.from_bytes(row.tobytes(), "little") for row in prf.encrypt(words)[:, ::-1]]
    exact = (((2**24 - 1) << 192) + (1 << 128) + (more[0] % 2**64) + (more[0] >> 64 << 64) + 0.5) / 2.0**256
    assert standard_normal(words, prf)[0] == pytest.approx(special.ndtri(exact), rel=1e-15)
    bits = np.array([[0, 0]], np.uint64)
    seen = [float(standard_normal(bits, Further(high, low))[0]) for high, low in [(0, 0), (1, 0), (2**63, 0)]]
    assert seen == pytest.approx([float(special.ndtri(u)) for u in (2.0**-257, 2.0**-192, 2.0**-129)], rel=1e-14)
    assert standard_normal(words[1:], None)[0] == pytest.approx(special.ndtri((2**24 << 64) / 2.0**128), rel=1e-14)


def test_normal_law():
    """Kolmogorov-Smirnov over 10^6 draws; a fixed key, so it passes always or never. p-value 1e-4 was the bar."""
    prf = Prf(KEY)
    z = standard_normal(prf.blocks(np.arange(10**6, dtype=np.uint64), 0), prf)
    assert stats.kstest(z, "norm").pvalue > 1e-4


@pytest.mark.parametrize("bound", [-2.0, 0.0, 3.0, 9.0])
def test_tail_law(bound):
    prf = Prf(KEY)
    z = tail_normal(prf.blocks(np.arange(10**5, dtype=np.uint64), 1), bound, prf)
    assert (z >= bound).all()
    assert stats.kstest(np.exp(special.log_ndtr(-z) - special.log_ndtr(-bound)), "uniform").pvalue > 1e-4


@pytest.mark.parametrize(
    ("count", "chance"), [(42, 0.6), (2**30, 0.5001), (2**62, 2.0**-42), (2**40, 1e-12), (2**31, 0.02), (10**6, 0.99)]
)
def test_binomial_against_exact_quantiles(count, chance):
    """The draw changes from k to k + 1 where the exact distribution function does, to 2^-25 of P[k], at many places.

    Exact in 70 digits, by the regularised incomplete beta function: P[X <= k] = I_{1-p}(count - k, k + 1).
    """
    deviation = math.sqrt(count * chance * (1 - chance))
    with mpmath.workdps(70):
        for z in (-15, -8, -3, 0, 0.5, 3, 8, 15) if deviation < 2000 else (-8, 0.5):
            k = math.floor(count * chance + z * deviation)
            if not 0 <= k < count:
                continue
            below, here = cumulative(count, chance, k - 1), probability(count, chance, k)
            if here < 2.0**-224:
                continue
            for place, expected in ((2.0**-24, k), (1 - 2.0**-24, k)):
                assert binomial(four_words(below + here * place), count, chance) == expected
            if k:
                assert binomial(four_words(below - here * 2.0**-24), count, chance) == k - 1


def probability(count, chance, k):
    p = mpmath.mpf(chance)
    logs = mpmath.loggamma(count + 1) - mpmath.loggamma(k + 1) - mpmath.loggamma(count - k + 1)
    return mpmath.exp(logs + k * mpmath.log(p) + (count - k) * mpmath.log1p(-p))


def cumulative(count, chance, k):
    """P[X <= k]: the shorter tail, summed from its largest term."""
    p = mpmath.mpf(chance)
    odds = p / (1 - p)
    if k < 0:
        return mpmath.mpf(0)
    low = k <= count * chance
    at = k if low else k + 1
    term = probability(count, chance, at)
    total = mpmath.mpf(0)
    while term > total * mpmath.mpf(2) ** -90 and 0 <= at <= count:
        total += term
        if low:
            term *= at / (count - at + 1) / odds
            at -= 1
        else:
            term *= (count - at) / mpmath.mpf(at + 1) * odds
            at += 1
    return total if low else 1 - total


def four_words(u):
    bits = int(mpmath.floor(u * mpmath.mpf(2) ** 256))
    return np.array([[bits >> shift & (2**64 - 1) for shift in (192, 128, 64, 0)]], np.uint64)


def test_every_set_of_ranks_is_equally_probable():
    """20,000 sets of 3 of 7 and of 5 of 7 ranks: chi-square over the 35 and 21 sets. Fixed keys; bar 1e-6."""
    for count, sets in ((3, 35), (5, 21)):
        seen = collections.Counter()
        for run in range(20_000):
            ranks = distinct_ranks(7, count, Prf(run.to_bytes(32, "little")), 4)
            assert len(ranks) == count
            assert (np.diff(ranks) > 0).all()
            seen[tuple(ranks.tolist())] += 1
        assert len(seen) == sets
        expected = 20_000 / sets
        assert sum((n - expected) ** 2 / expected for n in seen.values()) < stats.chi2.isf(1e-6, sets - 1)


def test_ranks_of_every_size():
    prf = Prf(KEY)
    assert distinct_ranks(10, 0, prf, 0).tolist() == []
    assert distinct_ranks(10, 10, prf, 0).tolist() == list(range(10))
    for size in (2**62, 2**63 - 1, 3 * 2**60):  # words beyond the last multiple are left out: all parts are as likely
        ranks = distinct_ranks(size, 60_000, prf, 1)
        counts = np.bincount((ranks // (size // 16 + 1)).astype(np.int64), minlength=16)
        assert ((counts - 3750) ** 2 / 3750).sum() < stats.chi2.isf(1e-6, 15)
    many = distinct_ranks(2**21, 600_000, prf, 2)  # more than are drawn at a time
    assert len(np.unique(many)) == 600_000

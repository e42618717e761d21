"""Floating point: what is released lies on the grid, and an attack on low bits gains nothing, though it breaks a naive
build (Mironov 2012; Jin et al. 2022); the discrete law of the noise, by Kolmogorov-Smirnov, chi-square and tails.

Keys are fixed, so outcomes are; bands are computed from the flake rates that random keys would have.
"""

import functools
import itertools

import numpy as np
import pytest
from scipy import special, stats

from dpngram.accounting import plan_extraction
from dpngram.accounting.numerics import REACH
from dpngram.transforms.add_spurious_grams import complete_level
from dpngram.transforms.blocks.cells import CellBlock
from dpngram.transforms.blocks.columns import split_binary
from dpngram.transforms.blocks.levels import EMPTY_LEVEL, Level
from dpngram.transforms.decode_grams import decode_level
from dpngram.transforms.noisy_threshold import threshold_cells
from dpngram.transforms.policies import make_rounds
from dpngram.transforms.policies.plus import PlusCount
from dpngram.transforms.randomness.draws import standard_normal
from dpngram.transforms.randomness.noise import UNIT, Noise
from dpngram.transforms.randomness.prf import Prf, derive_key

KEY = b"p" * 32
SIGMAS = np.geomspace(0.03, 3e7, 20)  # up to just below the largest that is allowed, none a round number
DRAWS = 10**7  # for each of them
CHUNK = 1 << 19
FLAKE = 1e-6  # of each test, over all of its comparisons
WORDS = 255


def first_level(policy, sigma):
    """S_1 of 255 words with weights over three orders of magnitude."""
    import pyarrow as pa

    offsets, data = split_binary(pa.array([b"%03d" % i for i in range(WORDS)], pa.large_binary()))
    weight = np.floor(np.geomspace(20, 20_000, WORDS) * sigma / Noise(sigma).grid).astype(np.int64)
    digests = Prf(KEY).strings(offsets, data)
    return policy.finish(Level.first(offsets, data, digests, weight, Noise(sigma).grid, 0.0), EMPTY_LEVEL)


def cells_of(sigma, key):
    """Every bigram but each ninth, which nobody has; weights 12 to 40 sigma, in units of 2^-32."""
    pairs = np.array([a << 32 | b for a, b in itertools.product(range(WORDS), repeat=2)], np.uint64)
    keys = pairs[np.arange(len(pairs)) % 9 > 0]
    spread = Prf(key).blocks(keys, 1)[:, 0] / 2.0**64
    return CellBlock(
        keys=keys,
        weight=((12 + 28 * spread) * sigma * UNIT).astype(np.int64),
    )


def whole_level(rounds, cells, previous, draw):
    """All rounds of level 2, each with these cells; in a count nobody vouches for anything."""
    found = EMPTY_LEVEL
    for policy in rounds:

        def drawn(purpose, number=policy.number):
            return draw(f"{purpose} {number}")

        if isinstance(policy, PlusCount):
            return policy.release(0, previous, found, drawn("count"))
        cutoffs = policy.cutoffs(previous, found)
        part = threshold_cells(cells, cutoffs, drawn, past=found.name or previous.name)
        found = complete_level([part], previous, found, policy, drawn)
    return found


@pytest.mark.parametrize("policy_name", ["paper", "plus"])
def test_released_weights_lie_on_the_grid(policy_name):
    """More than 500,000 released weights for each policy, ten plans each: every one a multiple of the public grid,
    as an exact rational number; users' grams and spurious ones alike, through threshold, spurious grams and decoding.
    """
    total = spurious = 0
    for number, epsilon in enumerate(np.geomspace(0.02, 40, 10)):
        plan = plan_extraction(
            epsilon=float(epsilon), delta=1e-6, max_n=2, max_contributions=20, eta=0.5, policy=policy_name
        )
        rounds, sigma = make_rounds(plan), plan.level(2).sigma
        key = derive_key(KEY, policy_name, number)
        previous, cells = first_level(rounds[0][0], plan.level(1).sigma), cells_of(sigma, key)

        def draw(purpose, key=key):
            return Prf(derive_key(key, purpose))

        level = whole_level(rounds[1], cells, previous, draw)
        table = next(decode_level(level, [previous], "both", rows=len(level)))
        step = Noise(sigma).step
        units = table.weight * UNIT  # a power of two: exact
        assert (np.abs(units) < 2.0**53).all()
        assert (units == np.floor(units)).all()
        assert (units.astype(np.int64) % step == 0).all()
        assert float(level.grid) == step / UNIT
        # The noise is there: hardly any two of these lie on the same step.
        assert len(np.unique(level.weight)) > len(level) / 2
        total += len(table)
        spurious += int((~np.isin(level.keys, cells.keys)).sum())
    assert total > 500_000
    assert spurious > (80 if policy_name == "paper" else 10)


def naive(weight, sigma, uniform):
    """The build that is not ours: a floating-point Gaussian from uniforms of 53 bits, added in floating point."""
    return weight + sigma * special.ndtri(uniform)


def in_naive_image(seen, weight, sigma):
    """Whether some uniform of 53 bits gives exactly this value: try those around the one that the inverse names."""
    nearest = np.rint(special.ndtr((seen - weight) / sigma) * 2.0**53)
    tried = [naive(weight, sigma, np.clip(nearest + d, 1, 2.0**53 - 1) * 2.0**-53) == seen for d in range(-6, 7)]
    return np.logical_or.reduce(tried)


def in_our_image(steps, weight, noise):
    """Whether some 128 bits give exactly this step: try those that the inverse names for the middle of the step."""
    middle = (steps.astype(np.float64) + 0.5) * noise.step - weight
    z = middle / (noise.sigma * UNIT)
    words = words_of_quantile(special.ndtr(-np.abs(z)), z > 0)
    return noise.noisy(np.full(len(steps), weight), words[:, :2], Further(words)) == steps


def words_of_quantile(tail, upper):
    """256 bits, the first 128 of which have the uniform `tail`, or its complement; the others are as in the tail."""
    words, rest = [], tail
    for _ in range(4):
        rest = rest * 2.0**64
        words.append(np.floor(rest).astype(np.uint64))
        rest = rest - np.floor(rest)
    words = np.stack(words, axis=1)
    words[:, :2] = np.where(upper[:, None], ~words[:, :2], words[:, :2])
    return words


class Further:
    """In place of a keyed function: gives the further bits of those draws that ask for them, in order."""

    def __init__(self, words):
        first = words[:, 0]
        self.words = words[np.minimum(first, ~first) < 2**24, 2:]

    def encrypt(self, bits):
        assert len(bits) == len(self.words)
        return self.words


@pytest.mark.parametrize("sigma", [0.7, 4.03, 37.3, 1000.1])
def test_the_precision_attack(sigma):
    """One user's eight grams, each of which nobody else has, are there (weight 1/sqrt(8)) or not. The attacker sees the
    noisy weights of the eight cells, and looks which of the two weights could have given exactly these numbers.

    Of 4,000 tries, half of each kind, the naive build is read correctly in more than 99 %. Ours gives numbers that both
    weights could have given, always, so the attacker is left with a coin: 1/2 within the band of flake rate 1e-6.
    """
    tries, grams = 4_000, 8
    given = int(UNIT / np.sqrt(grams))
    truth = np.arange(tries) % 2 == 1
    prf = Prf(derive_key(KEY, "attack", str(sigma)))
    words = prf.blocks(np.arange(tries * grams, dtype=np.uint64), 0)
    coins = Prf(derive_key(KEY, "coins")).blocks(np.arange(tries, dtype=np.uint64), 0)[:, 0] >> np.uint64(63) == 1
    weight = np.repeat(np.where(truth, given, 0), grams)

    def accuracy(possible_without, possible_with):
        without, with_ = (found.reshape(tries, grams).sum(axis=1) for found in (possible_without, possible_with))
        return np.mean(np.where(with_ == without, coins, with_ > without) == truth)

    uniform = ((words[:, 0] >> np.uint64(11)) | np.uint64(1)) * 2.0**-53
    seen = naive(weight / UNIT, sigma, uniform)
    broken = accuracy(in_naive_image(seen, 0.0, sigma), in_naive_image(seen, given / UNIT, sigma))
    assert broken > 0.99

    noise = Noise(sigma)
    steps = noise.noisy(weight, words, prf)
    absent, present = in_our_image(steps, 0, noise), in_our_image(steps, given, noise)
    assert absent.all()
    assert present.all()
    band = stats.norm.isf(FLAKE / 2) * 0.5 / np.sqrt(tries)
    assert abs(accuracy(absent, present) - 0.5) < band


@pytest.mark.parametrize("sigma", SIGMAS[::4])
def test_both_weights_have_the_same_support(sigma):
    """Every step within REACH standard deviations, one by one, can come from a cell with the user and without.

    Beyond them lies a probability of 2^-210, which plans pay for.
    """
    noise = Noise(sigma)
    steps = np.arange(-17 << 14, (17 << 14) + 1)
    for given in (0, 1, UNIT // 3, UNIT):
        possible = steps[np.abs(steps * noise.step - given) < REACH * sigma * UNIT]
        assert in_our_image(possible, given, noise).all()
    # What lies above the floor of zero cells can be reached by spurious grams, and by those that users have.
    least = np.int64(3 << 14)
    above = steps[(steps >= least) & (noise.bound(steps) < REACH)]
    bound = noise.bound(least)
    tail = np.exp(special.log_ndtr(-noise.bound(above + 0.5)) - special.log_ndtr(-bound))
    words = words_of_quantile(tail, np.zeros(len(tail), bool))
    assert (noise.zero_cells(words[:, :2], least, Further(words)) == above).all()


def test_low_bits_tell_nothing():
    """The last six bits of released steps, with a user's weight and without: uniform both times, by chi-square."""
    noise, draws = Noise(4.03), 10**6
    prf = Prf(derive_key(KEY, "low bits"))
    words = prf.blocks(np.arange(2 * draws, dtype=np.uint64), 0)
    for weight, mine in ((0, words[:draws]), (int(UNIT / 3), words[draws:])):
        counts = np.bincount(noise.noisy(np.full(draws, weight), mine, prf) & 63, minlength=64)
        assert ((counts - draws / 64) ** 2 / (draws / 64)).sum() < stats.chi2.isf(FLAKE / 2, 63)


@functools.cache
def histogram(number):
    """10^7 noisy values under one sigma: how many lie on each step, z at the upper ends of steps, and the law there."""
    noise = Noise(float(SIGMAS[number]))
    weight = 0 if number % 2 else int(0.37 * UNIT)
    prf = Prf(derive_key(KEY, "law", number))
    reach = 14 << 14  # 14 sigma; a draw further out has probability 2^-146
    origin = weight // noise.step
    counts = np.zeros(2 * reach, np.int64)
    for start in range(0, DRAWS, CHUNK):
        words = prf.blocks(np.arange(start, min(start + CHUNK, DRAWS), dtype=np.uint64), 0)
        noisy = noise.noisy(np.full(len(words), weight), words, prf)
        counts += np.bincount(noisy - origin + reach, minlength=2 * reach)
    ends = (np.arange(-reach, reach) + 1 + origin) * noise.step - weight  # exclusive
    return np.cumsum(counts), ends / (noise.sigma * UNIT)


def tails(seen, z, bound):
    """How many lie beyond -bound and bound, and the chances of that; at the ends of the steps that hold these."""
    lower, upper = np.searchsorted(z, [-bound, bound])
    return (seen[lower], special.ndtr(z[lower])), (seen[-1] - seen[upper], special.ndtr(-z[upper]))


def in_band(count, draws, chance, flake):
    low, high = stats.binom.ppf([flake / 2, 1 - flake / 2], draws, chance)
    return low <= count <= high


@pytest.mark.parametrize("number", range(len(SIGMAS)))
def test_gaussian_on_the_grid(number):
    """The exact discrete law: Pr[noisy <= k] = Phi(((k + 1) step - weight) / sigma) on every step of the grid.

    Kolmogorov-Smirnov (Massart's bound 2 exp(-2 n d^2), good for discrete laws too), chi-square over 200 bins, and the
    numbers beyond 3, 4 and 5 sigma on either side (binomial). 1e-6 / 20 for each sigma, split over the eight.
    """
    flake = FLAKE / len(SIGMAS) / 8
    seen, z = histogram(number)
    law = special.ndtr(z)
    assert seen[-1] == DRAWS
    assert np.abs(seen / DRAWS - law).max() < np.sqrt(np.log(2 / flake) / (2 * DRAWS))

    cuts = np.searchsorted(law, np.arange(1, 200) / 200)
    observed = np.diff(np.concatenate([[0], seen[cuts], [DRAWS]]))
    expected = np.diff(np.concatenate([[0.0], law[cuts], [1.0]])) * DRAWS
    assert ((observed - expected) ** 2 / expected).sum() < stats.chi2.isf(flake, 199)

    for bound in (3, 4, 5):
        assert all(in_band(count, DRAWS, chance, flake) for count, chance in tails(seen, z, bound))


def test_far_tails():
    """All sigmas together, 2 * 10^8 draws: the numbers beyond 4.5, 5 and 5.5 sigma on either side."""
    for bound in (4.5, 5, 5.5):
        found = [tails(*histogram(number), bound) for number in range(len(SIGMAS))]
        for side in (0, 1):
            count = sum(one[side][0] for one in found)
            assert in_band(count, DRAWS * len(SIGMAS), np.mean([one[side][1] for one in found]), FLAKE / 6)


@pytest.mark.parametrize("bound", [0.5, 3.0, 6.9])
def test_zero_cells_on_the_grid(bound):
    """Spurious grams have the law of a cell of weight 0 that reaches its floor, step by step: the same tests."""
    draws = DRAWS // 100
    flake = FLAKE / 3 / len(SIGMAS) / 2
    for number, sigma in enumerate(SIGMAS):
        noise = Noise(float(sigma))
        least = noise.least(bound * float(sigma))
        prf = Prf(derive_key(KEY, "zero", number, str(bound)))
        words = prf.blocks(np.arange(draws, dtype=np.uint64), 0)
        counts = np.bincount(noise.zero_cells(words, np.int64(least), prf) - least)
        ends = noise.bound(least + 1 + np.arange(len(counts)))
        above = np.exp(special.log_ndtr(-ends) - special.log_ndtr(-noise.bound(least)))
        seen = np.cumsum(counts)
        assert np.abs(seen / draws - (1 - above)).max() < np.sqrt(np.log(2 / flake) / (2 * draws))
        cuts = np.unique(np.searchsorted(1 - above, np.arange(1, 50) / 50))
        observed = np.diff(np.concatenate([[0], seen[cuts], [draws]]))
        expected = -np.diff(np.concatenate([[1.0], above[cuts], [0.0]])) * draws
        assert ((observed - expected) ** 2 / expected).sum() < stats.chi2.isf(flake, len(cuts))


def test_the_tests_have_teeth(monkeypatch):
    """A build without the grid, one with a sigma too small by 0.4 %, and one whose tails end at 3.9 sigma all fail."""

    def finer(self, weight, words, prf):
        noise = np.floor(standard_normal(words, prf) * (self.sigma * UNIT)).astype(np.int64)
        return (weight + noise) / self.step

    def smaller(self, weight, words, prf):
        noise = np.floor(standard_normal(words, prf) * (self.sigma * 0.996 * UNIT)).astype(np.int64)
        return (weight + noise) // self.step

    def shorter(self, weight, words, prf):
        z = np.clip(standard_normal(words, prf), -3.9, 3.9)
        return (weight + np.floor(z * (self.sigma * UNIT)).astype(np.int64)) // self.step

    for build, check in (
        (finer, lambda: test_released_weights_lie_on_the_grid("paper")),
        (smaller, lambda: test_gaussian_on_the_grid(7)),
        (shorter, lambda: test_gaussian_on_the_grid(7)),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(Noise, "noisy", build)
            histogram.cache_clear()
            with pytest.raises(AssertionError):
                check()
    histogram.cache_clear()

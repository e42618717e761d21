"""Policy plus against its description read literally: dicts, Python's integers, an explicit V_k, the same keyed draws.

What the reference takes from the library is the randomness (noise, the walk over zero cells, the binomial draw), whose
law is tested in tests/statistical; budgets, guides, weights, strata, tallies, thresholds and rounds are its own.
"""

import collections
import math

import numpy as np
import pytest
from helpers.reference import Reference, grams, random_corpus, to_blocks, words_of
from scipy import special

from dpngram.accounting import plan_extraction
from dpngram.transforms import policies
from dpngram.transforms.blocks.levels import EMPTY_LEVEL
from dpngram.transforms.policies.plus import PlusRound
from dpngram.transforms.randomness.draws import standard_normal
from dpngram.transforms.testing import extract_in_memory, key_source
from dpngram.transforms.tokenizers import make_tokenizer

UNIT = 2**32


class PlusReference(Reference):
    def __init__(self, posts, plan, source, levels):
        super().__init__(posts, plan, source, "both")
        self.spurious, self.rounds = 0, collections.Counter()
        self.levels = levels  # the library's S_k by (level, round), for its draws only
        self.policies = policies.make_rounds(plan)

    def run(self):
        plan = self.plan
        q = [level.share for level in plan.levels]
        budget = dict.fromkeys(self.posts, 2**64 - 1)
        weight_of = [{}]  # published weights of each level, in steps
        for k in range(1, plan.max_n + 1):
            sigma = plan.level(k).sigma
            step = max(1, int(sigma * UNIT / 2**14))
            before = weight_of[k - 1]
            rows = {gram: row for row, gram in enumerate(sorted(before, key=encoded))}
            first = {gram: row for row, gram in enumerate(sorted(weight_of[min(1, k - 1)], key=encoded))}
            valid = {x + y for x in before for y in first} & {x + y for x in first for y in before} if k > 1 else set()
            mine, allowance = {}, {}
            for user, posts in self.posts.items():
                candidates = set().union(*(grams(post, k) for post in posts))
                mine[user] = candidates & valid if k > 1 else candidates
                run = max((longest(post, k, mine[user]) for post in posts), default=0)
                reach = q[k - 1 : min(max(k, k - 1 + run), plan.max_n)]
                allowed = int(float(budget[user]) * (q[k - 1] / float(np.cumsum(reach)[-1]) * (1 - 2.0**-48)))
                allowance[user] = min(allowed, budget[user])
            guide = {gram: self.guide(gram, weight_of, step, sigma) for gram in valid} if k > 1 else {}
            released = {}
            for number, part in enumerate(plan.level(k).rounds):
                draw = self.source.draws(k, number, b"global", self.source.binding(self.fingerprint))
                name = {gram: self.name(gram, rows, first) for gram in set().union(*mine.values())}
                histogram = collections.Counter()
                for user in self.posts:
                    open_grams = mine[user] - released.keys()
                    if k == 1:
                        keyed = {
                            g: int(words_of(draw("clip"), self.user_name[user], name[g][0])[0, 0]) for g in open_grams
                        }
                        open_grams = sorted(open_grams, key=keyed.get)[: plan.level(1).max_contributions]
                    norm = sum(guide.get(gram, 2**16) ** 2 for gram in open_grams)
                    scale = math.sqrt(float(allowance[user]) * part.share / float(max(norm, 2**32))) * (1 - 2.0**-40)
                    for gram in open_grams:
                        weight = int(scale * guide.get(gram, 2**16))
                        weight *= weight >= 2**20
                        histogram[gram] += weight
                        budget[user] -= weight**2
                    assert budget[user] >= 0
                noisy = {}
                for gram, weight in histogram.items():
                    if weight:
                        z = float(standard_normal(words_of(draw("noise"), *name[gram]), draw("noise"))[0])
                        noisy[gram] = (weight + math.floor(z * (sigma * UNIT))) // step
                if k == 1:
                    passed = {gram: value for gram, value in noisy.items() if value * step >= part.rho * UNIT}
                    zero = {}
                else:
                    open_cells = valid - released.keys()
                    stratum = {gram: self.stratum(gram, weight_of, step, sigma) for gram in valid}
                    size = collections.Counter(stratum[gram] for gram in open_cells)
                    zero, below = self.zero_cells(
                        self.policies[k - 1][number], draw, rows, first, set(noisy), released, stratum, size
                    )
                    for gram, value in noisy.items():
                        below[stratum[gram]] += value < 0
                    least = self.thresholds(size, below, {**noisy, **zero}, stratum, len(before), sigma, step)
                    passed = {g: v for g, v in {**noisy, **zero}.items() if v >= least[stratum[g]]}
                for gram, value in passed.items():
                    factor = guide[gram] / 2**16 if k > 1 else 1.0
                    released[gram] = math.floor(value / (factor * math.sqrt(part.share)))
                    self.spurious += gram in zero
                self.rounds[k, number] += len(passed)
            weight_of.append(released)
            grid = step / UNIT
            yield k, {gram: value * grid for gram, value in released.items()}
            if not released:
                return

    def name(self, gram, rows, first):
        if len(gram) == 1:
            digest = self._string(self.token_digest, gram[0])[0]
            return int(digest[0]), int(digest[1])
        return rows[gram[:-1]] << 32 | first[gram[-1:]], 0

    def log_weight(self, gram, weight_of, step, sigma):
        value = weight_of[len(gram)][gram] if gram else sum(weight_of[1].values())
        return round(math.log(max(value * (step / UNIT / sigma), 0.3)) * 256)

    def guide(self, gram, weight_of, step, sigma):
        a, b, y = (self.log_weight(part, weight_of, step, sigma) for part in (gram[:-1], gram[1:], gram[1:-1]))
        m = math.exp(min(a + b - y, a, b) / 256)
        return math.floor(max(0.35, min(1, m / 0.5)) * min(1, (4 / m) ** 0.6) * 2**16 + 2.0**-20)

    def stratum(self, gram, weight_of, step, sigma):
        a, b, y = (self.log_weight(part, weight_of, step, sigma) for part in (gram[:-1], gram[1:], gram[1:-1]))
        half = 0.5
        return math.floor((a - y / 2) / 256 / half) + math.floor((b - y / 2) / 256 / half)

    def zero_cells(self, policy, draw, rows, first, present, released, stratum, size):
        """The library's draws, checked against the explicit V_k, as grams; and the tally below zero."""
        previous = self.levels[policy.n - 1, len(self.plan.level(policy.n - 1).rounds) - 1]
        so_far = self.levels.get((policy.n, policy.number - 1), EMPTY_LEVEL)
        cut = policy.cutoffs(previous, so_far)
        low = min(stratum.values(), default=0)
        strata = range(low, low + len(cut.size))
        assert [size[s] for s in strata] == cut.size.tolist()
        prefixes, words = list(rows), list(first)
        keys, places = cut.zero_cells(draw("zero cells"))
        noisy = cut.noise.zero_cells(draw("zero weights").blocks(keys, 0), cut.floor[places], draw("zero weights"))
        found = {}
        for key, place, value in zip(keys.tolist(), places.tolist(), noisy.tolist(), strict=True):
            gram = prefixes[key >> 32] + words[key & 0xFFFFFFFF]
            assert stratum[gram] == place + low
            if gram not in present and gram not in released:
                found[gram] = value
        here = collections.Counter(stratum[gram] for gram in present)
        above = collections.Counter(stratum[gram] for gram in found)
        counts = [np.array([counter[s] for s in strata]) for counter in (here, above)]
        below = cut.zeros_below(*counts, draw("zero cells below"))
        return found, collections.Counter(dict(zip(strata, below.tolist(), strict=True)))

    def thresholds(self, size, below, noisy, stratum, previous, sigma, step):
        """One multiplier for all strata, bisected; every threshold on the grid tried."""
        eta = self.plan.eta
        grid = [math.ceil(sigma * place / 20 * UNIT / step) for place in range(10, 140)]
        strata = sorted(size)
        floor, reached, zeros = {}, {}, {}
        for s in strata:
            tail = min(0.4, max(20 * eta * previous, 50) / max(size[s], 1))
            z = min(6.9, max(0.5, float(special.ndtri(1 - tail))))
            floor[s] = grid[math.floor(z * 20 + 1e-6) - 10]
            values = [value for gram, value in noisy.items() if stratum[gram] == s and value >= floor[s]]
            reached[s] = [sum(value >= least for value in values) for least in grid] + [0]
            zeros[s] = min(size[s], 2 * below[s] + 2 * math.sqrt(below[s]) + 1)
        tail = [float(special.ndtr(-least * step / (sigma * UNIT))) for least in grid] + [0.0]
        grid.append(math.inf)

        def best(multiplier):
            choice = {}
            for s in strata:
                options = [j for j in range(len(grid)) if grid[j] >= floor[s]]
                choice[s] = max(options, key=lambda j: (reached[s][j] - multiplier * (zeros[s] * tail[j]), j))
            return choice

        low, high = 0.0, 1 / eta
        for _ in range(40):
            middle = (low + high) / 2
            choice = best(middle)
            spurious = sum(zeros[s] * tail[j] for s, j in choice.items())
            low, high = (
                (low, middle) if spurious <= eta * sum(reached[s][j] for s, j in choice.items()) else (middle, high)
            )
        return {s: grid[j] for s, j in best(high).items()}


def encoded(gram):
    return [token.encode() for token in gram]


def longest(post, k, candidates):
    """The longest run of positions of the post at which a candidate of length k starts."""
    marks = "".join(
        "x" if tuple(post[i : i + k]) in candidates and i + k <= len(post) else " " for i in range(len(post))
    )
    return max(map(len, marks.split(" ")))


@pytest.mark.parametrize("corpora", [60, pytest.param(250, marks=pytest.mark.campaign)])
def test_released_grams_are_identical(corpora):
    """Many corpora: every released gram with its weight, zero cells included, at every level."""
    random = np.random.default_rng(17)
    totals, rounds, spurious = collections.Counter(), collections.Counter(), 0
    for number in range(corpora):
        posts = {
            user: [[str(token) for token in post] for post in mine] for user, mine in random_corpus(random).items()
        }
        for copy in range(int(random.integers(0, 40))):
            posts[f"copy{copy}"] = posts["u0"]
        plan = plan_extraction(
            epsilon=float(random.choice([20.0, 60.0, 110.0])),
            delta=0.2,
            max_n=4,
            max_contributions=int(random.integers(1, 9)),
            eta=float(random.choice([0.05, 0.3])),
            policy="plus",
        )
        source = key_source(bytes([number]) * 32, number)
        levels = {}

        class Spy(PlusRound):
            def cutoffs(self, previous, earlier, levels=levels):
                if len(earlier):
                    levels[self.n, self.number - 1] = earlier
                if len(previous):
                    levels[self.n - 1, len(self.plan.level(self.n - 1).rounds) - 1] = previous
                return super().cutoffs(previous, earlier)

        original = policies.ROUND_POLICIES["plus"]
        policies.ROUND_POLICIES["plus"] = Spy
        try:
            tables = extract_in_memory(
                to_blocks(posts),
                plan,
                source,
                make_tokenizer("words"),
                shards=int(random.integers(1, 5)),
                histogram_shards=int(random.integers(1, 4)),
            )
        finally:
            policies.ROUND_POLICIES["plus"] = original
        reference = PlusReference(posts, plan, source, levels)
        for k, expected in reference.run():
            found = {tuple(gram.tokens): gram.weight for gram in tables[k].rows()}
            assert found == expected, (number, k)
            totals[k] += len(found)
        spurious += reference.spurious
        rounds += reference.rounds
    # The corpora must exercise what they are meant to.
    assert all(totals[k] > 100 for k in (1, 2, 3, 4)), totals
    assert spurious > 20
    assert all(rounds[round_] > 10 for round_ in [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)])

"""Policy plus, second edition, read literally: dicts, Python's integers, an explicit V_k, the same keyed draws.

What the reference takes from the library is the randomness: noise of a cell from keyed bits, the drawn zero cells, the
binomial draw (whose laws are tested in tests/statistical), and the names under which rounds draw. Budgets, guides,
strata, floors, weights, charges, tables, gain, ranks, count and cut are its own (tables: helpers/plus_tables.py).

One table is taken over: the law of heights. 150 steps of EM add up roundings, so the reference fits its own law,
compares it with the library's within 1e-7, and goes on with the library's.
"""

import bisect
import collections
import functools
import itertools
import math

import numpy as np
from helpers.plus_budgets import longest, spend, vouch
from helpers.plus_tables import (
    BINS,
    GROUPS,
    HEIGHTS,
    UNIT,
    WHOLE,
    ZERO_BIN,
    ZONE,
    Bins,
    Ranking,
    evidence,
    first_guide,
    fit_prior,
    rank_of,
)
from helpers.reference import Reference, grams, words_of
from scipy import special

from dpngram.transforms.policies.strata import Strata
from dpngram.transforms.randomness.draws import binomial, standard_normal, tail_normal


class PlusReference(Reference):
    """The second edition, level by level.

    Args:
        posts: {user: posts}.
        plan: of policy plus.
        source: of the draws.
        found: what the library found in each (level, round): names of draws, S_{k-1} for the walk, the law of heights.
        limits: numbers that need large corpora, unless they are made small.
        vocabulary: the words of a plan with a public vocabulary.
    """

    def __init__(self, posts, plan, source, found, limits, vocabulary=()):
        super().__init__(posts, plan, source, "both")
        self.vocabulary = vocabulary
        self.found, self.limits = found, limits
        self.sigma = plan.level(1).sigma
        self.bins = Bins(self.sigma)
        self.step = self.bins.step
        self.happened = collections.Counter()
        self.budget = dict.fromkeys(posts, 2**64 - 1)
        self.weight_of = [{}]  # published weights of each level, in steps

    def run(self):
        for k in range(1, self.plan.max_n + 1):
            self.start(k)
            if k == 1:
                released = self.listed_words() if self.plan.public_vocabulary else self.tokens()
            else:
                self.survey()
                self.second_look()
                released = self.count()
            self.weight_of.append(released)
            yield k, {gram: weight * (self.step / UNIT) for gram, weight in released.items()}
            if not released:
                return

    def start(self, k):
        """V_k, its strata, and for each user its grams of V_k and what it may spend."""
        self.k, self.shares = k, [part.share for part in self.plan.level(k).rounds]
        before, tokens = self.weight_of[k - 1], self.weight_of[min(1, k - 1)]
        self.rows = {gram: row for row, gram in enumerate(sorted(before, key=encoded))}
        self.first = {gram: row for row, gram in enumerate(sorted(tokens, key=encoded))}
        self.mine = {user: set().union(*(grams(post, k) for post in posts)) for user, posts in self.posts.items()}
        if k > 1:
            valid = {x + y for x in before for y in tokens} & {x + y for x in tokens for y in before}
            self.mine = {user: mine & valid for user, mine in self.mine.items()}
            self.stratum = {gram: self.half(gram[:-1], gram[1:-1]) + self.half(gram[1:], gram[1:-1]) for gram in valid}
            self.size = collections.Counter(self.stratum.values())
            self.strata = range(min(self.size), max(self.size) + 1) if valid else range(0)
            self.guide = {stratum: first_guide(stratum) for stratum in self.size}
        self.allowance, self.last = {}, set()
        shares = [level.share for level in self.plan.levels]
        for user, posts in self.posts.items():
            run = max((longest(post, k, self.mine[user]) for post in posts), default=0)
            reach = list(itertools.accumulate(shares[k - 1 : k - 1 + max(run, 1)]))[-1]
            allowed = int(float(self.budget[user]) * (shares[k - 1] / reach * (1 - 2.0**-48)))
            self.allowance[user] = min(allowed, self.budget[user])
            if run <= 1 or k == self.plan.max_n:
                self.last.add(user)

    def half(self, side, middle):
        """The bin, half a logarithm wide, of ln W(side) - 1/2 ln W(middle)."""
        return max(-128, min(127, (2 * self.log_weight(side) - self.log_weight(middle)) // 256))

    def log_weight(self, gram):
        weight = self.weight_of[len(gram)][gram] if gram else sum(self.weight_of[1].values())
        return round(math.log(max(weight * (self.step / UNIT / self.sigma), 0.3)) * 256)

    # Draws.

    def draw(self, number):
        """The keyed functions of a round of this level, under the name of what it goes on from."""
        before = (self.k, number - 1) if number else (self.k - 1, 2)
        past = self.found[before].name if before in self.found else 0
        return self.source.draws(self.k, number, b"global", self.source.binding(self.fingerprint), past)

    def name(self, gram):
        if self.k == 1:
            return tuple(map(int, self._string(self.token_digest, gram[0])[0]))
        return self.rows[gram[:-1]] << 32 | self.first[gram[-1:]], 0

    @functools.cache  # noqa: B019 (a reference is short-lived)
    def _string(self, prf, text):
        return super()._string(prf, text)

    def gram(self, key):
        return list(self.rows)[key >> 32] + list(self.first)[key & 0xFFFFFFFF]

    def noisy(self, weights, draw):
        """Weights with noise, in steps."""
        if not weights:
            return {}
        names = np.array([self.name(gram) for gram in weights], np.uint64)
        normal = standard_normal(draw("noise").blocks(names[:, 0], names[:, 1]), draw("noise")).tolist()
        noise = [math.floor(z * (self.sigma * UNIT)) for z in normal]
        return {gram: (weight + z) // self.step for (gram, weight), z in zip(weights.items(), noise, strict=True)}

    def zero_cells(self, floors, taken, draw):
        """The cells that are not `taken` and reach their floors by noise alone."""
        chance = [float(special.ndtr(-floors[s] * self.bins.to_sigma)) if s in floors else 0.0 for s in self.strata]
        walk = Strata(self.found[self.k - 1, 2], "both")
        assert walk.size.tolist() == [self.size[s] for s in self.strata]
        keys, places = walk.draw(np.array(chance), draw("zero cells"))
        least = [floors[self.strata[place]] for place in places]
        prf = draw("zero weights")
        normal = tail_normal(prf.blocks(keys, 0), np.array(least) * self.bins.to_sigma, prf).tolist() if least else []
        cells = {}
        for key, place, low, z in zip(keys.tolist(), places.tolist(), least, normal, strict=True):
            gram = self.gram(key)
            assert self.stratum[gram] == self.strata[place]
            if gram not in taken:
                cells[gram] = max(math.floor(z * (self.sigma * UNIT)) // self.step, low)
        return cells

    # Level 1.

    def tokens(self):
        released = {}
        for number, part in enumerate(self.plan.level(1).rounds):
            draw, histogram = self.draw(number), collections.Counter()
            clip = self.source.draws(1, number, b"global", self.source.binding(self.fingerprint))("clip")
            for user, name in self.user_name.items():
                open_tokens = self.mine[user] - released.keys()
                keyed = {gram: int(words_of(clip, name, self.name(gram)[0])[0, 0]) for gram in open_tokens}
                kept = sorted(open_tokens, key=keyed.get)[: self.plan.level(1).max_contributions]
                histogram.update(self.spend(user, dict.fromkeys(kept, WHOLE), self.part(user, part.share)))
            self.check_budgets(number)
            for gram, value in self.noisy({g: w for g, w in histogram.items() if w}, draw).items():
                if value * self.step >= part.rho * UNIT:
                    released[gram] = math.floor(value / math.sqrt(part.share))
                    self.happened["token of round", number] += 1
        return released

    def listed_words(self):
        """Level 1 with a public vocabulary: every listed word with a noisy weight, whether anybody has it or not."""
        draw, histogram = self.draw(0), {(word,): 0 for word in self.vocabulary}
        clip = self.source.draws(1, 0, b"global", self.source.binding(self.fingerprint))("clip")
        (part,) = self.plan.level(1).rounds
        for user, name in self.user_name.items():
            keyed = {g: int(words_of(clip, name, self.name(g)[0])[0, 0]) for g in self.mine[user] & histogram.keys()}
            kept = sorted(keyed, key=keyed.get)[: self.plan.level(1).max_contributions]
            for gram, weight in self.spend(user, dict.fromkeys(kept, WHOLE), self.part(user, part.share)).items():
                histogram[gram] += weight
            self.happened["word that is not listed"] += len(self.mine[user]) - len(keyed)
        self.check_budgets(0)
        self.happened["word that nobody has"] += sum(not weight for weight in histogram.values())
        values = self.noisy(histogram, draw)
        return {gram: math.floor(value / math.sqrt(part.share)) for gram, value in values.items()}

    # Budgets.

    def part(self, user, share):
        """What a round with this share may spend: never more than is left."""
        return min(int(float(self.allowance[user]) * (share * (1 - 2.0**-48))), self.budget[user])

    def spend(self, user, guides, allowed, everything=False):
        """The weight for each gram. The user pays."""
        weights, charge = spend(guides, allowed, everything)
        self.pay(user, charge)
        return weights

    def pay(self, user, charge):
        assert 0 <= charge <= self.budget[user]
        self.budget[user] -= charge

    def check_budgets(self, number):
        theirs = self.found[self.k, number, "budgets"]
        assert theirs == {name: self.budget[user] for user, name in self.user_name.items() if name in theirs}

    # Later levels.

    def survey(self):
        """Round 1: all of V_k. Which cells are active, lambda_2, the law of heights; is there a count?"""
        bins, draw, eta = self.bins, self.draw(0), self.plan.eta
        histogram = collections.Counter()
        for user, mine in self.mine.items():
            guides = {gram: self.guide[self.stratum[gram]] for gram in mine}
            histogram.update(self.spend(user, guides, self.part(user, self.shares[0])))
        self.check_budgets(0)
        wanted = self.limits.wanted(len(self.rows))
        self.floor = dict.fromkeys(self.size, 0)  # the first active bin
        if len(self.stratum) > self.limits.every:
            for s, size in self.size.items():
                self.floor[s] = bins.first_with(size, wanted) if size > 2 * wanted else 0
        always = {gram for gram, s in self.stratum.items() if not self.floor[s]}
        edges = {s: bins.edges[floor - 1] for s, floor in self.floor.items() if floor}
        cells, hidden, zero = self.look(histogram, always, edges, draw)
        self.noisy_1, self.bin_1 = cells, {gram: bins.of(value) for gram, value in cells.items()}

        counts = {s: collections.Counter() for s in self.size}
        for gram, place in self.bin_1.items():
            counts[self.stratum[gram]][place] += 1
        for gram, value in hidden.items():
            counts[self.stratum[gram]][max(start for start in GROUPS if start <= bins.of(value))] += 1
        for s in edges:
            theirs = [gram for gram, weight in histogram.items() if weight and self.stratum[gram] == s]
            drawn = [gram for gram in zero if self.stratum[gram] == s]
            counts[s].update(self.zeros_below(s, self.size[s] - len(theirs) - len(drawn), draw))
        self.certainty = {s: sum(counts[s][place] for place in range(ZERO_BIN)) + 1.0 for s in sorted(counts)}
        self.zeros = {s: min(self.size[s], 2 * known - 1) for s, known in self.certainty.items()}

        self.law, self.guide_2, classes = {}, {}, {}
        for s in self.certainty:
            self.law[s] = self.found[self.k, 0].prior[s - self.strata[0]]
            assert np.allclose(self.law[s], fit_prior(bins, counts[s], self.floor[s]), rtol=1e-7, atol=1e-12)
            ratio, height = evidence(self.law[s], bins.centre, 1.0)
            rate = self.zeros[s] / self.size[s] / ratio
            number = np.array([counts[s][place] for place in range(BINS)])
            active = slice(self.floor[s], None)
            classes[s] = rank_of(rate)[active], number[active], (self.zeros[s] * bins.mass)[active]
            for place in range(BINS):
                scaled = max(height[place], 1e-9) / (math.sqrt(self.shares[0]) * self.guide[s] / WHOLE)
                guide = max(0.1, min(1, scaled / 0.5)) * min(1, 3 / scaled)
                self.guide_2[s, place] = 0 if rate[place] < 0.001 else max(math.floor(guide * WHOLE), 1)
        ranking = Ranking(classes, self.certainty, eta, self.limits.last_rank())
        doubtful = ranking.reached[ranking.last] - ranking.reached[ZONE]
        self.counted = eta * ranking.nominal >= self.limits.counted and doubtful >= 0.5 * ranking.nominal
        self.rest = not self.counted and doubtful < ranking.nominal
        self.happened["level with a count" if self.counted else "level without"] += 1
        self.happened["stratum with a floor"] += len(edges)

    def look(self, histogram, always, edges, draw):
        """Noisy values: of the cells that the round looks at, of users' cells below the edges, of drawn zero cells."""
        theirs = {gram: weight for gram, weight in histogram.items() if weight}
        values = self.noisy({**dict.fromkeys(always, 0), **theirs}, draw)
        seen = {g for g, value in values.items() if g in always or value >= edges.get(self.stratum[g], math.inf)}
        zero = self.zero_cells(edges, values.keys(), draw) if edges else {}
        hidden = {gram: value for gram, value in values.items() if gram not in seen}
        return {**{gram: values[gram] for gram in seen}, **zero}, hidden, zero

    def zeros_below(self, s, rest, draw):
        """How many zero cells of a stratum are in each group below its floor."""
        starts = [start for start in GROUPS if start < self.floor[s]]
        ends = [*starts[1:], self.floor[s]]
        masses = [self.bins.tail[start] - self.bins.tail[end] for start, end in zip(starts, ends, strict=True)]
        bits = draw("zero cells below").blocks(np.arange(8, dtype=np.uint64), s - self.strata[0]).reshape(-1, 4)
        counts = {}
        for group, start in enumerate(starts):
            left = list(itertools.accumulate(masses[group:]))[-1]
            is_last = start == starts[-1]
            counts[start] = rest if is_last else binomial(bits[group : group + 1], rest, masses[group] / left)
            rest -= counts[start]
        return counts

    def second_look(self):
        """Round 2: the active cells, and where most cells are certain also others that stand out. Ranks, weights."""
        bins, draw, counts = self.bins, self.draw(1), collections.Counter()
        histogram = self.second_weights()
        edges, rest_floor = {}, {}
        if self.rest:
            active = collections.Counter(self.stratum[gram] for gram in self.bin_1)
            wanted = self.limits.wanted(len(self.rows))
            for s in [s for s, floor in self.floor.items() if floor]:
                rest = self.size[s] - active[s]
                rest_floor[s] = bins.first_with(rest, wanted) if rest > 2 * wanted else ZERO_BIN
                edges[s] = bins.edges[rest_floor[s] - 1]
        cells, _, _ = self.look(histogram, self.bin_1.keys(), edges, draw)
        class_of = {gram: (self.stratum[gram], self.bin_1.get(gram, -1), bins.of(cells[gram])) for gram in cells}
        counts.update(class_of.values())
        ratio = math.sqrt(self.second_share() / self.shares[0])
        rho = {(s, -1): ratio / (self.guide[s] / WHOLE) for s in rest_floor}
        for s, b in self.guide_2:
            rho[s, b] = ratio * (self.guide_2[s, b] / WHOLE) / (self.guide[s] / WHOLE)
        gain = self.gain({place: count for place, count in counts.items() if place[1] >= 0}, rho)
        rest_gain = self.rest_gain(counts, rho, rest_floor)

        classes, tables = {}, {}
        for s, law in self.law.items():
            rows = [*([-1] if s in rest_floor else []), *range(self.floor[s], BINS)]
            laws, first, mass, precision = [], [], [], []
            for b in rows:
                is_rest = b < 0
                rho[s, b] *= rest_gain if is_rest else gain
                laws.append(law * self.chance_of_rest(s) if is_rest else law)
                first.append(0.0 if is_rest else bins.centre[b])
                precision.append((not is_rest) + rho[s, b] * rho[s, b])
                mass.append((1 - bins.tail[self.floor[s]] if is_rest else bins.mass[b]) * bins.mass)
                if is_rest:
                    mass[-1][: rest_floor[s]] = 0.0
            value = np.array(first)[:, None] + np.array([rho[s, b] for b in rows])[:, None] * bins.centre
            ratio, height = evidence(np.array(laws).T[:, :, None], value, np.array(precision)[:, None])
            number, mass = np.zeros(ratio.shape, int), np.array(mass)
            for (stratum, b, place), count in counts.items():
                if stratum == s:
                    number[rows.index(b), place] = count
            self.fewer_zeros(s, *(table[s in rest_floor :].ravel() for table in (ratio, mass, number)))
            rank = rank_of(self.zeros[s] / self.size[s] / ratio)
            classes[s] = rank, number, self.zeros[s] * mass
            for row, b in enumerate(rows):
                tables[s, b] = precision[row], height[row], rank[row]
        self.ranking = Ranking(classes, self.certainty, self.plan.eta, self.limits.last_rank())
        self.rank, self.weight = {}, {}
        for gram, (s, b, place) in class_of.items():
            precision, height, rank = tables[s, b]
            z_1 = self.noisy_1[gram] * bins.to_sigma if b >= 0 else 0.0
            combined = z_1 + rho[s, b] * (cells[gram] * bins.to_sigma)
            height = combined / precision if combined > 5 * math.sqrt(precision) else height[place]
            guide = math.sqrt(self.shares[0]) * (self.guide[s] / WHOLE)
            self.rank[gram] = int(rank[place])
            self.weight[gram] = math.floor(height / guide * (self.sigma * UNIT / self.step))
        self.happened["second look with the whole allowance"] += self.second_share() == 1
        self.happened["cell of the rest"] += len(cells) - len(self.bin_1)

    def second_share(self):
        """The part of the allowance for the second look; all of it where cells that were not active take part."""
        if self.rest and any(self.floor.values()):
            return 1.0
        return self.shares[1] if self.counted else self.shares[1] + self.shares[2]

    def second_weights(self):
        """What users give in the second look: at levels without a count, users at their last level give all."""
        histogram = collections.Counter()
        share = self.second_share()
        for user, mine in self.mine.items():
            guides = {g: self.guide_2[self.stratum[g], self.bin_1[g]] if g in self.bin_1 else self.rest for g in mine}
            guides = {gram: int(guide) for gram, guide in guides.items() if guide}
            everything = user in self.last and not self.counted
            if self.rest and guides:
                share_of_one = self.limits.even * (1 if user in self.last else 0.375)
                even = math.floor(min(share_of_one / math.sqrt(len(guides)), 1) * WHOLE)
                self.happened["user who fills"] += min(guides.values()) < even < WHOLE
                guides = {gram: max(guide, even) for gram, guide in guides.items()}
            self.happened["user who gives everything"] += everything and bool(guides)
            allowed = self.budget[user] if everything else self.part(user, share)
            histogram.update(self.spend(user, guides, allowed, everything))
        return histogram

    def chance_of_rest(self, s):
        """For each height, the chance not to be active in the survey, over that of a zero cell."""
        edge = self.bins.at[self.floor[s] - 1]
        return np.array([special.ndtr(edge - theta) / special.ndtr(edge) for theta in HEIGHTS])

    def gain(self, counts, rho):
        """The gain, 2^-3, 2^-2.5, ..., 2^5, that makes the second values of active cells most likely."""
        law = np.array([self.law[s] for s, _, _ in counts]).reshape(-1, len(HEIGHTS)).T
        first, second = (self.bins.centre[[place[axis] for place in counts]] for axis in (1, 2))
        weights = np.array([rho[s, b] for s, b, _ in counts])
        likelihood = {}
        for power in range(-6, 11):
            scaled = 2.0 ** (power / 2) * weights
            ratio, _ = evidence(law, first + scaled * second, 1 + scaled * scaled)
            likelihood[2.0 ** (power / 2)] = math.fsum(np.array(list(counts.values())) * np.log(ratio))
        best = max(likelihood, key=likelihood.get)
        self.happened["gain", best] += 1
        return best

    def rest_gain(self, counts, rho, rest_floor):
        """The gain, 2^-8, ..., 2^3, for cells that were not active: their numbers by bin, by Poisson's law."""
        likelihood = {}
        for power in range(-16, 7) if rest_floor else ():
            terms = []
            for s, floor in rest_floor.items():
                scaled = 2.0 ** (power / 2) * rho[s, -1]
                law = (self.law[s] * self.chance_of_rest(s))[:, None]
                ratio, _ = evidence(law, scaled * self.bins.centre, scaled * scaled)
                mass = (1 - self.bins.tail[self.floor[s]]) * self.bins.mass
                for place in range(BINS):
                    expected = self.size[s] * mass[place] * ratio[place] if place >= floor else 0.0
                    terms.append(counts[s, -1, place] * math.log(ratio[place]) - expected)
            likelihood[2.0 ** (power / 2)] = math.fsum(terms)
        return max(likelihood, key=likelihood.get, default=1.0)

    def fewer_zeros(self, s, ratio, mass, number):
        """Fewer zero cells, if the least likely active classes with up to 0.3 of the noise say so."""
        order = sorted(range(len(ratio)), key=ratio.tolist().__getitem__)  # ties stay in order
        below = list(itertools.accumulate(mass[order].tolist()))
        few = bisect.bisect_right(below, 0.3 * below[-1])
        cells = int(number[order[:few]].sum()) + 1.0
        if few and cells / below[few - 1] < self.zeros[s]:
            self.zeros[s], self.certainty[s] = cells / below[few - 1], cells
            self.happened["stratum with fewer zeros"] += 1

    def count(self):
        """Round 3: how many cells of the zone do users have? Then the cut, and S_k."""
        cut = self.ranking.cut
        if self.counted:
            sigma = min(max(0.25 * self.plan.eta * self.ranking.nominal, 0.5), 2.0**24)
            step = max(1, int(sigma * UNIT / 2**14))
            vouched = collections.Counter()
            for user, mine in self.mine.items():
                zone = [gram for gram in mine if ZONE < self.rank.get(gram, 0) <= self.ranking.last]
                allowed = self.budget[user] if user in self.last else self.part(user, self.shares[2])
                given, charge = vouch(len(zone), allowed, sigma / self.sigma)
                self.pay(user, charge)
                vouched.update(dict.fromkeys(zone, given))
            exact = sum(min(value, 2**16) for value in vouched.values()) * 2**16
            prf = self.draw(2)("count")
            noise = math.floor(float(standard_normal(words_of(prf, 0, 0), prf)[0]) * (sigma * UNIT))
            cut = self.ranking.cut_after_count((exact + noise) // step * (step / UNIT), sigma, self.plan.eta)
            self.happened["cut moved by a count"] += cut > self.ranking.cut
            self.happened["cell vouched for"] += sum(value > 0 for value in vouched.values())
        self.check_budgets(2)
        released = {gram: self.weight[gram] for gram, rank in self.rank.items() if rank <= cut}
        self.happened["spurious"] += len(released.keys() - set().union(*self.mine.values()))
        self.happened["released from the rest"] += len(released.keys() - self.bin_1.keys())
        return released


def encoded(gram):
    return [token.encode() for token in gram]

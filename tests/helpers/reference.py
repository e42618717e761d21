"""Algorithm 1 read literally: sets, dicts, an explicit V_k, the same keyed draws; and small random corpora."""

import math
from fractions import Fraction

import numpy as np

from dpngram.transforms.document_form import DocumentForm, collect_documents
from dpngram.transforms.randomness.draws import standard_normal

UNIT = 2**32


def grams(tokens, k):
    return {tuple(tokens[i : i + k]) for i in range(len(tokens) - k + 1)}


def words_of(prf, first, second):
    return prf.blocks(np.array([first], np.uint64), np.array([second], np.uint64))


class Reference:
    """Algorithm 1, line by line. Everything is a Python set, dict, int or Fraction."""

    def __init__(self, posts, plan, source, pruning):
        self.posts, self.plan, self.source, self.pruning = posts, plan, source, pruning
        self.token_digest = source.digest("token")
        self.fingerprint = self._fingerprint()
        self.user_name = {user: int(self._string(source.digest("user"), user)[0, 0]) for user in posts}

    def _string(self, prf, text):
        data = text.encode()
        return prf.strings(np.array([0, len(data)]), np.frombuffer(data, np.uint8))

    def _fingerprint(self):
        total = 0
        for user, posts in self.posts.items():
            for post in posts:
                if post:
                    items = np.concatenate([self._string(self.token_digest, token) for token in post])
                    sequence = self.source.digest("post").sequences(items, np.array([0, len(post)]))
                    name = self._string(self.source.digest("user"), user)
                    total += int.from_bytes(self.source.digest("group").pairs(name, sequence).tobytes(), "little")
        return (total % 2**128).to_bytes(16, "little")

    def draw(self, purpose, k):
        return self.source.prf(purpose, k, 0, b"global", self.source.binding(self.fingerprint))

    def run(self):
        sets, released, valid_counts, supports = {}, {}, {}, {}
        rows = {(): 0}
        for k in range(1, self.plan.max_n + 1):
            users = {user: set().union(*(grams(post, k) for post in posts)) for user, posts in self.posts.items()}
            if k > 1:
                first, before = sets[1], sets[k - 1]
                valid = {x + y for x in before for y in first}
                if self.pruning == "both":
                    valid &= {x + y for x in first for y in before}
                valid_counts[k] = len(valid)
                users = {user: mine & valid for user, mine in users.items()}
            name = {}
            for gram in set().union(*users.values()) if users else set():
                if k == 1:
                    digest = self._string(self.token_digest, gram[0])[0]
                    name[gram] = (int(digest[0]), int(digest[1]))
                else:
                    name[gram] = (rows[gram[:-1]] << 32 | sets[1].index(gram[-1:]), 0)
            weight = {}
            for user, mine in users.items():
                kept = sorted(
                    mine,
                    key=lambda gram: int(words_of(self.draw("clip", k), self.user_name[user], name[gram][0])[0, 0]),
                )[: self.plan.level(k).max_contributions]
                for gram in kept:
                    weight[gram] = weight.get(gram, 0) + math.isqrt(2**64 // len(kept))
            sigma = self.plan.level(k).sigma
            rho = self.plan.threshold(k, len(sets.get(k - 1, ())), valid_counts.get(k, 0))
            step = max(1, int(Fraction(sigma) * UNIT / 2**14))
            passed = {}
            for gram, exact in weight.items():
                z = float(standard_normal(words_of(self.draw("noise", k), *name[gram]), self.draw("noise", k))[0])
                noisy = (exact + math.floor(z * (sigma * UNIT))) // step
                if noisy * step >= Fraction(rho) * UNIT:
                    passed[gram] = noisy * (step / UNIT)
            released[k], supports[k] = passed, set(weight)
            yield k, passed, set(weight), valid_counts.get(k)
            # The caller tells S_k, spurious grams included, and the next level goes on from there.
            sets[k] = sorted(self.complete, key=lambda gram: [token.encode() for token in gram])
            rows = {gram: row for row, gram in enumerate(sets[k])}


def random_corpus(random):
    words = [f"w{i}" for i in range(random.integers(1, 7))]
    return {
        f"u{user}": [list(random.choice(words, random.integers(0, 9), p=None)) for _ in range(random.integers(1, 4))]
        for user in range(random.integers(1, 25))
    }


def to_blocks(posts):
    blocks, bad = collect_documents(
        [(user, [str(token) for token in post]) for user, mine in posts.items() for post in mine], DocumentForm()
    )
    assert not bad
    return blocks

"""Set unions and exact counts against dicts and sets read literally, with the same keyed draws."""

import math

import numpy as np
import pytest
from helpers.reference import UNIT, random_corpus
from helpers.unions import MAX_N, UNBOUNDED, array_union, held, literal_union, user_blocks
from scipy import special, stats

from dpngram.accounting import plan_union_all, plan_union_even, plan_union_single
from dpngram.transforms.baselines.named_grams import gram_digests, name_grams
from dpngram.transforms.baselines.release_unions import union_cells, union_cutoffs
from dpngram.transforms.blocks.cells import CellBlock
from dpngram.transforms.noisy_threshold import threshold_cells
from dpngram.transforms.testing import key_source


@pytest.mark.parametrize("batch", range(3))
def test_unions_are_identical_to_sets(batch):
    random = np.random.default_rng(batch)
    seen = clipped = dropped = 0
    for number in range(25):
        posts = random_corpus(random)
        budget = {"epsilon": float(random.choice([8.0, 40.0])), "delta": 0.3}
        caps = {"max_n": MAX_N, "max_contributions": int(random.integers(1, 7))}
        plans = [
            plan_union_all(**budget, **caps),
            plan_union_even(**budget, **caps),
            plan_union_single(**budget, n=int(random.integers(1, 5)), max_contributions=caps["max_contributions"]),
        ]
        source = key_source(bytes([number, batch] * 16), number)
        blocks = user_blocks(posts, source, int(random.integers(1, 4)))
        binding = source.binding(bytes(16))

        def draw(purpose, n, source=source, binding=binding):
            return source.prf(purpose, n, 0, b"global", binding)

        for plan in plans:
            for query in plan.queries:
                expected, weight = literal_union(posts, query, source, draw)
                released, met = array_union(blocks, query, source, draw) if blocks else ({}, 0)
                assert released == expected
                everything, all_met = (
                    array_union(blocks, query, source, draw, ceilings=UNBOUNDED) if blocks else ({}, 0)
                )
                assert everything == expected  # the bound leaves out nothing that is released
                assert all_met == len(weight)
                seen += len(released)
                dropped += all_met - met
                clipped += any(len(mine) > query.max_contributions for mine in held(posts, query.lengths).values())
    # The corpora must exercise what they are meant to.
    assert seen > 300
    assert dropped > 300
    assert clipped > 60


def test_clipping_bounds_every_user_over_all_lengths():
    """One user with many grams: as many as the cap get floor(2^32/sqrt(cap)), and their squares sum to at most 1."""
    posts = {"u": [[f"w{i}" for i in range(60)]]}
    source = key_source(b"k" * 32)
    (block,) = user_blocks(posts, source, 1)
    (query,) = plan_union_all(epsilon=1, delta=0.1, max_n=3, max_contributions=5).queries
    parts = list(name_grams(block, gram_digests(source, 3)))

    def draw(purpose):
        return source.prf(purpose, 0, 0, b"global", source.binding(bytes(16)))

    cells = list(union_cells(parts, [UNBOUNDED] * 3, query, draw("clip"), [draw("noise")] * 3))
    weights = np.concatenate([part.weight for part in cells])
    assert weights.tolist() == [math.isqrt(2**64 // 15)] * 15
    assert sum(int(weight) ** 2 for weight in weights) <= 2**64
    assert sum(len(part) > 0 for part in cells) > 1  # a choice among all lengths, not the first


def test_law_of_the_noise():
    """Cells of equal weight are released with probability Phi((h - rho)/sigma), each by itself.

    20,000 cells at three weights; two-sided binomial test, flake rate 1e-9 each.
    """
    (query,) = plan_union_single(epsilon=1, delta=0.2, n=3, max_contributions=4).queries
    source = key_source(b"n" * 32)
    count = 20_000
    for place, height in enumerate((query.rho - query.sigma, query.rho, query.rho + 0.5 * query.sigma)):
        digests = source.digest(f"cells {place}").blocks(np.arange(count, dtype=np.uint64), 0)
        digests = digests[np.argsort(digests[:, 0])]
        cells = CellBlock(
            keys=digests[:, 0],
            weight=np.full(count, int(height * UNIT)),
            digests=digests,
        )
        part = threshold_cells(
            cells, union_cutoffs(query), lambda purpose: source.prf(purpose, 3, 0, b"global", source.binding(bytes(16)))
        )
        chance = special.ndtr((height - query.rho) / query.sigma)
        assert stats.binomtest(len(part.noisy), count, chance).pvalue > 1e-9

"""The array pipeline against Algorithm 1 read literally."""

import numpy as np
import pytest
from helpers.reference import Reference, grams, random_corpus, to_blocks

from dpngram.accounting import plan_extraction
from dpngram.transforms.testing import exact_plan, extract_in_memory, key_source
from dpngram.transforms.tokenizers import make_tokenizer


@pytest.mark.parametrize("pruning", ["both", "single"])
@pytest.mark.parametrize("batch", [0, 1, 2, *(pytest.param(more, marks=pytest.mark.campaign) for more in range(3, 10))])
def test_released_grams_are_identical(pruning, batch):
    """120 corpora a batch, 360 for each rule, 1,200 in a campaign: what some user has, its weights, and |V_k|."""
    random = np.random.default_rng([batch, pruning == "both"])
    released = spurious = clipped = 0
    for number in range(120):
        posts = random_corpus(random)
        cap = int(random.integers(1, 9))
        if number % 3:
            plan = plan_extraction(
                epsilon=float(random.choice([20.0, 60.0])),
                delta=0.2,
                max_n=4,
                max_contributions=cap,
                eta=0.2,
                policy="paper",
            )
        else:
            plan = exact_plan(max_n=4, threshold=float(random.choice([0.5, 1.0, 2.5])), max_contributions=cap)
        source = key_source(bytes([number, batch] * 16), [number, pruning])
        tables = extract_in_memory(
            to_blocks(posts),
            plan,
            source,
            make_tokenizer("words"),
            pruning=pruning,
            shards=int(random.integers(1, 5)),
            histogram_shards=int(random.integers(1, 4)),
        )
        reference = Reference(posts, plan, source, pruning)
        before = None
        for k, passed, support, valid in reference.run():
            mine = {tuple(gram.tokens): gram.weight for gram in tables[k].rows()}
            assert {gram: weight for gram, weight in mine.items() if gram in support} == passed
            if k > 1:
                assert (int(before.next_valid) if len(before) else 0) == valid
            released += len(passed)
            spurious += len(mine) - len(passed)
            clipped += any(len(set().union(*(grams(post, k) for post in mine_))) > cap for mine_ in posts.values())
            reference.complete = list(mine)
            before = tables[k]
    # The corpora must exercise what they are meant to.
    assert released > 1000
    assert spurious > 20
    assert clipped > 50


def test_output_is_downward_closed():
    """Proposition 1 of the paper, for both-side pruning."""
    random = np.random.default_rng(7)
    seen = 0
    for number in range(60):
        posts = random_corpus(random)
        plan = plan_extraction(
            epsilon=30.0, delta=0.2, max_n=5, max_contributions=20, eta=0.3, policy=["paper", "plus"][number % 2]
        )
        tables = extract_in_memory(to_blocks(posts), plan, key_source(bytes([number] * 32)), make_tokenizer("words"))
        found = {tuple(gram.tokens) for table in tables.values() for gram in table.rows()}
        for gram in found:
            seen += len(gram) > 1
            assert all(gram[i:j] in found for i in range(len(gram)) for j in range(i + 1, len(gram) + 1))
    assert seen > 1000

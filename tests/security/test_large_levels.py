"""|S_1| = 50,000: V_2 has 2.5e9 members, and they may lie in one stratum; levels that could grow without end."""

import numpy as np
import pytest
from helpers.runs import small_corpus

from dpngram.accounting import plan_extraction
from dpngram.transforms.blocks.levels import EMPTY_LEVEL, Level, pack_keys
from dpngram.transforms.document_form import DocumentForm, collect_documents
from dpngram.transforms.policies import make_rounds
from dpngram.transforms.policies.cutoffs import ALL, MAX_TALLIED
from dpngram.transforms.policies.guide import predict
from dpngram.transforms.policies.strata import Strata
from dpngram.transforms.randomness.prf import Prf
from dpngram.transforms.testing import extract_in_memory, key_source
from dpngram.transforms.tokenizers import make_tokenizer


def first_level(words, weights):
    tokens = [f"{word:05d}".encode() for word in range(words)]
    digests = np.random.default_rng(1).integers(0, 1 << 63, (words, 2)).astype(np.uint64)
    data = np.frombuffer(b"".join(tokens), np.uint8)
    return Level.first(np.arange(words + 1) * 5, data, digests, weights, 2.0**-10, 1.0)


@pytest.mark.parametrize("eta", [1e-12, 0.01, 0.2, 0.999])
@pytest.mark.parametrize("even", [True, False])
def test_a_stratum_of_billions(even, eta):
    """Drawn are the few above the floor, sorted and distinct members, as many as the law says, whatever eta is.

    The band of their number is 6 standard deviations, with a fixed key.
    """
    words = 50_000
    weights = np.full(words, 9000) if even else np.random.default_rng(2).integers(3000, 40_000_000, words)
    level = first_level(words, weights)
    level = predict(level, level, sigma=1.0)
    plan = plan_extraction(epsilon=2, delta=1e-3, max_n=2, max_contributions=5, eta=eta)
    cut = make_rounds(plan)[1][0].cutoffs(level, EMPTY_LEVEL)
    strata, noise = cut.strata, cut.noise
    assert strata.size.sum() == words**2 == level.valid("both")
    if even:
        assert strata.size.max() == words**2 > MAX_TALLIED
    keys, stratum = cut.zero_cells(Prf(b"z" * 32))
    assert (np.diff(keys.astype(np.int64)) > 0).all()
    assert (strata.of(keys) == stratum).all()
    assert (keys >> np.uint64(32)).max() < words
    assert (keys & np.uint64(0xFFFFFFFF)).max() < words
    chance = np.where(cut.floor == ALL, 0.0, noise.zero_probability(cut.floor))
    drawn, expected = np.bincount(stratum, minlength=len(strata.size)), strata.size * chance
    assert (abs(drawn - expected) <= 6 * np.sqrt(expected) + 6).all()
    # 2^15 at most, however large the level before was: otherwise levels could grow without bound.
    assert (expected <= 1 << 15).all()
    assert (strata.size[cut.floor == ALL] <= 1 << 16).all()
    below = cut.zeros_below(np.zeros(len(strata.size), np.int64), drawn, Prf(b"b" * 32))
    rest = strata.size - drawn
    half = rest * 0.5 / (1 - chance)
    small = (strata.size <= MAX_TALLIED) & (rest > 100) & (cut.floor != ALL)
    assert (abs(below[:, 0] - half)[small] <= 6 * np.sqrt(half)[small]).all()
    assert (below.sum(axis=1)[small] == rest[small]).all()
    huge = strata.size > MAX_TALLIED
    assert (abs(below[huge, 0] - strata.size[huge] / 2) <= 1).all()


def test_a_rank_is_a_member_and_back():
    """The last of 2.5e9 members, too."""
    level = first_level(50_000, np.full(50_000, 9000))
    ranks = np.array([0, 1, 50_000, 2**31, 2**31 + 7, 2_499_999_999])
    keys = Strata(level, "both").unrank(0, ranks)
    assert (keys == pack_keys(ranks // 50_000, ranks % 50_000)).all()


def test_an_eta_near_one_ends():
    """Almost everything may be spurious, and still a level has no more spurious grams than its strata draw."""
    rows = small_corpus(500, [f"word{place}" for place in range(400)])
    documents = [(row["user"], row["text"]) for row in rows]
    blocks, _ = collect_documents(documents, DocumentForm())
    plan = plan_extraction(epsilon=50, delta=0.1, max_n=4, max_contributions=30, eta=0.999, policy="plus")
    drawn = []

    def observe(policy, _, found):
        if policy.label == "Survey":
            strata.append(len(found.size))
        elif policy.label == "Count":
            drawn.append((len(found), strata[-1]))

    strata = []
    extract_in_memory(blocks, plan, key_source(b"w" * 32), make_tokenizer("words"), observe=observe)
    text = sum(max(len(row["text"].split()) - 1, 0) for row in rows)  # bigrams, and more than there are longer grams
    assert len(drawn) == 3
    for size, number in drawn:
        assert size <= text + max(number * (1 << 16), 1 << 17)

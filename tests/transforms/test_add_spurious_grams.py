"""A level is completed only if all shards drew the same zero cells."""

import dataclasses

import pytest

from dpngram.accounting import plan_extraction
from dpngram.transforms import testing
from dpngram.transforms.document_form import DocumentForm, collect_documents
from dpngram.transforms.noisy_threshold import threshold_cells
from dpngram.transforms.policies.plus import PlusRound
from dpngram.transforms.testing import extract_in_memory, key_source
from dpngram.transforms.tokenizers import make_tokenizer


def test_walks_that_disagree_stop_the_run(monkeypatch):
    """Two processors might disagree about a logarithm; then a gram could be in a release twice."""
    documents = [(f"u{i}", "a b a c") for i in range(300)]
    blocks, _ = collect_documents(documents, DocumentForm())
    plan = plan_extraction(epsilon=20, delta=0.1, max_n=2, max_contributions=5, eta=0.3, policy="plus")

    def other_walk(cells, cut, draw):
        part = threshold_cells(cells, cut, draw)
        return dataclasses.replace(part, zero_cells_name=part.zero_cells_name + 1)

    monkeypatch.setattr(testing, "threshold_cells", other_walk)
    with pytest.raises(ValueError, match="different zero cells"):
        extract_in_memory(blocks, plan, key_source(b"w" * 32), make_tokenizer("words"))


def test_policies_see_cells_sorted_by_key(monkeypatch):
    """Not zero cells first, nor in the order of shards: the place of a cell tells nothing of who has it."""
    seen = []

    def watched(self, cutoffs, below, stratum, noisy):
        seen.append((stratum.copy(), noisy.copy()))
        return original(self, cutoffs, below, stratum, noisy)

    original = PlusRound.thresholds
    monkeypatch.setattr(PlusRound, "thresholds", watched)
    documents = [(f"u{i}", "a b a c d b") for i in range(300)]
    blocks, _ = collect_documents(documents, DocumentForm())
    plan = plan_extraction(epsilon=20, delta=0.1, max_n=2, max_contributions=5, eta=0.3, policy="plus")
    for shards in (1, 5):
        source = key_source(b"w" * 32)
        extract_in_memory(blocks, plan, source, make_tokenizer("words"), histogram_shards=shards)
    half = len(seen) // 2
    assert half == 2  # the two rounds of level 2
    for (one, ours), (other, theirs) in zip(seen[:half], seen[half:], strict=True):
        assert ours.tolist() == theirs.tolist()
        assert one.tolist() == other.tolist()


def test_strata_too_large_for_a_tally_have_none(monkeypatch):
    """There the zero cells are not simulated, and a tally of users' cells alone would be exact."""
    seen = []

    def watched(self, cutoffs, below, stratum, noisy):
        seen.append(below.tolist())
        return original(self, cutoffs, below, stratum, noisy)

    original = PlusRound.thresholds
    monkeypatch.setattr(PlusRound, "thresholds", watched)
    for place in ("policies.cutoffs", "add_spurious_grams"):
        monkeypatch.setattr(f"dpngram.transforms.{place}.MAX_TALLIED", 0)
    documents = [(f"u{i}", "a b a c d b") for i in range(300)]
    blocks, _ = collect_documents(documents, DocumentForm())
    plan = plan_extraction(epsilon=20, delta=0.1, max_n=2, max_contributions=5, eta=0.3, policy="plus")
    extract_in_memory(blocks, plan, key_source(b"w" * 32), make_tokenizer("words"))
    assert seen
    assert all(set(below) <= {0} for below in seen)

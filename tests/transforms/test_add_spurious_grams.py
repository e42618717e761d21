"""A level is completed only if all shards drew the same zero cells."""

import dataclasses

import numpy as np
import pytest
from scipy import special

from dpngram.accounting import plan_extraction
from dpngram.transforms import testing
from dpngram.transforms.document_form import DocumentForm, collect_documents
from dpngram.transforms.noisy_threshold import threshold_cells
from dpngram.transforms.policies.cutoffs import ALL
from dpngram.transforms.policies.plus import PlusSecondLook, PlusSurvey
from dpngram.transforms.testing import extract_in_memory, key_source
from dpngram.transforms.tokenizers import make_tokenizer


def test_walks_that_disagree_stop_the_run(monkeypatch):
    """Two processors might disagree about a logarithm; then a gram could be in a release twice."""
    documents = [(f"u{i}", "a b a c") for i in range(300)]
    blocks, _ = collect_documents(documents, DocumentForm())
    plan = plan_extraction(epsilon=20, delta=0.1, max_n=2, max_contributions=5, eta=0.3, policy="plus")

    def changed(field):
        def other(cells, cut, draw, past):
            part = threshold_cells(cells, cut, draw, past=past)
            return dataclasses.replace(part, **{field: getattr(part, field) + 1})

        return other

    for field, message in {"zero_cells_name": "different zero cells", "past": "different rounds before"}.items():
        monkeypatch.setattr(testing, "threshold_cells", changed(field))
        with pytest.raises(ValueError, match=message):
            extract_in_memory(blocks, plan, key_source(b"w" * 32), make_tokenizer("words"))


def watch(monkeypatch, seen):
    """What the rounds of level 2 are given: the cells that they look at, and how many are below their floors."""
    for kind in (PlusSurvey, PlusSecondLook):
        original = kind.settle

        def watched(self, cells, *args, original=original):
            seen.append((cells, args[0]))
            return original(self, cells, *args)

        monkeypatch.setattr(kind, "settle", watched)


def test_policies_see_cells_sorted_by_key(monkeypatch):
    """Not zero cells first, nor in the order of shards: the place of a cell tells nothing of who has it."""
    seen = []
    watch(monkeypatch, seen)
    documents = [(f"u{i}", "a b a c d b") for i in range(300)]
    blocks, _ = collect_documents(documents, DocumentForm())
    plan = plan_extraction(epsilon=20, delta=0.1, max_n=2, max_contributions=5, eta=0.3, policy="plus")
    for shards in (1, 5):
        source = key_source(b"w" * 32)
        extract_in_memory(blocks, plan, source, make_tokenizer("words"), histogram_shards=shards)
    half = len(seen) // 2
    assert half == 2  # survey and second look of level 2
    for (ours, _), (theirs, _) in zip(seen[:half], seen[half:], strict=True):
        assert ours.keys.tolist() == sorted(ours.keys.tolist()) == theirs.keys.tolist()
        assert ours.noisy.tolist() == theirs.noisy.tolist()
        assert ours.stratum.tolist() == theirs.stratum.tolist()


def test_strata_too_large_for_a_tally_have_expected_numbers(monkeypatch):
    """There the zero cells are not simulated, and a tally of users' cells alone would be exact."""
    seen = []
    watch(monkeypatch, seen)
    for place in ("policies.cutoffs", "add_spurious_grams", "policies.ranking"):
        monkeypatch.setattr(f"dpngram.transforms.{place}.MAX_TALLIED", 0)
    for name, value in {"_ALL_ACTIVE": 0, "_LEAST_ACTIVE": 2, "_MOST_ACTIVE": 2}.items():
        monkeypatch.setattr(f"dpngram.transforms.policies.plus.{name}", value)
    plan = plan_extraction(epsilon=20, delta=0.1, max_n=2, max_contributions=9, eta=0.3, policy="plus")
    for texts in ("a b c d e f g h", "a h b g c f d e"):
        blocks, _ = collect_documents([(f"u{i}", texts) for i in range(300)], DocumentForm())
        extract_in_memory(blocks, plan, key_source(b"w" * 32), make_tokenizer("words"))
    checked = 0
    for cells, cutoffs in seen:
        for stratum in np.flatnonzero(cutoffs.floor != ALL) if cutoffs.tallied else ():
            half, floor = cutoffs.size[stratum] / 2, cutoffs.noise.bound(cutoffs.floor[stratum])
            below = cells.below[stratum].tolist()
            assert below[0] == np.rint(half)  # half of all members are below 0, whatever users have
            assert abs(sum(below) - 2 * half * special.ndtr(floor)) < 2
            checked += 1
    assert checked >= 2

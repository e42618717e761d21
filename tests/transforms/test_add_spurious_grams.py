"""A level is completed only if all shards drew the same zero cells."""

import dataclasses

import pytest

from dpngram.accounting import plan_extraction
from dpngram.transforms import testing
from dpngram.transforms.document_form import DocumentForm, collect_documents
from dpngram.transforms.noisy_threshold import threshold_cells
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

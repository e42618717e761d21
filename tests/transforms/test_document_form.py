"""Documents of a host's graph: which can be used, and what becomes of the others."""

import numpy as np
import pytest

from dpngram.accounting import ParameterError
from dpngram.transforms import PreparePosts
from dpngram.transforms.document_form import DocumentForm, check_form, collect_documents
from dpngram.transforms.testing import key_source


def test_surrogates_and_other_text_that_is_no_text():
    blocks, bad = collect_documents(
        [("u", "lone \ud800 surrogate"), ("\udfff", "text"), ("u", ["a", "\ud800"]), ("u", "fine")], DocumentForm()
    )
    assert bad == 3
    assert len(blocks) == 1


def test_what_is_no_document():
    """No sets, whose order differs between workers; no pairs or mappings where users have no id; numpy's integers."""
    _, bad = collect_documents([("u", {"a", "b"}), ("u", iter("ab"))], DocumentForm())
    assert bad == 2
    _, bad = collect_documents([("alice", "hi"), {"user": "a"}, 5], DocumentForm(user_per_document=True))
    assert bad == 3
    blocks, bad = collect_documents([(np.int64(7), "a"), (7, "b"), ("7", "c")], DocumentForm())
    assert bad == 0
    assert set(blocks[0].users.to_pylist()) == {b"7"}


def test_anything_but_a_form_is_refused():
    """Read with a mapping, say, every document would count as one that cannot be used."""
    assert check_form(DocumentForm(user_field="author")).user_field == "author"
    with pytest.raises(ParameterError, match="form must be a DocumentForm, got dict"):
        PreparePosts("words", key_source(bytes(32)).randomness, form={"user_field": "user"})

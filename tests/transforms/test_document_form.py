"""Documents of a host's graph: which can be used, and what becomes of the others."""

import apache_beam as beam
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
    good, told = blocks
    assert good.users.to_pylist() == [b"u"]
    assert (told.bad_users.to_pylist(), told.unnamed_bad, len(told.offsets)) == ([b"u"], 1, 1)


def test_whose_a_bad_document_is():
    """The user is told where a document has one that can be used; others are counted."""
    row = beam.Row(author=7, body=None)
    documents = [
        {"author": "d", "body": 5},
        {"author": "e"},
        {"body": "x"},
        row,
        ("t", b"x"),
        ("t", 1, 2),
        {"author": ""},
    ]
    form = DocumentForm(user_field="author", text_field="body")
    (told,), bad = collect_documents([*documents, None], form)
    assert bad == 8
    assert told.bad_users.to_pylist() == [b"7", b"d", b"e", b"t"]
    assert told.unnamed_bad == 4
    (told,), _ = collect_documents([{"author": "d"}, 5], DocumentForm(user_field="author", user_per_document=True))
    assert (told.bad_users, told.unnamed_bad) == (None, 2)


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

"""Documents as columns."""

import pyarrow as pa

from dpngram.transforms.blocks.columns import binary_array
from dpngram.transforms.blocks.documents import DocumentBlock


def test_texts_and_tokens_of_users():
    texts = DocumentBlock.from_texts(pa.array(["ann", "bob"]), pa.array(["a b", ""]))
    assert texts.users.to_pylist() == [b"ann", b"bob"]
    assert binary_array(texts.offsets, texts.data).to_pylist() == [b"a b", b""]
    assert len(texts.token_bounds) == 0
    tokens = DocumentBlock.from_tokens(pa.array(["ann", "bob"]), pa.array(["a", "b", "c"]), [0, 1, 3])
    assert tokens.users.to_pylist() == [b"ann", b"bob"]
    assert tokens.token_bounds.tolist() == [0, 1, 3]


def test_documents_that_are_users_have_no_column_of_them():
    """An empty column would be one of no documents, and users of an empty name would be one user."""
    assert DocumentBlock.from_texts(None, pa.array(["a"])).users is None
    assert DocumentBlock.from_texts(pa.array([""]), pa.array(["a"])).users.to_pylist() == [b""]

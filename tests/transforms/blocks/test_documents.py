"""Documents as columns."""

import dataclasses
import itertools

import numpy as np
import pyarrow as pa

from dpngram.transforms.blocks.columns import binary_array
from dpngram.transforms.blocks.documents import DocumentBlock, join_documents, keep_order


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


def contents(block):
    strings = binary_array(block.offsets, block.data).to_pylist()
    bounds = block.token_bounds.tolist()
    documents = [strings[begin:end] for begin, end in itertools.pairwise(bounds)] if bounds else strings
    users = block.users.to_pylist() if block.users is not None else [None] * len(documents)
    return list(zip(users, documents, strict=True))


def test_joined_blocks_have_the_same_documents():
    """Texts, tokens, and users who are a document each: one block of each kind, and nobody's bad record is lost."""
    texts = DocumentBlock.from_texts(pa.array(["u", "v"]), pa.array(["a b", ""]))
    tokens = DocumentBlock.from_tokens(pa.array(["u", "v"]), pa.array(["a", "b", "c"]), [0, 0, 3])
    alone = DocumentBlock.from_texts(None, pa.array(["x", "y"]))
    bad = DocumentBlock.from_bad_records([b"u", b"w"], 2)
    both = dataclasses.replace(
        texts, bad_user_offsets=bad.bad_user_offsets, bad_user_bytes=bad.bad_user_bytes, unnamed_bad=1
    )
    blocks = [texts, tokens, alone, both, bad, tokens.take(np.array([1])), texts.take(np.array([], np.int64))]
    joined = join_documents(blocks)
    assert len(joined) == 3
    assert sorted(document for block in joined for document in map(repr, contents(block))) == sorted(
        document for block in blocks for document in map(repr, contents(block))
    )
    assert sum(block.unnamed_bad for block in joined) == 3
    for block in joined:
        if block.bad_users is not None:
            assert sorted(block.bad_users.to_pylist()) == [b"u", b"w"]
    assert join_documents([texts]) == [texts]
    assert join_documents([]) == []


def test_the_documents_of_a_user_stay_in_their_order():
    """Kinds are read one after another; for each user it is as if they had come one by one."""
    random = np.random.default_rng(5)
    for rows in (1, 2, 7, 60):
        kinds, users = random.integers(0, 3, rows), random.integers(0, 4, rows)
        parts = []
        for kind in random.permutation(3):
            places = np.flatnonzero(kinds == kind)
            names = pa.array([f"u{users[place]}" for place in places])
            parts.append((places, DocumentBlock.from_texts(names, pa.array([str(place) for place in places]))))
        found = {}
        for block in keep_order(parts):
            texts = binary_array(block.offsets, block.data).to_pylist()
            for user, text in zip(block.users.to_pylist(), texts, strict=True):
                found.setdefault(user, []).append(int(text))
        expected = {f"u{user}".encode(): np.flatnonzero(users == user).tolist() for user in np.unique(users)}
        assert found == expected
    assert list(keep_order([])) == []

"""Documents of any form into posts; those that cannot be used go."""

import typing

import apache_beam as beam
import pytest
from helpers.graphs import BUDGET, corpus

from dpngram.accounting import plan_extraction
from dpngram.transforms.document_form import DocumentForm, collect_documents
from dpngram.transforms.prepare_posts import PostDigests, block_posts
from dpngram.transforms.testing import exact_plan, key_source
from dpngram.transforms.tokenizers import make_tokenizer


class Post(typing.NamedTuple):
    user: str
    text: str


@pytest.mark.parametrize("pruning", ["both", pytest.param("single", marks=pytest.mark.campaign)])
def test_the_form_of_a_document_changes_nothing(collect_paper, pruning):
    texts = corpus(80)
    collect_paper.plan = plan_extraction(policy="paper", **{**BUDGET, "max_n": 2})
    expected = collect_paper(texts, pruning=pruning)
    assert collect_paper([Post(*document) for document in texts], pruning=pruning) == expected
    assert collect_paper([{"user": user, "text": text, "x": 1} for user, text in texts], pruning=pruning) == expected
    assert collect_paper([beam.Row(user=user, text=text) for user, text in texts], pruning=pruning) == expected
    assert collect_paper([(user, text.split()) for user, text in texts], pruning=pruning) == expected
    assert collect_paper([(user.encode(), text) for user, text in texts], pruning=pruning) == expected
    named = [beam.Row(author=user, body=text) for user, text in texts]
    assert collect_paper(named, pruning=pruning, user_field="author", text_field="body") == expected


def test_users_are_told_apart_by_their_bytes():
    """No id is trimmed, folded or normalised: two people would share a budget, and each decide about the other."""
    ids = ["ann", "Ann", " ann", "ann ", "ann\0", "\xe5nn", "a\u030ann", "7", "07"]
    blocks, bad = collect_documents([(user, "a b") for user in ids] * 2, DocumentForm())
    assert bad == 0
    posts, _ = block_posts(blocks[0], make_tokenizer("words"), PostDigests.of(key_source(b"i" * 32)))
    names = [tuple(name) for name in posts.user.tolist()]
    assert len(set(names)) == len(ids)
    assert names[: len(ids)] == names[len(ids) :]


def test_documents_that_cannot_be_used_are_left_out(collect_paper):
    documents = corpus(60)
    bad = [
        ("", "no user"),
        (None, "null user"),
        (True, "w1"),
        ("u", None),
        ("u", 7),
        ("u", b"bytes"),
        ("u", ["w1", 3]),
        ("too", "many", "fields"),
        "just a string",
        7,
    ]
    collect_paper.plan = exact_plan(max_n=3, threshold=1.5)  # the noise is bound to whose records are bad, too

    def grams(rows):
        return [(gram, round(float(weight[:-1]), 4)) for gram, weight in (row.rsplit(", ", 1) for row in rows)]

    expected = grams(collect_paper(documents))
    assert len(expected) > 50
    assert (
        grams(collect_paper([*bad[:5], *documents, *bad[5:]], release="with bad ones", max_bad_fraction=1)) == expected
    )

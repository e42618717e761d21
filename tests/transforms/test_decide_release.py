"""Whether there is a release at all: what is counted, how far one user moves it, the law of the verdict."""

import collections
import dataclasses

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.transforms.window import FixedWindows
from helpers.graphs import PLANS, corpus
from scipy import special

from dpngram.accounting import ParameterError, plan_union_all
from dpngram.transforms import ExtractNgrams
from dpngram.transforms.bind_release import _SumFingerprints
from dpngram.transforms.blocks.posts import split_posts
from dpngram.transforms.decide_release import DEFAULT_BAD_FRACTION, Gate, make_gate
from dpngram.transforms.document_form import DocumentForm, collect_documents
from dpngram.transforms.group_users import group_users
from dpngram.transforms.prepare_posts import PostDigests, block_posts
from dpngram.transforms.randomness.noise import UNIT
from dpngram.transforms.testing import exact_plan, extract_in_memory, key_source
from dpngram.transforms.tokenizers import make_tokenizer

SOURCE = key_source(b"k" * 32)
PRF = SOURCE.digest("test")
WORDS = make_tokenizer("words")


def content(documents, *, shards=3, size=7, source=SOURCE, **form):
    """Fingerprint and counts, as the graph makes them: documents in bundles of `size`, then in shards."""
    form = DocumentForm(**form)
    pieces = collections.defaultdict(list)
    for start in range(0, len(documents), size):
        for block in collect_documents(documents[start : start + size], form)[0]:
            posts, _ = block_posts(block, WORDS, PostDigests.of(source))
            for shard, piece in split_posts(posts, shards) if posts is not None else ():
                pieces[shard].append(piece)
    summed = _SumFingerprints()
    total = summed.create_accumulator()
    for piece in pieces.values():
        users = group_users(piece, user_per_document=form.user_per_document, source=source)
        total = summed.add_input(total, users.fingerprint.tobytes() + users.counts.tobytes())
    return total[:16], np.frombuffer(total, np.int64, offset=16).tolist()


def reference(documents):
    """The same counts, slowly: users with a token or a bad record, those with a bad record, records without a user."""
    seen, bad, unnamed = set(), set(), 0
    for document in documents:
        user, text = document if isinstance(document, tuple) else (None, None)
        if not user:
            unnamed += 1
        elif not isinstance(text, str):
            bad.add(user)
        elif text.split():
            seen.add(user)
    return [len(seen | bad), len(bad), unnamed]


def random_documents(random):
    texts = ["a b", "b", "", "  ", 5, None, {"x"}]
    users = [*(f"u{i}" for i in range(random.integers(1, 30))), None, ""]
    documents = [(users[random.integers(len(users))], texts[random.integers(7)]) for _ in range(random.integers(0, 60))]
    return documents + [7] * int(random.integers(3))


@pytest.mark.parametrize("seed", range(25))
def test_counts_against_a_slow_reference_in_any_order_and_any_shards(seed):
    random = np.random.default_rng(seed)
    documents = random_documents(random)
    expected = content(documents)
    assert expected[1] == reference(documents)
    for shards, size in ((1, 1000), (5, 1), (32, 4)):
        shuffled = [documents[i] for i in random.permutation(len(documents))]
        assert content(shuffled, shards=shards, size=size) == expected


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("most", [0.0, 0.01, 0.3, 0.5, 0.999])
def test_one_user_moves_the_statistic_by_at_most_one(seed, most):
    """With 250 bad records, with good ones, with both: a user who comes or goes moves X by at most 1, exactly."""
    documents = random_documents(np.random.default_rng(seed))
    gate = make_gate(PLANS["paper"], most)
    without = gate.excess(content(documents)[1])
    for mine in ([None] * 250, ["a"], ["a", *[5] * 250, "b"], [""], [5]):
        counts = content(documents + [("somebody new", text) for text in mine])[1]
        moved = gate.excess(counts) - without
        assert abs(moved) <= UNIT
        assert moved == (
            0 if mine == [""] else (UNIT if any(not isinstance(t, str) for t in mine) else 0) - int(most * UNIT)
        )


def test_whose_records_are_bad_is_in_the_fingerprint():
    """A key must not be used again with other bad records: the noise of the gate would be the same."""
    documents = [("a", "x y"), ("b", "x"), ("c", 5), (None, "x")]
    prints = [
        content(found)[0]
        for found in (
            documents,
            [*documents, ("d", 5)],
            [*documents, ("a", 5)],
            [*documents, (None, "y")],
            [*documents[:2], ("d", 5), (None, "x")],
            documents[:3],
            [*documents[:2], (None, "x")],
            documents[:2],
            [],
        )
    ]
    assert len(set(prints)) == len(prints)
    assert content([*documents, ("c", None)])[0] == prints[0]  # a user counts once, and so does the fingerprint


@pytest.mark.parametrize("policy", ["paper", "plus"])
def test_users_with_nothing_but_bad_records_are_only_counted(policy):
    """Whole shards may hold nobody else; the levels have nothing to do there, whatever the number of shards."""
    documents = [*((f"good{i}", "x y z") for i in range(60)), *((f"bad{i}", 5) for i in range(40)), None]
    blocks, _ = collect_documents(documents, DocumentForm())
    tables = [extract_in_memory(blocks, PLANS[policy], SOURCE, WORDS, shards=shards) for shards in (16, 1)]
    first, second = ([list(table.rows()) for table in found.values()] for found in tables)
    assert first == second
    assert ("x",) in {tuple(row.tokens) for row in first[0]}


def test_without_users_every_bad_document_is_a_user():
    counts = content(["a b", "c", 5, "", None, "c"], user_per_document=True)[1]
    assert counts == [3, 0, 2]
    gate = make_gate(PLANS["paper"], 0.25)
    alone = [gate.excess(content(["a", *more], user_per_document=True)[1]) for more in ([], ["b"], [5])]
    assert [value - alone[0] for value in alone[1:]] == [-UNIT // 4, UNIT - UNIT // 4]


def test_the_verdict_is_that_of_a_gaussian():
    """P[stop] = Phi((X - margin)/sigma), at eight distances, from 4,000 keyed draws each.

    Each share is within 5.5 standard errors of the law: under another key the test would fail with probability 3e-7.
    The key is fixed, so the test does not flake.
    """
    gate = make_gate(dataclasses.replace(PLANS["plus"], gate_sigma=400.0), 0.5)
    runs = 4_000
    bits = PRF.blocks(np.arange(runs, dtype=np.uint64), 1)
    for distance in (-2.0, -1.0, -0.5, 0.0, 0.3, 1.0, 1.7, 2.5):
        bad = round(2 * (gate.margin + distance * gate.sigma))  # X is half of them, if all users are bad
        counts = [bad, bad, 0]
        expected = special.ndtr((gate.excess(counts) / UNIT - gate.margin) / gate.sigma)
        stops = np.mean([gate.stops(counts, bits[run : run + 1], PRF) for run in range(runs)])
        assert abs(stops - expected) <= 5.5 * np.sqrt(expected * (1 - expected) / runs)


def test_noise_alone_does_not_stop_a_clean_run():
    """The most that noise can be at probability 1e-9, and the least beyond it."""
    gate = make_gate(PLANS["plus"], 0.0)
    for tail, stops in ((1.0e-9, False), (9.8e-10, True)):
        word = np.uint64(2**64 - 1 - int(tail * 2**64))
        assert gate.stops([1000, 0, 0], np.array([[word, 0]], np.uint64), PRF) is stops
    assert not Gate(sigma=2.0**-28, margin=0.0, max_bad_fraction=0.5).stops([2, 1, 0], np.zeros((1, 2), np.uint64), PRF)


@pytest.mark.parametrize("sigma", [1e-30, 2.0**40, 1e100])
def test_any_noise_that_a_plan_can_have(sigma):
    gate = Gate(sigma=sigma, margin=6 * sigma, max_bad_fraction=0.01)
    high, low = np.full((1, 2), 2**64 - 1, np.uint64), np.zeros((1, 2), np.uint64)
    assert gate.stops([1 << 40, 0, 0], high, PRF) is (sigma > 1e10)  # 13 standard deviations or more
    assert not gate.stops([1 << 40, 0, 0], low, PRF)
    assert gate.stops([1 << 40, 1 << 40, 0], high, PRF)


def test_a_fraction_of_one_asks_nothing():
    assert make_gate(PLANS["paper"], 1) is None
    for wrong in (-0.1, 1.1, float("nan"), "1"):
        with pytest.raises(ParameterError, match="max_bad_fraction must be"):
            make_gate(PLANS["paper"], wrong)
    union = plan_union_all(epsilon=1, delta=1e-7, max_n=2, max_contributions=3)
    assert make_gate(union, 0.5).margin == pytest.approx(6 * union.gate_sigma)


def test_a_graph_of_somebody_else(collect_paper):
    """Exact: one bad user of eleven is within a tenth, however many bad records; one record without a user more is not.

    Nothing comes out of the graph that the gate stops: no row of a level, and no file.
    """
    collect_paper.plan = exact_plan(max_n=2, threshold=1.5)
    documents = [(f"u{i}", "a b") for i in range(10)] + [("bad", 5)] * 250
    assert len(collect_paper(documents, max_bad_fraction=0.1, release="a")) == 3
    for more, name in (([(None, "x")], "b"), ([("worse", None)], "c")):
        with pytest.raises(Exception, match=r"max_bad_fraction must be at least .* got 0\.1"):
            collect_paper(documents + more, max_bad_fraction=0.1, release=name)
        assert not collect_paper.path.exists()
        assert len(collect_paper(documents + more, release=name + "-without", max_bad_fraction=1)) == 3
    # A run that was stopped has used up its key: the same data with another fraction would be another release.
    with pytest.raises(Exception, match="already used for this release label with other data"):
        collect_paper([*documents, (None, "x")], max_bad_fraction=0.9, release="b")
    assert collect_paper([], max_bad_fraction=0.0, release="nobody") == []
    assert collect_paper([5, 5, "..."], user_per_document=True, release="nobody good", max_bad_fraction=1) == []


@pytest.mark.parametrize("collect", ["paper", pytest.param("plus", marks=pytest.mark.campaign)], indirect=True)
def test_the_fraction_and_bad_records_are_bound_to_the_noise(collect):
    documents = corpus(60)
    first = collect(documents, max_bad_fraction=0.01)
    assert first
    assert collect(documents[::-1], max_bad_fraction=0.01, shards=3) == first
    for changed in ({"documents": [*documents, ("user0", 5)]}, {"max_bad_fraction": 0.02}, {"max_bad_fraction": 1.0}):
        with pytest.raises(Exception, match="already used for this release label with other data"):
            collect(**{"documents": documents, "max_bad_fraction": 0.01, **changed})


def test_windows_have_no_gate():
    documents = beam.Pipeline() | beam.Create([("a", "b")]) | beam.WindowInto(FixedWindows(5))
    with pytest.raises(ParameterError, match="max_bad_fraction must be 1 in windows"):
        documents | ExtractNgrams(PLANS["paper"], max_bad_fraction=0.5)


def test_a_gate_by_default_is_for_the_global_window():
    gate = make_gate(PLANS["paper"], None)
    assert gate == dataclasses.replace(make_gate(PLANS["paper"], DEFAULT_BAD_FRACTION), by_default=True)
    documents = beam.Pipeline() | beam.Create([("a", "b")]) | beam.WindowInto(FixedWindows(5))
    documents | ExtractNgrams(PLANS["paper"])
    labels = documents.pipeline.applied_labels
    assert any("BindRelease" in label for label in labels)
    assert not any("Decide" in label for label in labels)


def test_a_gate_by_default_stops_a_graph_that_reads_nothing(collect_paper):
    """Mappings with other names for the fields: nothing is known when the graph is built, so the gate says it."""
    documents = [{"author": f"u{i}", "body": "a b"} for i in range(400)]
    with pytest.raises(Exception, match="look at user_field, text_field"):
        collect_paper(documents)
    fields = {"user_field": "author", "text_field": "body"}
    assert collect_paper(documents, release="fields", **fields)
    one_bad = [*documents, *[{"author": "u0", "body": None}] * 250, {"body": "x"}]
    assert collect_paper(one_bad, release="one", **fields)

"""The graph: what goes in and out, that nothing but the data and the key decide the result, and who sees what."""

import typing

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from dpngram.accounting import ParameterError, plan_extraction
from dpngram.transforms import ExtractLevels, ExtractNgrams, GramTable, Ngram
from dpngram.transforms.prepare_posts import PostDigests, block_posts, collect_documents
from dpngram.transforms.randomness.noise_key import settings_digest
from dpngram.transforms.testing import exact_plan, extract_in_memory, key_source
from dpngram.transforms.tokenizers import make_tokenizer


class Post(typing.NamedTuple):
    user: str
    text: str


BUDGET = {"epsilon": 20, "delta": 0.1, "max_n": 3, "max_contributions": 12, "eta": 0.1}
PLANS = {policy: plan_extraction(policy=policy, **BUDGET) for policy in ("paper", "plus")}
PLAN = PLANS["paper"]
OTHER_BUDGETS = {"epsilon": 21, "delta": 0.2, "max_n": 2, "max_contributions": 13, "eta": 0.2, "windows": 2}


def corpus(users=200, seed=0):
    random = np.random.default_rng(seed)
    words = [f"w{i}" for i in range(12)]
    chances = 1 / np.arange(1, 13)
    return [
        (f"user{user}", " ".join(random.choice(words, random.integers(1, 12), p=chances / chances.sum())))
        for user in range(users)
        for _ in range(random.integers(1, 4))
    ]


class Collect:
    """Runs a graph and hands back what came out."""

    def __init__(self, tmp_path, policy):
        self.plan = PLANS[policy]
        self.path = tmp_path / "rows"
        self.key = tmp_path / "noise.key"
        self.key.write_bytes(b"0123456789abcdef" * 2)

    def __call__(self, documents, options=(), transform=None, **arguments):
        self.path.unlink(missing_ok=True)
        arguments = {"noise_key": str(self.key), **arguments}
        with beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions(list(options))) as pipeline:
            rows = (
                pipeline
                | beam.Create(documents, reshuffle=False)
                | "ExtractNgrams" >> (transform or ExtractNgrams)(self.plan, **arguments)
            )
            (
                rows
                | beam.Map(lambda row: (0, repr(tuple(row))))
                | beam.GroupByKey()
                | beam.MapTuple(lambda _, lines: self.path.write_text("\n".join(sorted(lines))))
            )
        return self.path.read_text().splitlines() if self.path.exists() else []


@pytest.fixture(params=["paper", "plus"])
def collect(tmp_path, request):
    return Collect(tmp_path, request.param)


@pytest.fixture
def collect_paper(tmp_path):
    """For what comes before the levels, and is the same for all policies."""
    return Collect(tmp_path, "paper")


def test_it_equals_the_plain_loop(collect):
    documents = corpus()
    source = key_source(collect.key.read_bytes(), ExtractNgrams(collect.plan).settings())
    blocks, _ = collect_documents(documents, user_field="user", text_field="text", user_per_document=False)
    tables = extract_in_memory(blocks, collect.plan, source, make_tokenizer("words"))
    expected = sorted(repr(tuple(row)) for table in tables.values() for row in table.rows())
    assert collect(documents) == expected
    assert len(expected) > 100


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ((), {"shards": 1}),
        ((), {"shards": 40}),
        (("--direct_runner_bundle_repeat=3",), {}),
        (("--direct_running_mode=multi_threading", "--direct_num_workers=4"), {}),
        (("--direct_running_mode=multi_processing", "--direct_num_workers=2"), {}),
    ],
)
def test_shards_repeats_and_workers_change_nothing(collect, options, arguments):
    documents = corpus()
    expected = collect(documents)
    shuffled = [documents[i] for i in np.random.default_rng(1).permutation(len(documents))]
    assert collect(shuffled, options, **arguments) == expected


@pytest.mark.parametrize("pruning", ["both", "single"])
def test_the_form_of_a_document_changes_nothing(collect_paper, pruning):
    texts = corpus(80)
    expected = collect_paper(texts, pruning=pruning)
    assert collect_paper([Post(*document) for document in texts], pruning=pruning) == expected
    assert collect_paper([{"user": user, "text": text, "x": 1} for user, text in texts], pruning=pruning) == expected
    assert collect_paper([beam.Row(user=user, text=text) for user, text in texts], pruning=pruning) == expected
    assert collect_paper([(user, text.split()) for user, text in texts], pruning=pruning) == expected
    assert collect_paper([(user.encode(), text) for user, text in texts], pruning=pruning) == expected
    named = [beam.Row(author=user, body=text) for user, text in texts]
    assert collect_paper(named, pruning=pruning, user_field="author", text_field="body") == expected


def test_keys_labels_plans_and_tokenizers_draw_other_noise(collect_paper, tmp_path):
    documents = corpus()
    results = [collect_paper(documents), collect_paper(documents, release="second")]
    results.append(collect_paper(documents, release="third", tokenizer="whitespace"))
    (tmp_path / "other.key").write_bytes(b"x" * 32)
    results.append(collect_paper(documents, noise_key=f"file:{tmp_path}/other.key"))
    results.append(collect_paper(documents, noise_key=None))
    results.append(collect_paper(documents, noise_key=None))
    assert len({tuple(rows) for rows in results}) == len(results)


def test_a_key_used_for_other_data_is_refused(collect):
    documents = corpus()
    first = collect(documents)
    assert collect(documents) == first
    with pytest.raises(Exception, match="already used for this release label with other data"):
        collect(documents[1:])
    with pytest.raises(Exception, match="already used for this release label with other data"):
        collect(documents, tokenizer="whitespace")
    assert collect(documents[1:], release="another")


def test_everything_that_decides_is_in_the_settings():
    """Whatever changes the histogram changes the digest that all keys are derived from; what does not, does not."""
    base = {"tokenizer": "words", "pruning": "both", "sentences": False}

    def digest(plan=PLAN, **changes):
        return settings_digest(ExtractNgrams(plan, **{**base, **changes}).settings())

    digests = [
        digest(),
        digest(PLANS["plus"]),
        *(digest(plan_extraction(policy="paper", **{**BUDGET, name: value})) for name, value in OTHER_BUDGETS.items()),
        digest(tokenizer="whitespace"),
        digest(tokenizer="regex:a+"),
        digest(tokenizer="regex:b+"),
        digest(sentences=True),
        digest(pruning="single"),
        digest(user_per_document=True),
    ]
    assert len(set(digests)) == len(digests)
    assert digest(shards=7, user_field="author", text_field="body") == digest()


def test_users_are_told_apart_by_their_bytes():
    """No id is trimmed, folded or normalised: two people would share a budget, and each decide about the other."""
    ids = ["ann", "Ann", " ann", "ann ", "ann\0", "\xe5nn", "a\u030ann", "7", "07"]
    blocks, bad = collect_documents(
        [(user, "a b") for user in ids] * 2, user_field="user", text_field="text", user_per_document=False
    )
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
    assert collect_paper([*bad[:5], *documents, *bad[5:]]) == collect_paper(documents)


@pytest.mark.parametrize("documents", [[], [("u", "")], [("u", "..."), ("v", " ")], [("u", "one")], [("u", "a b c d")]])
def test_nothing_and_next_to_nothing(collect, documents):
    assert collect(documents) == []


def test_one_user_in_many_elements_counts_once(tmp_path):
    plan = exact_plan(max_n=2, threshold=1.5, max_contributions=100)
    documents = [("lonely", "secret phrase")] * 500 + [("a", "hello world"), ("b", "hello world")]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        split = [pipeline | f"{i}" >> beam.Create(documents[i::7]) for i in range(7)]
        rows = split | beam.Flatten() | ExtractNgrams(plan) | beam.Map(lambda row: " ".join(row.tokens))
        # Two users give 1/sqrt(2) to each word, 1 to the phrase; the lonely one gives 1 to its phrase, once.
        assert_that(rows, equal_to([]))
        other = (
            pipeline
            | "Three" >> beam.Create([*documents, ("c", "hello world")])
            | "Again" >> ExtractNgrams(plan)
            | "Text" >> beam.Map(lambda row: " ".join(row.tokens))
        )
        assert_that(other, equal_to(["hello", "world", "hello world"]), label="three")


def test_a_user_of_ten_million_tokens():
    plan = exact_plan(max_n=2, threshold=0.9, max_contributions=1)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        rows = pipeline | beam.Create([10_000_000]) | beam.Map(lambda n: ("heavy", "x " * n)) | ExtractNgrams(plan)
        assert_that(rows | beam.Map(lambda row: row.tokens), equal_to([["x"], ["x", "x"]]))


def test_a_user_of_ten_million_tokens_beside_others(tmp_path):
    """Policy plus: the heavy user spends its one budget, whatever it holds; the others' phrase comes out. One key."""
    (tmp_path / "noise.key").write_bytes(b"h" * 32)
    extract = ExtractNgrams(PLANS["plus"], noise_key=str(tmp_path / "noise.key"))
    others = [(f"u{i}", "see you tomorrow") for i in range(400)]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        heavy = pipeline | beam.Create([10_000_000]) | beam.Map(lambda n: ("heavy", "see you " * (n // 2)))
        rows = (heavy, pipeline | "Others" >> beam.Create(others)) | beam.Flatten() | extract
        phrase = rows | beam.Map(lambda row: row.tokens) | beam.Filter(["see", "you", "tomorrow"].__eq__)
        assert_that(phrase, equal_to([["see", "you", "tomorrow"]]))


def test_twice_in_one_graph_and_going_on(collect):
    documents = corpus()
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        posts = pipeline | beam.Create(documents)
        first = posts | "First" >> ExtractNgrams(collect.plan, noise_key=str(collect.key))
        second = posts | "Second" >> ExtractNgrams(collect.plan, noise_key=str(collect.key))
        assert first.element_type is Ngram
        weights = [rows | f"Of{i}" >> beam.Map(lambda row: row.weight) for i, rows in enumerate((first, second))]
        both = (weights[0], weights[1]) | beam.Flatten() | beam.combiners.Count.PerElement()
        # Places in the graph draw their own noise: hardly a weight on the grid coincides.
        shared = both | beam.Filter(lambda pair: pair[1] > 1) | beam.combiners.Count.Globally()
        assert_that(shared, lambda counts: pytest.fail("shared noise") if counts[0] > 5 else None)


def test_levels_one_by_one():
    plan = exact_plan(max_n=3, threshold=1.5)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        tables = pipeline | beam.Create([(str(i), "a b") for i in range(9)]) | ExtractLevels(plan)
        assert list(tables) == [1, 2, 3]
        assert tables[1].element_type is GramTable
        sizes = [
            table | f"Size{n}" >> beam.Map(lambda table: (int(table.n), len(table), int(table.next_valid)))
            for n, table in tables.items()
        ]
        assert_that(sizes | beam.Flatten(), equal_to([(1, 2, 4), (2, 1, 0)]))


def test_each_window_is_a_release_of_its_own(collect):
    """The same documents in two windows draw different noise; a window with too few users leaves nothing."""
    documents = corpus()
    stamped = [TimestampedValue(document, at) for at in (5, 15) for document in documents]
    stamped += [TimestampedValue(("one", "w1 w2"), 25)]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        rows = (
            pipeline
            | beam.Create(stamped)
            | beam.Map(lambda value: value)
            | beam.WindowInto(FixedWindows(10))
            | ExtractNgrams(collect.plan, noise_key=str(collect.key))
            | beam.Map(lambda row, window=beam.DoFn.WindowParam: (int(window.start), (tuple(row.tokens), row.weight)))
            | "Global" >> beam.WindowInto(beam.window.GlobalWindows())
            | beam.GroupByKey()
        )

        def check(groups):
            found = {start: dict(rows) for start, rows in groups}
            assert sorted(found) == [0, 10]
            common = found[0].keys() & found[10].keys()
            assert len(common) > 50
            assert sum(found[0][gram] == found[10][gram] for gram in common) < 5

        assert_that(rows, check)


def test_labels_and_secrets_of_the_graph(collect):
    from helpers.payloads import opened  # here: worker processes import this module without its helpers

    key = collect.key.read_bytes()
    pipeline = beam.Pipeline(runner=FnApiRunner())
    pipeline | beam.Create(corpus(5)) | ExtractNgrams(collect.plan, noise_key=str(collect.key))
    proto = pipeline.to_runner_api()
    names = {transform.unique_name for transform in proto.components.transforms.values()}
    for level in collect.plan.levels:
        count = len(level.rounds)
        for step in [""] if count == 1 else [f"Round{i}/" for i in range(1, count + 1)]:
            assert f"ExtractNgrams/Level{level.n}/{step}NoisyThreshold" in names
            assert f"ExtractNgrams/Level{level.n}/{step}ClipAndWeight" in names
    assert "ExtractNgrams/Level2/ValidityFilter" in names
    assert "ExtractNgrams/Level3/AddSpuriousGrams" in names
    parts = opened(proto.SerializeToString())
    assert any(b"noise.key" in part for part in parts[1:])  # the search does look inside the pickled steps
    assert not any(key in part or key.hex().encode() in part for part in parts)
    # Every block travels by its own coder.
    coders = PipelineContext(proto.components).coders
    seen = 0
    for pcollection in proto.components.pcollections.values():
        name = pcollection.unique_name
        if "/Level" in name or "/GroupUsers" in name or "/Tokenize" in name or "/BindRelease" in name:
            described = repr(coders.get_by_id(pcollection.coder_id))
            assert not any(word in described for word in ("Pickle", "FastPrimitives", "Dill", "Fallback")), name
            seen += "BlockCoder" in described
    assert seen > 10


def test_surrogates_and_other_text_that_is_no_text():
    blocks, bad = collect_documents(
        [("u", "lone \ud800 surrogate"), ("\udfff", "text"), ("u", ["a", "\ud800"]), ("u", "fine")],
        user_field="user",
        text_field="text",
        user_per_document=False,
    )
    assert bad == 3
    assert len(blocks) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pruning": "none"}, "pruning must be one of both, single"),
        ({"tokenizer": "bpe"}, "tokenizer must be one of"),
        ({"shards": 0}, "shards must be a whole number"),
        ({"noise_key": "env:"}, "noise_key must be"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        ExtractNgrams(PLAN, **arguments)
    with pytest.raises(ParameterError, match="plan must come from plan_extraction"):
        ExtractNgrams("plan")
    with pytest.raises(ParameterError, match="pruning must be both with policy plus"):
        ExtractNgrams(PLANS["plus"], pruning="single")


def test_noise_beyond_exact_sums_is_refused_before_any_data_is_read():
    plan = plan_extraction(epsilon=1e-6, delta=1e-12, max_n=64, max_contributions=1, windows=1000)
    with pytest.raises(ParameterError, match="sigma must be below"):
        ExtractNgrams(plan)


def test_what_is_no_document():
    """No sets, whose order differs between workers; no pairs or mappings where users have no id; numpy's integers."""
    fields = {"user_field": "user", "text_field": "text"}
    _, bad = collect_documents([("u", {"a", "b"}), ("u", iter("ab"))], user_per_document=False, **fields)
    assert bad == 2
    _, bad = collect_documents([("alice", "hi"), {"user": "a"}, 5], user_per_document=True, **fields)
    assert bad == 3
    blocks, bad = collect_documents([(np.int64(7), "a"), (7, "b"), ("7", "c")], user_per_document=False, **fields)
    assert bad == 0
    assert set(blocks[0].users.to_pylist()) == {b"7"}


def test_a_remote_runner_needs_a_key():
    class SomeClusterRunner(FnApiRunner):
        pass

    with pytest.raises(ParameterError, match="noise_key must be given on SomeClusterRunner"):
        beam.Pipeline(runner=SomeClusterRunner()) | beam.Create([]) | ExtractNgrams(PLAN)

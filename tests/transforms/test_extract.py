"""The graph: what goes in and out, that nothing but the data and the key decide the result, and who sees what."""

from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from helpers.graphs import BUDGET, PLANS, corpus
from helpers.keys import write_key
from helpers.payloads import opened

from dpngram.accounting import ParameterError, plan_extraction
from dpngram.transforms import ExtractLevels, ExtractNgrams, GramTable, Ngram
from dpngram.transforms.randomness.noise_key import settings_digest
from dpngram.transforms.testing import exact_plan

TESTS = str(Path(__file__).resolve().parents[1])
PLAN = PLANS["paper"]
OTHER_BUDGETS = {"epsilon": 21, "delta": 0.2, "max_n": 2, "max_contributions": 13, "eta": 0.2, "windows": 2}


def test_shards_repeats_and_threads_change_nothing(collect):
    documents = corpus()
    expected = collect(documents)
    shuffled = [documents[i] for i in np.random.default_rng(1).permutation(len(documents))]
    assert collect(shuffled, shards=1) == expected
    assert collect(shuffled, ["--direct_runner_bundle_repeat=1"], shards=20) == expected
    assert collect(shuffled, ["--direct_running_mode=multi_threading", "--direct_num_workers=2"]) == expected


@pytest.mark.parametrize("collect", ["paper", pytest.param("plus", marks=pytest.mark.campaign)], indirect=True)
def test_worker_processes_change_nothing(collect, monkeypatch):
    """For policy plus, `test_the_same_key_gives_the_same_bytes` has them, too."""
    monkeypatch.setenv("PYTHONPATH", TESTS)  # worker processes find the helpers, which the pickler of Beam 2.62 names
    documents = corpus()
    flags = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    assert collect(documents[::-1], flags) == collect(documents)


def test_keys_labels_plans_and_tokenizers_draw_other_noise(collect_paper, tmp_path):
    documents = corpus()
    results = [collect_paper(documents), collect_paper(documents, release="second")]
    results.append(collect_paper(documents, release="third", tokenizer="whitespace"))
    write_key(tmp_path / "other.key", b"x" * 32)
    results.append(collect_paper(documents, noise_key=f"file:{tmp_path}/other.key"))
    results.append(collect_paper(documents, noise_key=None))
    results.append(collect_paper(documents, noise_key=None))
    assert len({tuple(rows) for rows in results}) == len(results)


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


@pytest.mark.parametrize("documents", [[], [("u", "")], [("u", "..."), ("v", " ")], [("u", "two")], [("u", "a b c d")]])
def test_nothing_and_next_to_nothing(collect, documents):
    assert collect(documents) == []


def test_twice_in_one_graph_and_going_on(collect):
    documents = corpus()
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        posts = pipeline | beam.Create(documents)
        first = posts | "First" >> ExtractNgrams(collect.plan, noise_key=str(collect.key))
        second = posts | "Second" >> ExtractNgrams(collect.plan, noise_key=str(collect.key))
        assert first.element_type is Ngram
        weights = [rows | f"Of{i}" >> beam.Map(_gram_and_weight) for i, rows in enumerate((first, second))]
        both = (weights[0], weights[1]) | beam.Flatten() | beam.combiners.Count.PerElement()
        # Places in the graph draw their own noise: hardly a gram has the same weight on the grid twice.
        shared = both | beam.Filter(lambda pair: pair[1] > 1) | beam.combiners.Count.Globally()
        assert_that(shared, lambda counts: pytest.fail("shared noise") if counts[0] > 5 else None)


def _gram_and_weight(row):
    return " ".join(row.tokens), row.weight


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


def test_labels_and_secrets_of_the_graph(collect):
    key = collect.key.read_bytes()
    pipeline = beam.Pipeline(runner=FnApiRunner())
    pipeline | beam.Create(corpus(5)) | ExtractNgrams(collect.plan, noise_key=str(collect.key))
    proto = pipeline.to_runner_api()
    names = {transform.unique_name for transform in proto.components.transforms.values()}
    for level in collect.plan.levels:
        rounds = ["Round1/", "Round2/", "Round3/"] if level.n == 1 else ["Survey/", "SecondLook/", "Count/"]
        for step in rounds if len(level.rounds) > 1 else [""]:
            last = "NoisyCount" if step == "Count/" else "AddSpuriousGrams"
            assert f"ExtractNgrams/Level{level.n}/{step}ClipAndWeight" in names
            assert f"ExtractNgrams/Level{level.n}/{step}{last}" in names
    assert "ExtractNgrams/Level2/ValidityFilter" in names
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
    plan = plan_extraction(epsilon=1e-5, delta=1e-12, max_n=1, max_contributions=1, windows=10**4)
    with pytest.raises(ParameterError, match="sigma must be below"):
        ExtractNgrams(plan)


def test_a_remote_runner_needs_a_key():
    class SomeClusterRunner(FnApiRunner):
        pass

    with pytest.raises(ParameterError, match="noise_key must be given on SomeClusterRunner"):
        beam.Pipeline(runner=SomeClusterRunner()) | beam.Create([]) | ExtractNgrams(PLAN)


def test_errors_name_the_class_that_was_written():
    """`ExtractLevels` is inside, and an argument of it that is misspelt gets a suggestion."""
    with pytest.raises(ParameterError, match=r"^ExtractNgrams has no argument 'tokeniser'; did you mean tokenizer\?$"):
        ExtractNgrams(PLAN, tokeniser="words")
    with pytest.raises(ParameterError, match=r"^ExtractNgrams has no argument 'colour'\.$"):
        ExtractNgrams(PLAN, colour="red")
    with pytest.raises(ParameterError, match="documents must be a PCollection, got PBegin"):
        beam.Pipeline() | ExtractNgrams(PLAN)

"""A vocabulary that was known before: S_1 without a query, and nothing that tells whether anybody is there."""

import json

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from dpngram.accounting import ParameterError, plan_extraction
from dpngram.transforms import (
    BindRelease,
    DecodeGrams,
    ExtractRound,
    GramTable,
    GroupUsers,
    PreparePosts,
    ReleaseContext,
    ValidityFilter,
    VocabularyLevel,
    make_randomness,
    make_rounds,
)
from dpngram.transforms.document_form import DocumentForm, collect_documents
from dpngram.transforms.extract import ExtractLevels, ExtractNgrams
from dpngram.transforms.randomness.noise import UNIT
from dpngram.transforms.testing import extract_in_memory, key_source
from dpngram.transforms.tokenizers import make_tokenizer
from dpngram.transforms.vocabulary import PublicVocabulary, read_vocabulary, vocabulary_level

PAPER = plan_extraction(epsilon=1, delta=1e-9, max_n=2, max_contributions=5, eta=0.2, policy="paper")
WORDS = [f"w{i:03d}" for i in range(200)]


class Phrases(beam.PTransform):
    def __init__(self, noise_key, plan=PAPER, words=WORDS, other=False):
        super().__init__()
        self._noise_key, self._plan, self._words, self._other = noise_key, plan, words, other

    def expand(self, documents):
        randomness = make_randomness(documents.pipeline, self._plan, {"words": self._words}, self._noise_key)
        named = make_randomness(documents.pipeline, self._plan, {}, self._noise_key) if self._other else randomness
        users = documents | PreparePosts("words", randomness) | GroupUsers(randomness)
        binding = users | BindRelease(randomness)
        words = binding | VocabularyLevel(self._words, named)
        context = ReleaseContext.begin(binding, randomness).after_vocabulary(words)
        policy = make_rounds(self._plan)[1][0]
        _, phrases = users | ValidityFilter(policy, context) | ExtractRound(policy, context)
        return ({1: words, 2: phrases} | DecodeGrams())[2]


def run(documents, tmp_path, window=None, **options):
    rows = tmp_path / "rows"
    rows.mkdir(exist_ok=True)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        created = pipeline | beam.Create(documents, reshuffle=False)
        if window is not None:
            created = created | beam.Map(TimestampedValue, 3) | beam.WindowInto(window)
        found = created | Phrases(str(tmp_path / "noise.key"), **options) | beam.FlatMap(GramTable.rows)
        found | beam.Map(lambda gram: (rows / "_".join(gram.tokens)).write_text("x"))
    return sorted(path.name for path in rows.iterdir())


def test_phrases_that_users_share_are_released(tmp_path):
    documents = [(f"u{i}", "w001 w002 unknown w003") for i in range(400)]
    found = run(documents, tmp_path)
    assert "w001_w002" in found
    assert not any("unknown" in name for name in found)


@pytest.mark.parametrize("documents", [[], [("u", "something else")]])
def test_nobody_and_somebody_look_alike(documents, tmp_path):
    """V_2 has 40,000 members; some 40 of them are released though nobody has them, also if there is no user at all.

    Keys are fresh: fewer than 10 has a probability below 1e-9.
    """
    assert len(run(documents, tmp_path)) >= 10


def test_windows_are_refused(tmp_path):
    with pytest.raises(ParameterError, match="windows must be global with a public vocabulary"):
        run([("u", "w001")], tmp_path, FixedWindows(10))


def test_a_policy_with_budgets_is_refused(tmp_path):
    plus = plan_extraction(epsilon=1, delta=1e-9, max_n=2, max_contributions=5, policy="plus")
    with pytest.raises(ParameterError, match="policy plus cannot be used with a public vocabulary"):
        run([("u", "w001 w002")], tmp_path, plan=plus)


def test_another_key_or_other_settings_are_found_out(tmp_path):
    with pytest.raises(Exception, match="workers hold different keys"):
        run([("u", "w001 w002")], tmp_path, other=True)


@pytest.mark.parametrize("words", [[], ["a", "b", "a"]])
def test_words_must_be_different(words):
    with pytest.raises(ParameterError, match="words must be at least one, all different"):
        VocabularyLevel(words, key_source(bytes(32)).randomness)


def test_words_are_rows_in_the_order_of_their_bytes():
    tokens = key_source(bytes(32)).digest("token")
    level = vocabulary_level([b"a", b"bb", b"c"], tokens)
    assert (level.n, level.vocabulary_size, level.valid("both")) == (1, 3, 9)
    asked = tokens.strings(np.array([0, 1, 3]), np.frombuffer(b"cbb", np.uint8))
    assert level.find_tokens(asked).tolist() == [2, 1]


PLUS = plan_extraction(epsilon=4, delta=1e-6, max_n=3, max_contributions=10, public_vocabulary=True)


def released(documents, path, **options):
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        rows = pipeline | beam.Create(documents, reshuffle=False) | ExtractNgrams(PLUS, **options)
        rows | beam.combiners.ToList() | beam.Map(lambda grams: path.write_text(json.dumps(grams)))
    return sorted((tuple(tokens), weight) for _, tokens, weight in json.loads(path.read_text()))


def test_the_graph_releases_what_the_loop_releases(tmp_path):
    """Listed words alone, also words that nobody has; and nothing of length 1."""
    documents = [(f"u{i}", "w001 w002 unknown w003 w004 w005") for i in range(300)]
    key = tmp_path / "noise.key"
    found = released(documents, tmp_path / "rows.json", vocabulary=WORDS, noise_key=f"file:{key}")
    grams = {gram for gram, _ in found}
    assert {("w001", "w002"), ("w003", "w004", "w005")} <= grams
    assert not any(len(gram) == 1 or "unknown" in gram for gram in grams)

    extract = ExtractLevels(PLUS, vocabulary=WORDS)
    source = key_source(key.read_bytes(), extract.settings())
    blocks, _ = collect_documents(documents, DocumentForm())
    tables = extract_in_memory(blocks, PLUS, source, make_tokenizer("words"), vocabulary=WORDS, histogram_shards=3)
    assert found == sorted((tuple(gram.tokens), gram.weight) for table in tables.values() for gram in table.rows())


@pytest.mark.parametrize("documents", [[], [("u", "something else")]])
def test_all_words_have_noisy_weights_whoever_is_there(documents):
    """Words that nobody has get noise, so nothing tells whether somebody is there. Two of 200 weights are equal, or one
    is 0, with a probability of about 0.08 at most: keys are fixed, so it is the same every time.
    """
    seen = []
    blocks, _ = collect_documents(documents, DocumentForm())
    source = key_source(bytes([5]) * 32)
    extract_in_memory(
        blocks, PLUS, source, make_tokenizer("words"), vocabulary=WORDS, observe=lambda _, __, level: seen.append(level)
    )
    weight = seen[0].weight * seen[0].grid
    sigma = PLUS.level(1).sigma / PLUS.level(1).rounds[0].share ** 0.5
    assert len(weight) == 200
    assert np.count_nonzero(weight == 0) < 3
    assert 0.7 * sigma < weight.std() < 1.3 * sigma  # 6 standard deviations of an estimate from 200 values


def test_what_users_spend_on_listed_words():
    """The round takes its share of the budget, and users who have no listed word pay nothing."""
    blocks, _ = collect_documents([("a", "w001 w002"), ("b", "other"), ("c", "w003 other")], DocumentForm())
    left = []

    def observe(policy, users, _):
        if policy.n == 1:
            left.extend(int(budget) for block in users for budget in block.budget)

    extract_in_memory(blocks, PLUS, key_source(bytes(32)), make_tokenizer("words"), vocabulary=WORDS, observe=observe)
    spent = sorted((UNIT**2 - budget) / UNIT**2 for budget in left)
    assert spent[0] < 1e-15
    assert 0 < spent[1] <= spent[2] <= PLUS.level(1).rounds[0].share


def test_plan_and_vocabulary_belong_together():
    plain = plan_extraction(epsilon=4, delta=1e-6, max_n=3, max_contributions=10)
    for plan, vocabulary in ((plain, WORDS), (PLUS, None)):
        with pytest.raises(ParameterError, match="vocabulary must be given with a plan that has public_vocabulary"):
            ExtractNgrams(plan, vocabulary=vocabulary)


def test_windows_are_refused_for_a_whole_release():
    created = beam.Pipeline(runner=FnApiRunner()) | beam.Create([("u", "w001")]) | beam.Map(TimestampedValue, 3)
    documents = created | beam.WindowInto(FixedWindows(10))
    with pytest.raises(ParameterError, match="windows must be global"):
        documents | ExtractNgrams(PLUS, vocabulary=WORDS)


def test_the_key_is_bound_to_the_list():
    settings = [ExtractLevels(PLUS, vocabulary=words).settings() for words in (WORDS, WORDS[:-1], WORDS[::-1])]
    assert settings[0] != settings[1]
    assert settings[0] == settings[2]
    assert settings[0]["vocabulary"]["words"] == 200


def test_lines_are_cut_as_texts_are(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("\ufeffApple\n\nNew York\nnew\n", encoding="utf-8")
    assert read_vocabulary(str(path), "words").words == ("apple", "new", "york")
    assert read_vocabulary(str(path), "words", tokens_given=True).words == ("Apple", "New York", "new")
    assert read_vocabulary(None, "words") is None
    assert len(read_vocabulary("gs://nowhere/words.txt", "words", offline=True).words) == 1


def test_the_vocabulary_of_a_tokenizer(tmp_path):
    tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
    model = tokenizers.models.WordLevel({"a": 0, "b": 1, "[UNK]": 2}, unk_token="[UNK]")
    tokenizers.Tokenizer(model).save(str(tmp_path / "tokenizer.json"))
    found = read_vocabulary("tokenizer", f"huggingface:{tmp_path / 'tokenizer.json'}")
    assert found.words == ("[UNK]", "a", "b")
    with pytest.raises(ParameterError, match="vocabulary must be a file with this tokenizer"):
        read_vocabulary("tokenizer", "words")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "at least one token"),
        (("", "a"), "none that is empty"),
        (("a", 3), "tokens, each a text"),
        (("\ud800",), "tokens, each a text"),
    ],
)
def test_lists_that_cannot_be_used(words, message):
    with pytest.raises(ParameterError, match=message):
        PublicVocabulary(words)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(ParameterError, match="vocabulary must be a file of UTF-8 text"):
        read_vocabulary(str(tmp_path / "none.txt"), "words")

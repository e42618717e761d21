"""A vocabulary that was known before: S_1 without a query, and nothing that tells whether anybody is there."""

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
from dpngram.transforms.testing import key_source
from dpngram.transforms.vocabulary import vocabulary_level

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
        return phrases | DecodeGrams(words | "Words" >> DecodeGrams())


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

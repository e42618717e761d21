"""Tokenisers against a slow regular expression, on hostile text."""

import re
import time
import unicodedata

import numpy as np
import pyarrow as pa
import pytest

from dpngram.accounting import ParameterError
from dpngram.transforms.tokenizers import base, by_text, make_tokenizer

HOSTILE = [
    "Don't stop! rock'n'roll 'quoted' ''double'' o''clock trailing' 'leading",
    "",
    " ",
    "\n\t",
    "'",
    "a",
    "\u2019tis the season\u2019s end",
    "STRASSE stra\u00dfe Stra\u1e9ee",
    "\ufb01ne \u2460 \uff21\uff22\uff23 \u00bd",
    "e\u0301 \u00e9 caf\u00e9s",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e",
    "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3002",
    "emoji \U0001f600 mix\U0001f600ed",
    "nul\0byte and\x1fcontrols",
    "snake_case a-b c/d 3.14 1,000",
    "\u0130stanbul \u03a3\u03c2",
    "x" * 4000,
    "\u00b4 spacing acute",
    "no\u00a0break\u2003em",
    "a\u200bb zero width",
]


def column(name, texts):
    out = make_tokenizer(name).tokenize(pa.array(texts, pa.large_string()))
    words = [word.decode() for word in out.vocabulary.to_pylist()]
    found = {int(r): [words[i] for i in out.ids[out.bounds[j] : out.bounds[j + 1]]] for j, r in enumerate(out.record)}
    assert len(set(words)) == len(words)
    return [found.get(row, []) for row in range(len(texts))]


def slow_words(text):
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).replace("\u2019", "'")
    inside = "".join(
        "w" if c.isalnum() or unicodedata.category(c)[0] == "M" else "'" if c == "'" else " " for c in text
    )
    return [text[match.start() : match.end()] for match in re.finditer(r"w+(?:'w+)*", inside)]


def test_words_match_the_slow_rule():
    assert column("words", HOSTILE) == [slow_words(text) for text in HOSTILE]


def test_words_match_on_random_mixtures():
    random = np.random.default_rng(0)
    alphabet = list("ab'' \n\t.\u00e9\u2019\u00df\u0301\u4e2d\U0001f600\u00a0Z9_")
    texts = ["".join(random.choice(alphabet, random.integers(0, 12))) for _ in range(3000)]
    assert column("words", texts) == [slow_words(text) for text in texts]
    assert column("whitespace", texts) == [text.split() for text in texts]


def test_whitespace_is_str_split():
    assert column("whitespace", HOSTILE) == [text.split() for text in HOSTILE]


def test_records_do_not_touch_each_other():
    assert column("words", ["don", "'t", "a'", "b", "x"]) == [["don"], ["t"], ["a"], ["b"], ["x"]]


def test_a_column_of_nothing():
    assert column("words", []) == []
    assert column("words", ["", "!"]) == [[], []]


def test_an_offset_slice_of_a_column():
    texts = pa.array(["skip me", "one two", "three"], pa.large_string())[1:]
    out = make_tokenizer("words").tokenize(texts)
    assert out.vocabulary.to_pylist() == [b"one", b"two", b"three"]


def test_unknown_names_are_refused():
    with pytest.raises(ParameterError, match="tokenizer must be one of words"):
        make_tokenizer("werds")


def tokens_of(tokenizer, texts):
    out = tokenizer.tokenize(pa.array(texts, pa.large_string()))
    words = [word.decode() for word in out.vocabulary.to_pylist()]
    return [
        (int(r), [words[i] for i in out.ids[out.bounds[j] : out.bounds[j + 1]]]) for j, r in enumerate(out.record)
    ], out.over + out.failed


def test_regex_keeps_matches_as_they_stand():
    found, over = tokens_of(make_tokenizer(r"regex:[A-Z]\w+|\d+"), ["Ab cd 12 Éf", "nothing", "X9Y 7"])
    assert found == [(0, ["Ab", "12"]), (2, ["X9Y", "7"])]
    assert over == 0
    assert make_tokenizer(r"regex:#(\w+)").spec.startswith(r"regex:#(\w+)/unicode-")
    assert tokens_of(make_tokenizer(r"regex:#(\w+)"), ["#a b #c"])[0] == [(0, ["a", "c"])]
    for bad in ("regex:", "regex:(", "regex:(a)(b)", "regex:*"):
        with pytest.raises(ParameterError, match="tokenizer regex must"):
            make_tokenizer(bad)


def test_a_callable_may_fail_on_a_record_and_no_other():
    found, over = tokens_of(make_tokenizer("shlex:split"), ["a 'b c' d", "open 'quote", "e"])
    assert found == [(0, ["a", "b c", "d"]), (2, ["e"])]
    assert over == 1
    assert make_tokenizer("numpy:char.split").spec.startswith("callable:numpy:char.split/")
    for bad in ("no_such_module:f", "shlex:no_such", "shlex:", "os:sep"):
        with pytest.raises(ParameterError, match="tokenizer must be"):
            make_tokenizer(bad)


@pytest.mark.parametrize("inner", ["words", "whitespace"])
def test_sentences_cut_records_and_keep_tokens(inner):
    text = "One two. Three 3.5 four!  Five?\nsix seven\u3002eight \u2026 nine e.g. ten"
    found, _ = tokens_of(make_tokenizer(inner, sentences=True), ["first one", text, "", "last. End"])
    plain = dict(tokens_of(make_tokenizer(inner), ["first one", text, "", "last. End"])[0])
    joined = {}
    for record, tokens in found:
        joined.setdefault(record, []).extend(tokens)
    if inner == "words":
        assert joined == plain
    assert [tokens for record, tokens in found if record == 3] == (
        [["last"], ["end"]] if inner == "words" else [["last."], ["End"]]
    )
    first = [tokens for record, tokens in found if record == 1]
    assert first[0] == (["one", "two"] if inner == "words" else ["One", "two."])
    assert len(first) == 7
    assert make_tokenizer(inner, sentences=True).spec.startswith(f"sentences:{inner}/")


def test_records_over_a_cap_are_left_out_whole(monkeypatch):
    monkeypatch.setattr(base, "MAX_TOKEN_BYTES", 4)
    monkeypatch.setattr(base, "MAX_RECORD_TOKENS", 3)
    found, over = tokens_of(
        make_tokenizer("words"), ["a b c", "a b c d", "x toolong y", "", "\u00e9\u00e9\u00e9", "ok"]
    )
    assert found == [(0, ["a", "b", "c"]), (5, ["ok"])]
    assert over == 3


def test_hugging_face(tmp_path):
    library = pytest.importorskip("tokenizers")
    built = library.Tokenizer(library.models.WordLevel({"[UNK]": 0, "hello": 1, "world": 2}, unk_token="[UNK]"))
    built.pre_tokenizer = library.pre_tokenizers.Whitespace()
    built.save(str(tmp_path / "tokenizer.json"))
    tokenizer = make_tokenizer(f"huggingface:{tmp_path}/tokenizer.json")
    assert tokens_of(tokenizer, ["hello world", "other"])[0] == [(0, ["hello", "world"]), (1, ["[UNK]"])]
    assert tokenizer.spec.startswith("huggingface:sha256-")
    (tmp_path / "tokenizer.json").write_text("{}")
    by_text._LOADED.clear()
    with pytest.raises(ParameterError, match="the same file on every worker"):
        tokens_of(tokenizer, ["hello world"])  # the run fails; else this worker would leave out its users
    with pytest.raises(ParameterError, match="must be a readable"):
        make_tokenizer(f"huggingface:{tmp_path}/tokenizer.json")


def test_words_are_fast():
    """At least 15 MB/s a core here; a quarter of that is asked for, since machines differ."""
    text = "The quick brown fox doesn't jump over the lazy dog's 12 friends. " * 40
    column_ = pa.array([text] * 4000, pa.large_string())
    tokenizer = make_tokenizer("words")
    tokenizer.tokenize(column_[:10])
    start = time.process_time()
    tokenizer.tokenize(column_)
    assert 4000 * len(text) / (time.process_time() - start) > 4e6

"""Tokenisers against a slow regular expression, on hostile text."""

import re
import unicodedata

import numpy as np
import pyarrow as pa
from helpers.costs import cheapest

from dpngram.transforms.tokenizers import make_tokenizer

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


def test_words_are_fast():
    """A third of what Python's `re` takes for simpler words, here; six times that is allowed, since machines differ."""
    text = "The quick brown fox doesn't jump over the lazy dog's 12 friends. " * 40
    column_ = pa.array([text] * 1000, pa.large_string())
    tokenizer = make_tokenizer("words")
    ours, slow = cheapest(
        lambda: tokenizer.tokenize(column_),
        lambda: [re.findall(r"\w+(?:'\w+)*", text.casefold()) for _ in range(1000)],
    )
    assert ours < 2 * slow

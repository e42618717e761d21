"""The list of tokenizers."""

import functools
import shlex
import types

import numpy as np
import pytest
from helpers.graphs import PLANS
from helpers.tokens import tokens_of

from dpngram.accounting import ParameterError
from dpngram.transforms import ExtractNgrams
from dpngram.transforms.tokenizers import TOKENIZERS, make_tokenizer


def test_unknown_names_are_refused():
    with pytest.raises(ParameterError, match="tokenizer must be one of words"):
        make_tokenizer("werds")


PARTS = [
    "it's",
    "Straße",
    "a",
    "B.",
    "e\u0301",
    "\ufb01n",
    "12,5",
    "'x'",
    "?!",
    "\u4f60\u597d",
    "\n",
    "Mr. X",
    "\U0001f600",
    "\x00",
    "",
]


@pytest.mark.parametrize("sentences", [False, True])
@pytest.mark.parametrize("name", ["words", "whitespace", r"regex:\w+", "huggingface:FILE", "shlex:split"])
def test_tokens_are_a_pure_function_of_one_text(name, sentences, tmp_path):
    """Alone, among others, in another order, again, by another copy of the tokenizer: a text has the same tokens.

    Otherwise one user's text could change what is counted of another.
    """
    if "FILE" in name:
        library = pytest.importorskip("tokenizers")
        built = library.Tokenizer(library.models.BPE({"a": 0, "b": 1, "ab": 2, "?": 3}, [("a", "b")], unk_token="?"))
        built.save(str(tmp_path / "tokenizer.json"))
        name = f"huggingface:{tmp_path}/tokenizer.json"
    random = np.random.default_rng(len(name))
    texts = [" ".join(random.choice(PARTS, random.integers(0, 9))) for _ in range(300)]
    tokenizer, again = make_tokenizer(name, sentences), make_tokenizer(name, sentences)
    alone = [[tokens for _, tokens in tokens_of(tokenizer, [text])[0]] for text in texts]
    for order in (np.arange(300), np.arange(300)[::-1], random.permutation(300), random.integers(0, 300, 300)):
        found, _ = tokens_of(again, [texts[at] for at in order])
        together = [[] for _ in order]
        for record, tokens in found:
            together[record].append(tokens)
        assert together == [alone[at] for at in order]
    assert any(alone)


def test_every_tokenizer_is_tested_for_purity():
    assert set(TOKENIZERS) == {"words", "whitespace", "regex", "huggingface", "module"}


def test_a_function_of_a_module_stands_for_its_name():
    assert make_tokenizer(shlex.split) == make_tokenizer("shlex:split")
    assert make_tokenizer(shlex.split).spec == make_tokenizer("shlex:split").spec
    assert make_tokenizer(shlex.split, sentences=True).spec == make_tokenizer("shlex:split", sentences=True).spec
    assert ExtractNgrams(PLANS["plus"], tokenizer=shlex.split).settings()["tokenizer"] == "callable:shlex:split"


def _of_this_module(text):
    return text.split()


class _WithState:
    def split(self, text):
        return text.split()


def test_functions_that_workers_cannot_import_are_refused():
    def inner(text):
        return text.split()

    renamed = functools.wraps(shlex.split)(lambda text: text.split())
    in_main = types.FunctionType(_of_this_module.__code__, {})
    in_main.__module__, in_main.__qualname__ = "__main__", "split"
    cases = {
        "put the function into a module": [lambda text: text.split(), inner, in_main],
        "got one that": [renamed, _WithState().split],
        "without one": [functools.partial(shlex.split, posix=False)],
        "or a function of a module, got int": [5],
        "or a function of a module, got NoneType": [None],
    }
    for words, wrong in cases.items():
        for tokenizer in wrong:
            with pytest.raises(ParameterError, match=f"tokenizer must be a name .*{words}"):
                make_tokenizer(tokenizer)

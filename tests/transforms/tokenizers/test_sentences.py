"""Sentences: their ends cut records, and take no token away."""

import pytest
from helpers.tokens import tokens_of

from dpngram.transforms.tokenizers import make_tokenizer


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

"""Caps on tokens and records."""

from helpers.tokens import tokens_of

from dpngram.transforms.tokenizers import base, make_tokenizer


def test_records_over_a_cap_are_left_out_whole(monkeypatch):
    monkeypatch.setattr(base, "MAX_TOKEN_BYTES", 4)
    monkeypatch.setattr(base, "MAX_RECORD_TOKENS", 3)
    found, over = tokens_of(
        make_tokenizer("words"), ["a b c", "a b c d", "x toolong y", "", "\u00e9\u00e9\u00e9", "ok"]
    )
    assert found == [(0, ["a", "b", "c"]), (5, ["ok"])]
    assert over == 3

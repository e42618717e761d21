"""Tokenizers that take one text at a time."""

import pytest
from helpers.tokens import tokens_of

from dpngram.accounting import ParameterError
from dpngram.transforms.tokenizers import by_text, make_tokenizer


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
    with pytest.raises(RuntimeError, match="the same file on every worker"):
        tokens_of(tokenizer, ["hello world"])  # the run fails; else this worker would leave out its users
    with pytest.raises(ParameterError, match="must be a readable"):
        make_tokenizer(f"huggingface:{tmp_path}/tokenizer.json")


def test_a_tokenizer_that_draws_lots_is_refused(tmp_path):
    library = pytest.importorskip("tokenizers")
    for dropout, accepted in ((None, True), (0.0, True), (0.5, False)):
        path = tmp_path / f"{dropout}.json"
        library.Tokenizer(library.models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")], dropout=dropout)).save(str(path))
        if accepted:
            assert tokens_of(make_tokenizer(f"huggingface:{path}"), ["ab"])[0] == [(0, ["ab"])]
        else:
            with pytest.raises(ParameterError, match="must have no dropout"):
                make_tokenizer(f"huggingface:{path}")

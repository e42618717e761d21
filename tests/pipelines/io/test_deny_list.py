"""--deny: what is listed is not written, and all else is written as without the list."""

import json

import numpy as np
import pytest
from helpers.runs import extract, files, small_corpus, write

from dpngram.accounting import ParameterError
from dpngram.pipelines.cli import main
from dpngram.pipelines.io.bigquery import _table_rows
from dpngram.pipelines.io.deny_list import NOTHING_DENIED, DenyList, read_deny_list
from dpngram.transforms import GramTable

WORDS = ["a", "b", "c", "d"]


def make_table(n, seed=0):
    random = np.random.default_rng(seed)
    tokens = np.unique(random.integers(0, 4, (60, n)), axis=0).astype(np.int32)
    offsets, data = np.arange(5), np.frombuffer("".join(WORDS).encode(), np.uint8)
    weight = random.normal(size=len(tokens))
    return GramTable(n=n, tokens=tokens, weight=weight, next_valid=9, rho=2.5, token_offsets=offsets, token_bytes=data)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize(
    "phrases", [["a"], ["a b"], ["b", "c d"], ["a a a"], ["c b a", "a"], ["zz"], ["a zz"], ["a b c d a b c d"], []]
)
def test_against_a_slow_reference(n, phrases):
    table = make_table(n)
    deny = DenyList(tuple(tuple(phrase.split()) for phrase in phrases))
    kept = [row for row in table.rows() if not any(f" {x} " in f" {' '.join(row.tokens)} " for x in phrases)]
    found = deny.filter(table)
    assert list(found.rows()) == kept
    assert (found.n, found.next_valid, found.rho) == (n, 9, 2.5)
    assert deny.holds(row.tokens for row in table.rows()) is (len(kept) < len(table))
    assert not deny.holds(row.tokens for row in kept)
    assert [row["tokens"] for row in _table_rows(table, deny)] == [row.tokens for row in kept]


def test_lines_are_cut_like_texts(tmp_path):
    path = tmp_path / "deny"
    path.write_text("\ufeffNew  York\n\n   \nSTRASSE\nNEW york\nit's\n", encoding="utf-8")
    assert read_deny_list(str(path), "words").phrases == (("it's",), ("new", "york"), ("strasse",))
    assert read_deny_list(str(path), "regex:[A-Z]+|it").phrases == (("N", "Y"), ("NEW",), ("STRASSE",), ("it",))
    given = read_deny_list(str(path), "words", tokens_given=True).phrases
    assert ("New", "York") in given
    assert read_deny_list(None, "words") is NOTHING_DENIED
    assert read_deny_list("gs://bucket/deny", "words", offline=True) is NOTHING_DENIED


def test_files_that_cannot_be_meant(tmp_path):
    (tmp_path / "deny").write_text("good\n\n...\n")
    with pytest.raises(ParameterError, match="deny must have a token on each line, but line 3 of"):
        read_deny_list(str(tmp_path / "deny"), "words")
    (tmp_path / "bytes").write_bytes(b"\xff")
    for name in ("missing", "bytes", ""):
        with pytest.raises(ParameterError, match="deny must be a file of UTF-8 text"):
            read_deny_list(str(tmp_path / name), "words")


@pytest.fixture(scope="module")
def corpus():
    return small_corpus(200)


@pytest.mark.parametrize("output_format", ["jsonl", "vocab"])
def test_the_release_is_the_same_but_for_what_is_listed(corpus, tmp_path, key, capsys, output_format):
    """Post-processing: same noise, same thresholds, same figures; only rows are missing."""
    flags = ["--input", write(tmp_path / "in.jsonl", corpus), "--noise_key", key, "--output_format", output_format]
    (tmp_path / "deny").write_text("W1\nw0 w2\n")
    assert extract(tmp_path / "all", *flags) == 0
    assert extract(tmp_path / "out", *flags, "--deny", tmp_path / "deny") == 0
    whole, found = files(tmp_path / "all"), files(tmp_path / "out")
    manifests = [json.loads(release["manifest.json"]) for release in (whole, found)]
    for n in (1, 2, 3):
        name = manifests[0]["levels"][n - 1]["file"]
        lines = whole[name].decode().splitlines()
        grams = [json.loads(line)["tokens"] if output_format == "jsonl" else line.split() for line in lines]
        kept = [
            line
            for line, gram in zip(lines, grams, strict=True)
            if "w1" not in gram and ["w0", "w2"] not in (gram[:2], gram[1:3])
        ]
        assert found[name].decode().splitlines() == kept
        assert n > 2 or 0 < len(kept) < len(lines)
        before, after = (manifest["levels"][n - 1] for manifest in manifests)
        assert {key: before[key] for key in ("sigma", "rho", "valid")} == {
            key: after[key] for key in ("sigma", "rho", "valid")
        }
    assert "one of 2 listed tokens or phrases were left out" in manifests[1]["origin"]["denied"]
    assert "denied" not in manifests[0]["origin"]
    assert "w1" not in json.dumps(manifests[1])
    capsys.readouterr()
    assert main(["verify", str(tmp_path / "out")]) == 0
    assert "Left out:" in capsys.readouterr().out
    for deny in ([], ["--deny", tmp_path / "in.jsonl"]):  # another list than that of the finished release
        assert extract(tmp_path / "out", *flags, "--resume", *deny) == 2
        assert "resume must have the --deny of the release" in capsys.readouterr().err
    assert extract(tmp_path / "out", *flags, "--resume", "--deny", tmp_path / "deny") == 0
    assert files(tmp_path / "out") == found


def test_the_list_is_not_in_the_output(tmp_path, corpus, capsys):
    flags = ["--input", write(tmp_path / "in.jsonl", corpus), "--deny", tmp_path / "out" / "deny"]
    assert extract(tmp_path / "out", *flags) == 2
    assert "deny must not be in the output" in capsys.readouterr().err

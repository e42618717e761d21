"""`dpngram synth` and `dpngram demo`."""

import collections
import gzip
import json

import numpy as np
import pytest

from dpngram.pipelines.cli import main
from dpngram.pipelines.synth import Corpus


def test_the_law_is_what_it_says(tmp_path):
    path = tmp_path / "c.jsonl"
    flags = ["--users", "3000", "--tokens_per_user", "40", "--vocabulary", "500", "--zipf", "1", "--phrases", "4"]
    assert main(["synth", *flags, "--phrase_users", "7,90", "--output", str(path)]) == 0
    texts = collections.defaultdict(list)
    for line in path.read_text().splitlines():
        row = json.loads(line)
        texts[row["user"]].append(row["text"])
    assert len(texts) == 3000
    truth = json.loads((tmp_path / "c.jsonl.truth.json").read_text())
    assert sorted(phrase["users"] for phrase in truth["phrases"]) == [7] * 4 + [90] * 4
    for phrase in truth["phrases"]:
        text = " ".join(phrase["tokens"])
        assert sum(text in posts for posts in texts.values()) >= phrase["users"]
    counts = collections.Counter(word for posts in texts.values() for post in posts for word in post.split())
    lengths = np.array([sum(len(post.split()) for post in posts) for posts in texts.values()])
    assert 37 < lengths.mean() < 43
    assert lengths.max() > 5 * lengths.mean()
    assert counts["w0"] / counts["w9"] == pytest.approx(10, rel=0.15)


def test_the_seed_decides_everything(tmp_path):
    for name, seed in [("a.jsonl", 1), ("b.jsonl", 1), ("c.jsonl", 2), ("d.jsonl.gz", 1)]:
        assert main(["synth", "--users", "600", "--seed", str(seed), "--output", str(tmp_path / name)]) == 0
    a, b, c = ((tmp_path / f"{name}.jsonl").read_bytes() for name in "abc")
    assert a == b != c
    assert gzip.decompress((tmp_path / "d.jsonl.gz").read_bytes()) == a


def test_blocks_join_seamlessly(monkeypatch):
    from dpngram.pipelines import synth

    monkeypatch.setattr(synth, "_USERS_PER_BLOCK", 10)
    blocks = list(Corpus(users=25, phrases=0, phrase_users=()).blocks())
    assert len(blocks) == 3
    assert {user for users, _ in blocks for user in users.to_pylist()} == {f"u{i}" for i in range(25)}


def test_users_who_write_much_are_drawn_in_smaller_blocks(monkeypatch):
    from dpngram.pipelines import synth

    monkeypatch.setattr(synth, "_TOKENS_PER_BLOCK", 5000)
    blocks = list(Corpus(users=25, tokens_per_user=500, spread=1.5, phrases=0, phrase_users=()).blocks())
    assert [len(set(users.to_pylist())) for users, _ in blocks] == [10, 10, 5]
    assert {user for users, _ in blocks for user in users.to_pylist()} == {f"u{i}" for i in range(25)}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--users", "0"], "users must be"),
        (["--users", "5", "--phrase_users", "6"], "phrase_users must be"),
        (["--users", "5", "--zipf", "x"], "zipf must be"),
        (["--users", "5", "--seed", "-1"], "seed must be"),
    ],
)
def test_bad_parameters(flags, message, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["synth", "--output", str(tmp_path / "x"), *flags])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_many_planted_phrases(tmp_path):
    """Three million planted posts: more text than one column of fixed-width strings holds."""
    corpus = Corpus(users=30_000, phrases=5000, phrase_users=(20, 100, 500), seed=5)
    *_, (names, texts) = corpus.blocks()
    assert len(names) == len(texts) == 5000 * 620
    assert texts.value_counts().field("counts").to_pylist().count(500) >= 4990

"""The life of an output directory."""

import pytest
from helpers.runs import GOOD, extract
from helpers.runs import jsonl as body

from dpngram.accounting import ParameterError, plan_extraction
from dpngram.transforms import ExtractLevels


def test_overwrite_and_resume(tmp_path, capsys):
    (tmp_path / "in.jsonl").write_bytes(body(GOOD))
    (tmp_path / "noise.key").write_bytes(b"k" * 32)
    flags = ["--input", tmp_path / "in.jsonl", "--noise_key", tmp_path / "noise.key"]
    out = tmp_path / "out"
    assert extract(out, *flags) == 0
    assert extract(out, *flags) == 2
    assert "--overwrite replaces it" in capsys.readouterr().err
    assert extract(out, *flags, "--resume") == 0  # nothing left to do
    (out / "mine.txt").write_text("kept")
    assert extract(out, *flags, "--overwrite") == 0
    assert (out / "mine.txt").read_text() == "kept"
    (out / "mine.txt").unlink()
    assert not list(out.glob("checkpoint-*"))
    with pytest.raises(ParameterError, match="checkpoints need a noise_key"):
        ExtractLevels(plan_extraction(epsilon=1, delta=0.1, max_n=2, max_contributions=1), checkpoints=str(out))


def test_what_is_not_ours_is_not_touched(tmp_path, capsys):
    (tmp_path / "in.jsonl").write_bytes(body(GOOD))
    (tmp_path / "noise.key").write_bytes(b"k" * 32)
    flags = ["--input", tmp_path / "in.jsonl", "--noise_key", tmp_path / "noise.key"]
    out = tmp_path / "out"
    out.mkdir()
    foreign = ["thesis.tmp", "checkpoint-500.pt", "ngrams-notes.md"]
    for name in foreign:
        (out / name).write_text("mine")
    assert extract(out, *flags, "--overwrite") == 0
    assert all((out / name).read_text() == "mine" for name in foreign)
    # A finished release is not taken for another one, nor for a whole one if it is not.
    assert extract(out, *flags, "--resume", "--eta", "0.2") == 2
    (out / "ngrams-02.jsonl").write_text("")
    assert extract(out, *flags, "--resume") == 2
    assert "ngrams-02.jsonl is not as it was" in capsys.readouterr().err
    (out / "manifest.json").write_text('{"name": "another program"}')
    assert extract(out, *flags, "--overwrite") == 2

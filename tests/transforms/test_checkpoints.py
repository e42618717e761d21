"""Checkpoints: a run goes on from them, and from no other run's."""

import pytest
from helpers.runs import GOOD, extract
from helpers.runs import jsonl as body

from dpngram.pipelines import extract as extract_module
from dpngram.transforms import noisy_threshold


@pytest.mark.parametrize("policy", ["paper", "plus"])
def test_resume_goes_on_from_the_rounds_that_were_done(tmp_path, policy, monkeypatch):
    """Whatever rounds are known, the result is the same; rounds that are known draw no noise again."""
    (tmp_path / "in.jsonl").write_bytes(body(GOOD))
    (tmp_path / "noise.key").write_bytes(b"k" * 32)
    flags = ["--input", tmp_path / "in.jsonl", "--noise_key", tmp_path / "noise.key", "--policy", policy]
    out = tmp_path / "out"
    monkeypatch.setattr(extract_module, "drop_checkpoints", lambda _: None)
    assert extract(out, *flags) == 0
    first = release_of(out)
    checkpoints = {path: path.read_bytes() for path in sorted(out.glob("checkpoint-*"))}
    assert len(checkpoints) >= (2 if policy == "paper" else 5)  # a round that releases nothing leaves none
    drawn = []
    original = noisy_threshold.threshold_cells

    def watched(cells, *rest):
        drawn.append(len(cells))
        return original(cells, *rest)

    monkeypatch.setattr(noisy_threshold, "threshold_cells", watched)
    counts = []
    for known in range(len(checkpoints) + 1):
        drawn.clear()
        (out / "manifest.json").unlink()
        for number, (path, data) in enumerate(checkpoints.items()):
            path.unlink(missing_ok=True)
            if number < known:
                path.write_bytes(data)
        assert extract(out, *flags, "--resume") == 0
        assert release_of(out) == first
        counts.append(len(drawn))
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1] == 0


@pytest.mark.parametrize("changed", ["data", "key", "env"])
def test_checkpoints_of_another_run_stop_it(tmp_path, changed, monkeypatch, capsys):
    """Other data, or another key: one line, and no manifest; two releases are never mixed."""
    (tmp_path / "in.jsonl").write_bytes(body(GOOD))
    (tmp_path / "noise.key").write_bytes(b"k" * 32)
    monkeypatch.setenv("NOISE", "ab" * 32)
    key = "env:NOISE" if changed == "env" else tmp_path / "noise.key"
    out = tmp_path / "out"
    monkeypatch.setattr(extract_module, "drop_checkpoints", lambda _: None)
    assert extract(out, "--input", tmp_path / "in.jsonl", "--noise_key", key) == 0
    (out / "manifest.json").unlink()
    if changed == "key":
        (tmp_path / "other.key").write_bytes(b"o" * 32)
        key = tmp_path / "other.key"
    else:
        (tmp_path / "in.jsonl").write_bytes(body(GOOD[5:]))
    capsys.readouterr()
    assert extract(out, "--input", tmp_path / "in.jsonl", "--noise_key", key, "--resume") == 1
    assert "noise_key" in capsys.readouterr().err
    assert not (out / "manifest.json").exists()


def release_of(out):
    return {
        path.name: path.read_bytes()
        for path in out.iterdir()
        if path.name != "operator.json" and not path.name.startswith("checkpoint")
    }

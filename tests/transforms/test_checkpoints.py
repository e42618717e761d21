"""Checkpoints: a run goes on from them, and from no other run's; only its owner sees them, and nobody after the end."""

import dataclasses
import os
import stat

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from helpers.keys import write_key
from helpers.runs import GOOD, checkpoints_of, extract, files, keep_checkpoints
from helpers.runs import jsonl as body

from dpngram.accounting import ParameterError, plan_extraction
from dpngram.pipelines.launch.failures import failure_line
from dpngram.transforms import ExtractLevels, checkpoints, noisy_threshold
from dpngram.transforms.blocks.levels import EMPTY_LEVEL
from dpngram.transforms.messages import Message
from dpngram.transforms.policies import plus
from dpngram.transforms.randomness.noise_key import NoiseKeyError


@pytest.mark.parametrize("policy", ["paper", "plus"])
def test_resume_goes_on_from_the_rounds_that_were_done(tmp_path, policy, monkeypatch):
    """Whatever rounds are known, the result is the same; rounds that are known draw no noise again."""
    (tmp_path / "in.jsonl").write_bytes(body(GOOD))
    write_key(tmp_path / "noise.key", b"k" * 32)
    flags = ["--input", tmp_path / "in.jsonl", "--noise_key", tmp_path / "noise.key", "--policy", policy]
    out = tmp_path / "out"
    keep_checkpoints(monkeypatch)
    assert extract(out, *flags) == 0
    first = files(out)
    kept = {path: path.read_bytes() for path in checkpoints_of(out)}
    assert len(kept) >= (2 if policy == "paper" else 5)  # a round that releases nothing leaves none
    drawn = []
    original = noisy_threshold.threshold_cells

    def watched(cells, *rest):
        drawn.append(len(cells))
        return original(cells, *rest)

    monkeypatch.setattr(noisy_threshold, "threshold_cells", watched)
    counts = []
    for known in sorted({0, 1, len(kept) // 2, len(kept)}):
        drawn.clear()
        (out / "manifest.json").unlink()
        for number, (path, data) in enumerate(kept.items()):
            path.unlink(missing_ok=True)
            if number < known:
                path.write_bytes(data)
        assert extract(out, *flags, "--resume") == 0
        assert files(out) == first
        counts.append(len(drawn))
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1] == 0


@pytest.mark.parametrize("changed", ["data", "key", "env"])
def test_checkpoints_of_another_run_stop_it(tmp_path, changed, monkeypatch, capsys):
    """Other data, or another key: one line, and no manifest; two releases are never mixed."""
    (tmp_path / "in.jsonl").write_bytes(body(GOOD))
    write_key(tmp_path / "noise.key", b"k" * 32)
    monkeypatch.setenv("NOISE", "ab" * 32)
    key = "env:NOISE" if changed == "env" else tmp_path / "noise.key"
    out = tmp_path / "out"
    keep_checkpoints(monkeypatch)
    assert extract(out, "--input", tmp_path / "in.jsonl", "--noise_key", key) == 0
    (out / "manifest.json").unlink()
    if changed == "key":
        write_key(tmp_path / "other.key", b"o" * 32)
        key = tmp_path / "other.key"
    else:
        (tmp_path / "in.jsonl").write_bytes(body(GOOD[5:]))
    if changed == "env":  # on a machine that does not remember the key, the checkpoints alone can tell
        monkeypatch.setenv("DPNGRAM_STATE", str(tmp_path / "another machine"))
    capsys.readouterr()
    assert extract(out, "--input", tmp_path / "in.jsonl", "--noise_key", key, "--resume") == 1
    assert "noise_key" in capsys.readouterr().err
    assert not (out / "manifest.json").exists()


def embedded(directory, key):
    """A graph of somebody else's."""
    plan = plan_extraction(epsilon=20, delta=0.1, max_n=3, max_contributions=12, eta=0.1)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        documents = pipeline | beam.Create([(row["user"], row["text"]) for row in GOOD])
        documents | ExtractLevels(plan, noise_key=str(key), checkpoints=str(directory))


def test_a_damaged_checkpoint_before_a_level(tmp_path):
    """The step that reads the next level needs its name, and may be the first to see it: one message, not two."""
    (tmp_path / "block").write_bytes(bytes(32) + EMPTY_LEVEL.to_bytes()[:-9])
    with pytest.raises(NoiseKeyError) as caught:
        checkpoints._name_in(str(tmp_path / "block"))
    assert failure_line(caught.value) == Message.OTHER_CHECKPOINTS.format()


def test_a_part_of_the_levels_needs_them():
    plan = plan_extraction(epsilon=20, delta=0.1, max_n=3, max_contributions=12, eta=0.1)
    with pytest.raises(ParameterError, match="checkpoints are needed"):
        ExtractLevels(plan).up_to(2)
    kept = ExtractLevels(plan, noise_key="env:KEY", checkpoints="kept")
    for n in (0, 4):
        with pytest.raises(ParameterError, match="n must be"):
            kept.up_to(n)


def test_a_run_that_is_refused_never_writes_one(tmp_path, monkeypatch):
    """Not even for a moment: too many bad records, and the step that writes checkpoints has not begun."""
    (tmp_path / "in.jsonl").write_bytes(body(GOOD) + b"no json\n" * 300)
    begun = []
    hand_on = checkpoints.EndDoFn.hand_on
    monkeypatch.setattr(checkpoints.EndDoFn, "hand_on", lambda *given: begun.append(1) or hand_on(*given))
    keep_checkpoints(monkeypatch)
    flags = ["--input", tmp_path / "in.jsonl", "--noise_key", tmp_path / "noise.key", "--max_n", 2]
    assert extract(tmp_path / "out", *flags, "--max_bad_fraction", 0.1) == 1
    assert begun == []
    assert checkpoints_of(tmp_path / "out") == []
    (tmp_path / "in.jsonl").write_bytes(body(GOOD))
    assert extract(tmp_path / "good", *flags, "--release", "good") == 0
    assert len(checkpoints_of(tmp_path / "good")) == len(begun) >= 4


def test_only_the_owner_sees_them(tmp_path):
    """Also under a umask that hides nothing."""
    before = os.umask(0)
    try:
        (tmp_path / "noise.key").write_bytes(b"k" * 32)
        (tmp_path / "noise.key").chmod(0o600)
        embedded(tmp_path / "kept", tmp_path / "noise.key")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "kept").iterdir()} == {0o600}


def test_dropping_is_for_checkpoints_only(tmp_path):
    """Twice is as good as once; what else is there stays, and with it the directory."""
    place = tmp_path / "kept"
    checkpoints.drop_checkpoints(str(place))
    place.mkdir()
    ours = [f"checkpoint-{'0a' * 8}-01-1.block", f"checkpoint-{'0a' * 8}-02-1.block.{'0f' * 8}.tmp"]
    for name in [*ours, "checkpoint-500.pt"]:
        (place / name).write_text("x")
    checkpoints.drop_checkpoints(str(place))
    assert [path.name for path in place.iterdir()] == ["checkpoint-500.pt"]
    (place / "checkpoint-500.pt").unlink()
    checkpoints.drop_checkpoints(str(place))
    assert not place.exists()
    checkpoints.drop_checkpoints(str(place))


@pytest.fixture
def two_runs(tmp_path, monkeypatch):
    """The flags of a run, its files, and the checkpoints of two runs of the same data and key: another processor made
    the surveys of the second, so their names differ."""
    (tmp_path / "in.jsonl").write_bytes(body(GOOD))
    write_key(tmp_path / "noise.key", b"k" * 32)
    flags = ["--input", tmp_path / "in.jsonl", "--noise_key", tmp_path / "noise.key"]
    out, kept = tmp_path / "out", []
    settle = plus.PlusSurvey.settle
    keep_checkpoints(monkeypatch)
    for change in (2, 0):

        def rename(*given, change=change):
            found = settle(*given)
            return dataclasses.replace(found, name=found.name + change)

        monkeypatch.setattr(plus.PlusSurvey, "settle", rename)
        assert extract(out, *flags, "--overwrite") == 0
        kept.append({path: path.read_bytes() for path in checkpoints_of(out)})
    return out, flags, files(out), kept


def test_a_checkpoint_that_follows_from_another_stops_the_run(two_runs, capsys):
    """Each of the two has a right MAC: the second look, whose draws went on from one survey, and the other survey."""
    out, flags, expected, (theirs, ours) = two_runs
    survey = next(path for path in ours if path.name.endswith("-02-1.block"))
    assert theirs[survey] != ours[survey]
    (out / "manifest.json").unlink()
    survey.write_bytes(theirs[survey])
    capsys.readouterr()
    assert extract(out, *flags, "--resume") == 1
    assert Message.OTHER_CHECKPOINTS.format() in capsys.readouterr().err
    survey.write_bytes(ours[survey])
    assert extract(out, *flags, "--resume") == 0
    assert files(out) == expected


def test_a_checkpoint_that_is_lost_is_made_again(two_runs):
    """And all that come after it: nothing goes on from a round that is computed anew."""
    out, flags, expected, (_, ours) = two_runs
    for lost in ours:
        (out / "manifest.json").unlink()
        lost.unlink()
        assert extract(out, *flags, "--resume") == 0
        assert files(out) == expected
        assert {path: path.read_bytes() for path in checkpoints_of(out)} == ours

"""The life of an output directory: the release and nothing else, whatever else a run writes."""

import json
import os
import re
import shlex
import shutil
import stat

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from helpers.faulty_graphs import batch
from helpers.keys import write_key
from helpers.runs import BUDGET, GOOD, checkpoints_of, extract, files, keep_checkpoints, notes_of
from helpers.runs import jsonl as body

from dpngram.accounting import ParameterError, plan_extraction
from dpngram.pipelines.cli import main
from dpngram.pipelines.io import output_directory
from dpngram.pipelines.io.encoding import OUTPUT_FORMATS
from dpngram.pipelines.io.output_directory import Places, beside, can_resume, clean_up
from dpngram.pipelines.io.release_files import rows_name
from dpngram.transforms import ExtractLevels

SMALL = ["--policy", "paper", "--max_n", "2"]  # what is written where is the same for all policies


def test_overwrite_and_resume(tmp_path, capsys):
    (tmp_path / "in.jsonl").write_bytes(body(GOOD))
    write_key(tmp_path / "noise.key", b"k" * 32)
    flags = ["--input", tmp_path / "in.jsonl", "--noise_key", tmp_path / "noise.key", *SMALL]
    out = tmp_path / "out"
    assert extract(out, *flags) == 0
    assert extract(out, *flags) == 2
    assert "--overwrite replaces it" in capsys.readouterr().err
    assert extract(out, *flags, "--resume") == 0  # nothing left to do
    (out / "mine.txt").write_text("kept")
    assert extract(out, *flags, "--overwrite") == 0
    assert (out / "mine.txt").read_text() == "kept"
    (out / "mine.txt").unlink()
    assert not (tmp_path / "out.checkpoints").exists()
    with pytest.raises(ParameterError, match="checkpoints need a noise_key"):
        ExtractLevels(plan_extraction(epsilon=1, delta=0.1, max_n=2, max_contributions=1), checkpoints=str(out))


def test_what_is_not_ours_is_not_touched(tmp_path, capsys):
    (tmp_path / "in.jsonl").write_bytes(body(GOOD))
    write_key(tmp_path / "noise.key", b"k" * 32)
    flags = ["--input", tmp_path / "in.jsonl", "--noise_key", tmp_path / "noise.key", *SMALL]
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


@pytest.fixture
def flags(tmp_path):
    (tmp_path / "in.jsonl").write_bytes(body([*GOOD, {"user": "x"}]))
    return ["--input", tmp_path / "in.jsonl", "--noise_key", tmp_path / "noise.key", *SMALL]


@pytest.mark.parametrize("output_format", OUTPUT_FORMATS)
def test_a_copy_of_the_output_can_be_published(tmp_path, output_format, flags):
    """Rows, manifest and report, as anybody may read them; nothing that anybody may not read is beside them."""
    out = tmp_path / "out"
    assert extract(out, *flags, "--output_format", output_format, "--bad_records", tmp_path / "bad") == 0
    shutil.copytree(out, tmp_path / "published")
    published = {"manifest.json", "report.html", *(rows_name(n, output_format) for n in (1, 2))}
    assert {str(path.relative_to(tmp_path / "published")) for path in (tmp_path / "published").rglob("*")} == published
    exact = {path for path in tmp_path.rglob("*") if path.is_file() and b"missing_text" in path.read_bytes()}
    assert exact == {tmp_path / "out.operator.json", *(tmp_path / "bad").iterdir()}
    assert {stat.S_IMODE(path.stat().st_mode) for path in exact} == {0o600}
    assert stat.S_IMODE((tmp_path / "bad").stat().st_mode) == 0o700
    assert set(tmp_path.iterdir()) - exact - set(tmp_path.glob("noise.key")) - set(tmp_path.glob("dpngram-*.used")) == {
        tmp_path / name for name in ("in.jsonl", "bad", "out", "published")
    }


def test_notes_beside_the_output_or_elsewhere(tmp_path, flags, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert extract("out/", *flags) == 0  # with a slash, or from inside: beside it all the same
    assert notes_of(tmp_path / "out")["bad_records"] == {"missing_text": 1}
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert extract(".", *flags) == 0
    assert notes_of(tmp_path / "here")["records"] == len(GOOD) + 1
    assert extract(tmp_path / "two", *flags, "--operator_notes", tmp_path / "deep" / "notes.json") == 0
    notes = tmp_path / "deep" / "notes.json"
    assert json.loads(notes.read_text())["bad_records"] == {"missing_text": 1}
    assert stat.S_IMODE(notes.stat().st_mode) == 0o600
    assert not (tmp_path / "two.operator.json").exists()
    # Notes of an earlier run are replaced with the release, and only then; other people's files never.
    shutil.rmtree(tmp_path / "out")
    capsys.readouterr()
    assert extract(tmp_path / "out", *flags) == 2
    assert "out.operator.json' of an earlier run (--overwrite replaces it)" in capsys.readouterr().err
    assert extract(tmp_path / "out", *flags, "--overwrite") == 0
    before = files(tmp_path / "out")
    (tmp_path / "mine.json").write_text('{"note": "mine"}')
    for more in ([], ["--overwrite"]):
        assert extract(tmp_path / "out", *flags, "--operator_notes", tmp_path / "mine.json", *more) == 2
    assert (tmp_path / "mine.json").read_text() == '{"note": "mine"}'
    assert files(tmp_path / "out") == before  # looked at first, deleted then


def test_notes_that_cannot_be_written_are_told_first(tmp_path, flags, capsys):
    assert extract(tmp_path / "out", *flags, "--operator_notes", tmp_path / "in.jsonl" / "notes.json") == 2
    assert "operator_notes must be a file that can be written" in capsys.readouterr().err
    assert extract(tmp_path / "out", *flags, "--operator_notes", tmp_path) == 2


def test_all_notes_have_one_size(tmp_path, flags):
    """Who may list the directory, and no more, sees the size of the file."""
    hostile = [b"no json", b"[]", b'{"user": 5.5, "text": ""}', b'{"user": "", "text": ""}', b"\xff"] * 3
    assert extract(tmp_path / "out", *flags) == 0
    (tmp_path / "in.jsonl").write_bytes(body(GOOD) + b"\n".join(hostile))
    assert extract(tmp_path / "two", "--input", tmp_path / "in.jsonl", "--max_bad_fraction", "1") == 0
    assert len(notes_of(tmp_path / "two")["bad_records"]) == 5
    sizes = {(tmp_path / f"{name}.operator.json").stat().st_size for name in ("out", "two")}
    assert sizes == {4096}


def test_old_notes_and_checkpoints_do_not_outlive_their_release(tmp_path, flags, monkeypatch):
    """--overwrite deletes them before anything is read, also for a run that has no key."""
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        keep_checkpoints(patch)
        assert extract(out, *flags) == 0
    assert checkpoints_of(out)
    (tmp_path / "in.jsonl").write_bytes(body(GOOD) + b"no json\n" * 300)  # refused
    assert extract(out, "--input", tmp_path / "in.jsonl", "--overwrite") == 1
    assert list(out.iterdir()) == []
    assert not (tmp_path / "out.checkpoints").exists()
    assert not (tmp_path / "out.operator.json").exists()


def test_checkpoints_of_a_run_that_died(tmp_path, flags, monkeypatch, capsys):
    """They are kept for --resume, and no other run touches them."""
    out, rounds = tmp_path / "out", tmp_path / "rounds"
    flags += ["--checkpoints", rounds]
    with monkeypatch.context() as patch:
        keep_checkpoints(patch)
        assert extract(out, *flags) == 0
    first, kept = files(out), {path: path.read_bytes() for path in rounds.iterdir()}
    shutil.rmtree(out)
    (tmp_path / "out.operator.json").unlink()
    capsys.readouterr()
    assert extract(out, *flags) == 2
    assert "of an unfinished run (--overwrite starts again)" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in rounds.iterdir()} == kept
    assert extract(out, *flags, "--resume") == 0
    assert files(out) == first
    assert not rounds.exists()
    rounds.mkdir()
    (rounds / "thesis.txt").write_text("mine")
    assert extract(out, *flags, "--overwrite") == 0
    assert files(out) == first
    assert [path.name for path in rounds.iterdir()] == ["thesis.txt"]
    assert extract(tmp_path / "other", *flags) == 2
    assert extract(tmp_path / "other", "--input", tmp_path / "in.jsonl", "--checkpoints", rounds) == 2
    assert "--checkpoints needs --noise_key" in capsys.readouterr().err


def test_an_output_of_an_earlier_version(tmp_path, flags, capsys):
    """Notes and checkpoints were inside: --overwrite takes them away, --resume does not touch them."""
    out = tmp_path / "out"
    out.mkdir()
    old = [out / "operator.json", out / f"checkpoint-{'0a' * 8}-01-1.block"]
    for path in old:
        path.write_text("old")
    assert extract(out, *flags, "--resume") == 2
    assert "those in the output are of an earlier version" in capsys.readouterr().err
    assert all(path.exists() for path in old)
    assert extract(out, *flags, "--overwrite") == 0
    assert not any(path.exists() for path in old)


@pytest.mark.parametrize("policy", ["paper", "plus"])
def test_the_graph_itself_cleans_up(tmp_path, monkeypatch, policy):
    """Nobody waits for the end of it: after its last step there are no checkpoints, and nothing half written."""
    for name in ("out", "bad", "key"):
        (tmp_path / name).mkdir()
    write_key(tmp_path / "key" / "noise.key", b"k" * 32)
    (tmp_path / "out" / f"manifest.json.{'0f' * 8}.tmp").write_text("half")
    seen = []
    original = output_directory.clean_up

    def watched(output, checkpoints):
        seen.append((len(checkpoints_of(tmp_path / "out")), os.path.exists(f"{output}/manifest.json")))
        original(output, checkpoints)
        original(output, checkpoints)  # a step that runs again

    monkeypatch.setattr(output_directory, "clean_up", watched)
    pipeline = beam.Pipeline(runner=FnApiRunner())
    batch(pipeline, tmp_path, policy, monkeypatch)
    pipeline.run().wait_until_finish()
    ((rounds, written),) = seen
    assert rounds >= 2
    assert written
    assert not (tmp_path / "out.checkpoints").exists()
    assert not list((tmp_path / "out").glob("*.tmp"))


@pytest.mark.parametrize(
    ("output", "place"),
    [
        ("/data/release", "/data/release.notes"),
        ("/data/release//", "/data/release.notes"),
        ("/data/x/../release/.", "/data/release.notes"),
        ("gs://bucket/release/", "gs://bucket/release.notes"),
        ("gs://bucket/deep/release", "gs://bucket/deep/release.notes"),
        ("gs://bucket", None),
        ("gs://bucket/", None),
        ("/", None),
    ],
)
def test_beside(output, place):
    """Never inside, and never another bucket."""
    assert beside(output, "notes") == place


def test_nothing_is_beside_a_bucket(tmp_path, flags, capsys):
    words = ["extract", "--quiet", "--epsilon", 4, "--delta", 1e-7, "--max_n", 2, "--max_contributions", 9, *flags]
    for more, name in ([], "operator_notes"), (["--operator_notes", tmp_path / "notes.json"], "checkpoints"):
        with pytest.raises(SystemExit):
            main([*map(str, [*words, "--output", "gs://bucket/", *more])])
        assert f"{name} must be given: nothing can be beside 'gs://bucket/'" in capsys.readouterr().err


def test_cleaning_up_what_is_not_there(tmp_path):
    clean_up(str(tmp_path / "none"), str(tmp_path / "neither"))
    clean_up(str(tmp_path / "none"), None)
    assert list(tmp_path.iterdir()) == []


def test_an_unfinished_run_offers_the_command_that_resumes_it(tmp_path, capsys, monkeypatch):
    """When it fails, and to whoever runs into what it left; the command does it, with its list of bad records."""
    (tmp_path / "in.jsonl").write_bytes(body(GOOD) + b"no json\n")
    flags = ["--input", tmp_path / "in.jsonl", "--noise_key", tmp_path / "noise.key", "--bad_records", tmp_path / "bad"]
    out = tmp_path / "o  u't"
    with monkeypatch.context() as broken:
        broken.setattr("dpngram.pipelines.io.writing._Writer.write", lambda *_, **_more: 1 / 0)
        assert extract(out, *flags) == 1
    failed = capsys.readouterr().err
    assert can_resume(places_of(out))
    assert extract(out, *flags) == 2
    found = capsys.readouterr().err
    assert f"got {str(out)!r} of an unfinished run (--overwrite starts again). To finish it: dpngram" in found
    offers = [re.search(r": (dpngram extract .* --resume)\n", said).group(1) for said in (failed, found)]
    assert offers[0] == offers[1]
    assert extract(out, *flags[:2]) == 2
    assert (
        "of an unfinished run (--overwrite starts again). Give its --noise_key and --resume to finish it.\n"
        in capsys.readouterr().err
    )
    program, *words = shlex.split(offers[0])
    assert (program, main(words)) == ("dpngram", 0)
    assert not can_resume(places_of(out))
    assert [path.name for path in (tmp_path / "bad").iterdir()] == ["bad-000000.jsonl"]
    whole = ["--input", tmp_path / "in.jsonl", "--noise_key", tmp_path / "noise.key"]
    assert extract(tmp_path / "whole", *whole, *BUDGET) == 0
    assert files(out) == files(tmp_path / "whole")


def test_what_cannot_be_resumed(tmp_path, capsys):
    (tmp_path / "in.jsonl").write_bytes(body(GOOD))
    out, rounds = tmp_path / "out", tmp_path / "out.checkpoints"
    assert not can_resume(places_of(out))
    out.mkdir()
    rounds.mkdir()
    assert not can_resume(places_of(out))
    (rounds / "checkpoint-0123456789abcdef-01-0.block").write_bytes(b"")
    assert can_resume(places_of(out))
    for name in ("manifest.json", "thesis.txt"):
        (out / name).write_text("{}")
        assert not can_resume(places_of(out))
        assert extract(out, "--input", tmp_path / "in.jsonl") == 2
        assert "unfinished run" not in capsys.readouterr().err
        (out / name).unlink()


def places_of(out):
    return Places(str(out), None, f"{out}.checkpoints", keeps=True)

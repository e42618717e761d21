"""`dpngram ledger`, and --ledger of `extract` and `stream`."""

import json

import pytest
from helpers.runs import GOOD, extract, write

from dpngram import Ledger, plan_extraction
from dpngram.pipelines import extract as extract_program
from dpngram.pipelines.cli import main
from dpngram.pipelines.launch.ledger_flags import EXTRACT_LABEL
from dpngram.transforms.randomness.noise_key import KeyReference, Randomness

PLAN = plan_extraction(epsilon=2, delta=1e-7, max_n=2, max_contributions=20)


def show(*flags):
    try:
        return main(["ledger", *map(str, flags)])
    except SystemExit as stop:
        return stop.code


@pytest.fixture
def given(tmp_path):
    return ["--input", write(tmp_path / "in.jsonl", GOOD), "--ledger", tmp_path / "users.ledger"]


def entries(given):
    return Ledger(given[-1]).read()[0]


def test_releases_are_entered_and_the_sum_is_shown(given, tmp_path, capsys):
    assert extract(tmp_path / "a", *given, "--release", "first") == 0
    assert "1 release, together (20, 0.1)-differentially private." in capsys.readouterr().out
    assert extract(tmp_path / "b", *given) == 0
    assert "2 releases, together (33.56, 0.2)" in capsys.readouterr().out
    assert extract(tmp_path / "c", *given, "--input_format", "text") == 2
    assert "unit must be 'user', which the releases in the ledger" in capsys.readouterr().err
    assert [entry.what for entry in entries(given)] == [
        {"policy": "plus", "program": "extract", "release": name, "output": str(tmp_path / output)}
        for name, output in (("first", "a"), ("", "b"))
    ]


def test_a_run_beyond_the_budget_is_refused_before_anything_is_read(given, tmp_path, capsys, monkeypatch):
    assert extract(tmp_path / "a", *given, "--budget", "25,0.2") == 0
    before = Ledger(given[-1]).read()

    def reads(*_arguments, **_more):
        raise AssertionError

    monkeypatch.setattr(extract_program, "check_input", reads)
    flags = ["--noise_key", tmp_path / "key", "--operator_notes", tmp_path / "notes"]
    for more in ([], ["--budget", "25,0.2"]):
        assert extract(tmp_path / "b", *given, *flags, *more) == 2
        assert "must fit the budget (25, 0.2) of the ledger" in capsys.readouterr().err
    assert extract(tmp_path / "b", *given, "--budget", "100,0.2") == 2
    assert "budget must be 25,0.2" in capsys.readouterr().err
    assert Ledger(given[-1]).read() == before
    assert not any((tmp_path / name).exists() for name in ("b", "key", "notes", "b.checkpoints"))


def test_a_release_with_its_key_is_one_entry(given, tmp_path):
    flags = [*given[:2], "--noise_key", tmp_path / "key", *given[2:]]
    assert extract(tmp_path / "a", *flags) == 0
    assert extract(tmp_path / "a", "--resume", *flags) == 0
    assert extract(tmp_path / "a", "--overwrite", *flags) == 0
    assert len(entries(given)) == 1
    assert extract(tmp_path / "b", "--release", "other", *flags) == 0
    assert len(entries(given)) == 2
    write(tmp_path / "in.jsonl", GOOD[1:])  # other data: the key is refused, and nothing is released
    assert extract(tmp_path / "c", *flags) == 1
    assert len(entries(given)) == 2


def test_a_run_that_fails_counts_and_one_that_does_not_start_does_not(given, tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for wrong in (["--tokenizer", "werds"], ["--user_field", "nobody"], ["--max_bad_fraction", 2]):
        assert extract(tmp_path / "a", *given, *wrong) == 2
    assert extract(tmp_path / "full", *given) == 2
    assert not (tmp_path / "users.ledger").exists()
    bad = [{"user": f"u{i}", "text": 5} for i in range(3000)]
    write(tmp_path / "in.jsonl", [*GOOD, *bad])
    assert extract(tmp_path / "a", *given) == 1  # stopped by the gate: what it told is paid for
    assert "max_bad_fraction" in capsys.readouterr().err
    assert len(entries(given)) == 1


def test_the_entry_is_there_before_anything_runs(given, tmp_path, monkeypatch):
    """The process dies at once: the release counts."""
    seen = []
    monkeypatch.setattr(extract_program, "_run", lambda *_: seen.append(len(entries(given))) or 0)
    assert extract(tmp_path / "a", *given) == 0
    assert seen == [1]


def test_flags_that_cannot_be_meant(given, tmp_path, capsys):
    cases = {
        "--budget needs --ledger": [*given[:2], "--budget", "4,1e-6"],
        "budget must be two numbers": [*given, "--budget", "4"],
        "ledger must be a file on a local filesystem": [*given[:2], "--ledger", "gs://bucket/ledger"],
        "ledger must not be in the output": [*given[:2], "--ledger", tmp_path / "out" / "ledger"],
    }
    for words, flags in cases.items():
        assert extract(tmp_path / "out", *flags) == 2
        assert words in capsys.readouterr().err


def test_the_table(tmp_path, capsys):
    path = tmp_path / "ledger"
    Ledger(path).enter(PLAN, program="extract", release="2026", output="out/")
    Ledger(path).enter(PLAN, program="stream")
    assert show(path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["entered", "(UTC)", "epsilon", "delta", "program", "label", "output"]
    assert lines[1].split()[1:] == ["2", "1e-07", "extract", "2026", "out/"]
    assert lines[2].split()[1:] == ["2", "1e-07", "stream"]
    assert lines[3].startswith(f"Ledger {path}: 2 releases, together (2.8")
    assert lines[4] == "Added up without composition they would be (4, 2e-07)."
    assert show(path, "--delta", "1e-5", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["together"]["delta"] == 1e-5
    assert 2 < document["together"]["epsilon"] < 2.8
    assert [release["program"] for release in document["releases"]] == ["extract", "stream"]


def test_a_ledger_that_is_not_there_or_was_changed(tmp_path, capsys):
    path = tmp_path / "ledger"
    assert show(path) == 2
    assert "ledger must be a file that is there" in capsys.readouterr().err
    Ledger(path).enter(PLAN)
    path.write_text(path.read_text().replace("2.0", "1.0"))
    assert show(path) == 2
    assert "line 1 was changed" in capsys.readouterr().err
    path.unlink()
    assert show(path) == 2
    assert "must have the 1 line(s) that it had before" in capsys.readouterr().err


def test_a_stream_enters_what_it_may_ever_spend(tmp_path, capsys, monkeypatch):
    """The run itself is left out: engines for streams are in tests/engines."""
    import apache_beam as beam

    started = []
    monkeypatch.setattr(beam.Pipeline, "run", lambda self: started.append(self) or _Done())
    budget = ["--epsilon", "4", "--delta", "1e-6", "--max_n", "2", "--max_contributions", "10", "--windows", "30"]
    ledger = tmp_path / "users.ledger"

    def stream(start, *more):
        words = ["--window", 60, "--output", tmp_path / "out", "--noise_key", tmp_path / "key", "--ledger", ledger]
        words += ["--input", tmp_path / "*.jsonl", "--runner", "PortableRunner", "--start", start, *more]
        try:
            return main(["stream", *budget, *map(str, words)])
        except SystemExit as stop:
            return stop.code

    for start, number in (("new", 1), ("continued", 1), ("again", 2)):
        restored = ["--savepoint_path", tmp_path] if start == "continued" else []
        assert stream(start, "--budget", "6,1e-5", *restored) == 0
        assert len(Ledger(ledger).read()[0]) == number
        if start == "new":  # what its workers do
            key = KeyReference.parse(str(tmp_path / "key"), remote=True)
            Randomness(key, "", EXTRACT_LABEL, "any settings").open().start_stream("one")
    assert "2 releases, together (" in capsys.readouterr().out
    assert [entry.spending.epsilon for entry in Ledger(ledger).read()[0]] == [4, 4]
    assert stream("again") == 2
    assert "must fit the budget" in capsys.readouterr().err
    assert len(started) == 3


class _Done:
    def wait_until_finish(self):
        pass

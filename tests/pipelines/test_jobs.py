"""A run of several jobs, one after another: the bytes, the notes and the ledger of one job, also if it is killed.

Flink has such runs. Here each job is one of the local runner.
"""

import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from helpers.faults import InjectedFault
from helpers.keys import write_key
from helpers.runs import checkpoints_of, extract, files, jsonl, notes_of, small_corpus

from dpngram.pipelines import extract as program
from dpngram.transforms import noisy_count, noisy_threshold
from dpngram.transforms.messages import Message

PARTS = [[1, 2, 3], [2, 3]]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs `dpngram extract` as the jobs that end with these levels; gives the exit status."""
    (tmp_path / "in.jsonl").write_bytes(jsonl(small_corpus(400)) + b"no json\n" * 3)
    write_key(tmp_path / "noise.key", b"k" * 32)
    whole = ["--input", tmp_path / "in.jsonl", "--noise_key", tmp_path / "noise.key"]

    def run(name, ends, *flags):
        monkeypatch.setattr(program, "job_ends", lambda _, plan: [end for end in ends if end <= plan.max_n])
        return extract(tmp_path / name, *whole, *flags)

    return run


@pytest.fixture
def calls(monkeypatch):
    """A list that gets an entry for each noisy shard and each count; `calls.fail` at this one."""

    class Calls(list):
        fail = None

    seen = Calls()

    def watch(module, name):
        original = getattr(module, name)

        def watched(*given, **more):
            seen.append(name)
            if seen.fail == len(seen):
                raise InjectedFault
            return original(*given, **more)

        monkeypatch.setattr(module, name, watched)

    watch(noisy_threshold, "threshold_cells")
    watch(noisy_count, "_count")
    return seen


@pytest.fixture
def jobs(monkeypatch):
    """A list that gets an entry for each job."""
    begun = []
    original = FnApiRunner.run_pipeline
    monkeypatch.setattr(FnApiRunner, "run_pipeline", lambda *given: begun.append(1) or original(*given))
    return begun


@pytest.mark.parametrize("policy", ["paper", "plus"])
def test_several_jobs_are_one_run(run, tmp_path, policy, calls, jobs, capsys):
    """No round is computed twice, records are counted once, the ledger has one entry, and no checkpoint is left."""
    flags = ["--policy", policy, "--ledger", tmp_path / "ledger", "--release", "all", "--bad_records"]
    assert run("one", [3], *flags, tmp_path / "bad") == 0
    computed = calls.copy()
    assert len(jobs) == 1
    for number, ends in enumerate(PARTS):
        calls.clear()
        jobs.clear()
        assert run(f"parts{number}", ends, *flags, tmp_path / f"bad{number}") == 0
        assert len(jobs) == len(ends)
        assert sorted(calls) == sorted(computed)
        assert files(tmp_path / f"parts{number}") == files(tmp_path / "one")
        assert files(tmp_path / f"bad{number}") == files(tmp_path / "bad")
        for name in ("records", "bad_records"):
            assert notes_of(tmp_path / f"parts{number}")[name] == notes_of(tmp_path / "one")[name]
        assert checkpoints_of(tmp_path / f"parts{number}") == []
    assert capsys.readouterr().out.count(": 1 release, together") == 3


def test_a_public_vocabulary(run, tmp_path):
    (tmp_path / "words").write_text("w0\nw1\nw2\nw3\nnobody\n")
    flags = ["--vocabulary", tmp_path / "words"]
    assert run("one", [3], *flags) == run("parts", [1, 2, 3], *flags) == 0
    assert files(tmp_path / "parts") == files(tmp_path / "one")


@pytest.mark.parametrize("ends", PARTS)
def test_killed_in_any_job(run, tmp_path, ends, calls, jobs, capsys):
    """The same command with --resume goes on; jobs that are done are not run again."""
    assert run("one", [3], "--policy", "plus") == 0
    all_calls = len(calls)
    begun = set()
    for fail in range(2, all_calls + 1, 2):
        calls.clear()
        jobs.clear()
        calls.fail = fail
        assert run("parts", ends, "--policy", "plus", "--overwrite") == 1
        begun.add(len(jobs))
        calls.fail = None
        before = len(checkpoints_of(tmp_path / "parts"))
        assert ("To finish this run: dpngram extract " in capsys.readouterr().err) == (before > 0)
        jobs.clear()
        assert run("parts", ends, "--policy", "plus", "--resume") == 0
        assert files(tmp_path / "parts") == files(tmp_path / "one")
        assert len(jobs) == sum(3 * end > before for end in ends[:-1]) + 1
    assert begun == set(range(1, len(ends) + 1))


def test_a_run_that_is_refused_ends_with_its_first_job(run, tmp_path, jobs, capsys):
    (tmp_path / "in.jsonl").write_bytes(jsonl(small_corpus(400)) + b"no json\n" * 900)
    assert run("parts", [1, 2, 3]) == 1
    assert "max_bad_fraction" in capsys.readouterr().err
    assert len(jobs) == 1
    assert checkpoints_of(tmp_path / "parts") == []
    assert files(tmp_path / "parts") == {}


def test_checkpoints_that_this_machine_does_not_see(run, tmp_path, jobs, monkeypatch, capsys):
    """It would compute all rounds once more, as one job, which no planner ends."""
    monkeypatch.setattr("dpngram.transforms.extract.ExtractLevels.levels_done", lambda _: 0)
    assert run("parts", [1, 2, 3]) == 1
    assert Message.CHECKPOINTS_NOT_SHARED.format() in capsys.readouterr().err
    assert len(jobs) == 1


def test_a_note_says_how_many_jobs(run, tmp_path, monkeypatch, capsys):
    flags = ["--input", tmp_path / "in.jsonl", "--noise_key", tmp_path / "noise.key", "--max_n", 3]
    flags += ["--epsilon", 20, "--delta", 0.1, "--max_contributions", 12]
    monkeypatch.setattr(program, "job_ends", lambda *_: [2, 3])
    assert program.run(["--output", str(tmp_path / "out"), *map(str, flags)]) == 0
    assert "dpngram: note: Flink cannot plan all rounds as one job, so this run is 2 jobs, one after another.\n" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("runner", ["FlinkRunner", "PortableRunner"])
def test_several_jobs_need_a_key(tmp_path, runner, capsys):
    """The error is one line with the command to type."""
    (tmp_path / "in.jsonl").write_bytes(jsonl(small_corpus(10)))
    flags = ["--input", tmp_path / "in.jsonl", "--max_n", 4, "--runner", runner]
    assert extract(tmp_path / "out", *flags) == 2
    said = capsys.readouterr().err
    assert said.startswith("dpngram extract: error: noise_key must be given for policy plus with max_n 4 on Flink")
    assert said.count("\n") == 1
    assert f"--max_n 4 --runner {runner} --noise_key file:run.key (--help" in said
    assert not (tmp_path / "out").exists()

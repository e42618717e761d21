"""Whatever fails, is repeated or is killed: one release, byte for byte. Noise drawn again would be a second one."""

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from helpers.faults import Faults, RetryingRunner, owners
from helpers.faulty_graphs import (
    CORPUS,
    audited,
    batch,
    compared,
    in_a_host,
    in_windows,
    of_a_frame,
    of_tables,
    polled,
    streamed,
)
from helpers.keys import write_key
from helpers.runs import BUDGET, checkpoints_of, extract, files, jsonl, keep_checkpoints
from helpers.streams import tolerate_empty_bundles

from dpngram.pipelines.compare import exact_directory
from dpngram.pipelines.launch.beam_flags import beam_options


class Run(NamedTuple):
    """How a graph is run with faults: how often in a campaign, and how many places must fail at least."""

    build: Callable
    policy: str
    runs: int
    places: int
    written: int = 1  # manifests, or what stands for one
    streaming: bool = False


RUNS = {
    "paper": Run(batch, "paper", 25, 45),
    "plus": Run(batch, "plus", 25, 70),
    "paper in windows": Run(in_windows, "paper", 20, 40, written=3),
    "plus in windows": Run(in_windows, "plus", 15, 60, written=3),
    "plus resumed": Run(batch, "plus", 10, 60),
    "paper in windows of a stream": Run(streamed, "paper", 5, 42, written=3, streaming=True),
    "compared": Run(compared, "plus", 5, 88),
    "plus of tables": Run(of_tables, "plus", 5, 65),
    "audited": Run(audited, "paper", 5, 38),
    "plus in a host": Run(in_a_host, "plus", 5, 88),
    "plus of a frame": Run(of_a_frame, "plus", 5, 67),
    "polled": Run(polled, "none", 5, 2),
}
# Steps that fail in none of these runs, and why.
NOT_HERE = {
    "dpngram.transforms.vocabulary._VocabularyDoFn": "no program has it; examples/parts.py does. What it makes is a "
    "function of the words and the key.",
    "dpngram.pipelines.io.polling._PollDoFn": "puts off what is left of its range, and the retrying runner knows no "
    "such steps. A poll that is made again finds the same files again; `polled` has them twice.",
    **dict.fromkeys(
        ("dpngram.pipelines.io.kafka._PartitionsDoFn", "dpngram.pipelines.io.kafka._ReadDoFn"),
        "need a broker. tests/engines/test_kafka_flink.py kills the workers that run them.",
    ),
    "dpngram.pipelines.io.kafka_output._SendDoFn": "needs a broker, too. "
    "tests/engines/test_kafka_flink.py counts the records after a kill.",
}


def left_behind(tmp_path):
    """{path: bytes} of everything that a run wrote, temporary names included."""
    places = [*written_places(tmp_path), tmp_path / "key"]
    return {
        str(path.relative_to(tmp_path)): path.read_bytes()
        for place in places
        for path in place.rglob("*")
        if path.is_file()
    }


def written_places(tmp_path):
    return [
        tmp_path / "out",
        tmp_path / "out.checkpoints",
        tmp_path / "bad",
        Path(exact_directory(str(tmp_path / "out"))),
    ]


def clear(tmp_path, keep=()):
    """As before the run, but for the key."""
    for place in written_places(tmp_path):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
    for path in (tmp_path / "key").glob("*.used"):
        path.unlink()
    for path, data in keep:
        path.write_bytes(data)


@pytest.fixture
def _quiet():
    """The runner logs every failure, with the elements that it failed on."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("_quiet")
@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.parametrize("runs", [1, pytest.param(None, marks=pytest.mark.campaign)])
def test_every_step_fails_once_at_a_random_element(tmp_path, monkeypatch, kind, runs):
    """In each run every DoFn and CombineFn of ours fails once, in every round; more than a hundred runs in a campaign.

    Before an element, between its outputs, or after them. Key setup, bundles' ends and combining, too.
    """
    run = RUNS[kind]
    faults, runner = Faults(monkeypatch), RetryingRunner()
    known = []
    make_key(tmp_path)
    if kind == "plus resumed":  # what a run leaves that dies after its first two rounds
        pipeline = build(run, runner, tmp_path, monkeypatch)
        with monkeypatch.context() as patch:
            keep_checkpoints(patch)
            runner.run_again(pipeline, monkeypatch)
        known = [(path, path.read_bytes()) for path in checkpoints_of(tmp_path / "out")[:2]]
        assert len(known) == 2
        clear(tmp_path, known)
    pipeline = build(run, runner, tmp_path, monkeypatch)
    faults.order()
    runner.run_again(pipeline, monkeypatch)
    undisturbed, calls = left_behind(tmp_path), dict(faults.calls)
    written = "comparison.json" if run.build is compared else "manifest.json"
    assert sum(path.endswith(written) for path in undisturbed) == run.written
    assert not [path for path in undisturbed if path.endswith(".tmp") or "checkpoint" in path]
    random = np.random.default_rng(17)
    for _ in range(runs or run.runs):
        clear(tmp_path, known)
        faults.order(random, calls)
        runner.run_again(pipeline, monkeypatch)
        assert sorted(faults.failed) == sorted(calls)  # every place, once
        assert len(faults.failed) >= run.places
        assert left_behind(tmp_path) == undisturbed


def build(run, runner, tmp_path, monkeypatch):
    tolerate_empty_bundles(monkeypatch)
    pipeline = beam.Pipeline(runner=runner, options=beam_options(["--streaming"] if run.streaming else []))
    run.build(pipeline, tmp_path, run.policy, monkeypatch)
    return pipeline


def make_key(tmp_path):
    (tmp_path / "key").mkdir()
    write_key(tmp_path / "key" / "noise.key", b"f" * 32)
    clear(tmp_path)


@pytest.mark.campaign
def test_every_step_is_in_one_of_these_runs(tmp_path, monkeypatch):
    """A new step is failed somewhere, or it is said why not; what is said of a step that is failed is out of date."""
    seen = set()
    for number, (kind, run) in enumerate(RUNS.items()):
        directory = tmp_path / str(number)
        directory.mkdir()
        with monkeypatch.context() as patch:
            patch.setenv("DPNGRAM_STATE", str(directory / "state"))  # each run has the key for itself
            make_key(directory)
            faults, runner = Faults(patch), RetryingRunner()
            pipeline = build(run, runner, directory, patch)
            if kind == "plus resumed":  # its graph has a step that loads a round
                with monkeypatch.context() as keeping:
                    keep_checkpoints(keeping)
                    runner.run_again(pipeline, patch)
                (directory / "out" / "manifest.json").unlink()
                pipeline = build(run, runner, directory, patch)
            runner.run_again(pipeline, patch)
            seen |= {owner for owner, *_ in faults.calls}
    assert seen & NOT_HERE.keys() == set()
    assert owners() - seen == NOT_HERE.keys()


@pytest.mark.parametrize("policy", ["paper", "plus"])
@pytest.mark.parametrize("build", [batch, in_windows])
def test_every_bundle_runs_three_times(tmp_path, monkeypatch, build, policy):
    """The runner of local runs has a switch for it; what was written is written again, the same."""
    make_key(tmp_path)
    faults, found = Faults(monkeypatch), []
    for flags in ([], ["--direct_runner_bundle_repeat=2"]):
        clear(tmp_path)
        faults.order()
        pipeline = beam.Pipeline(runner=FnApiRunner(), options=beam_options(flags))
        build(pipeline, tmp_path, policy, monkeypatch)
        pipeline.run().wait_until_finish()
        found.append((left_behind(tmp_path), dict(faults.calls)))
    (once, calls), (thrice, more) = found
    assert thrice == once
    for place, times in calls.items():
        if place[1] == "process":
            assert more[place] == 3 * times, place


# Every worker process reads it when it starts: one that has saved a round says who it is, and waits to be killed.
WAITING = """
import os, time
from dpngram.transforms import checkpoints
hand_on = checkpoints.EndDoFn.hand_on

def waiting(self, found, binding, past):
    yield from hand_on(self, found, binding, past)
    with open(__file__ + ".tmp", "w") as file:
        file.write(str(os.getpid()))
    os.rename(__file__ + ".tmp", __file__ + ".pid")
    time.sleep(3600)

checkpoints.EndDoFn.hand_on = waiting
"""


def _children(pid):
    """Processes that a process has started."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(child) for child in task.read_text().split()]
    return found


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to find worker processes")
def test_a_worker_process_is_killed(tmp_path):
    """The local runner gives up, in one line; the same command with --resume ends in the bytes of a quiet run."""
    (tmp_path / "in.jsonl").write_bytes(jsonl(CORPUS))
    write_key(tmp_path / "noise.key", b"f" * 32)
    (tmp_path / "sitecustomize.py").write_text(WAITING)
    out = tmp_path / "out"
    flags = ["--input", str(tmp_path / "in.jsonl"), "--noise_key", str(tmp_path / "noise.key"), "--quiet"]
    command = [sys.executable, "-m", "dpngram.pipelines.cli", "extract", *BUDGET, *flags, "--output", str(out)]
    command += ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    environment["PYTHONWARNINGS"] = "ignore::FutureWarning"  # Google's old packages; the program does so, but later
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    while run.poll() is None and not (tmp_path / "sitecustomize.py.pid").exists():
        time.sleep(0.02)
    waiting = int((tmp_path / "sitecustomize.py.pid").read_text())
    workers = _children(run.pid)
    assert waiting in workers
    assert len(workers) == 2
    os.kill(waiting, signal.SIGKILL)
    printed = run.communicate()
    assert run.returncode == 1
    assert printed[0] == ""
    assert printed[1].startswith("dpngram extract: error: the run failed ")
    assert printed[1].count("\n") == 1
    assert not (out / "manifest.json").exists()
    assert checkpoints_of(out)
    assert extract(out, *flags, "--resume") == 0
    assert extract(tmp_path / "quiet", *flags) == 0
    assert files(out) == files(tmp_path / "quiet")

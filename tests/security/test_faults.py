"""Whatever fails, is repeated or is killed: one release, byte for byte. Noise drawn again would be a second one."""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing import test_stream
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from helpers.faults import Faults, RetryingRunner, tolerate_empty_bundles
from helpers.runs import BUDGET, extract, files, jsonl, small_corpus

from dpngram.accounting import plan_extraction
from dpngram.pipelines.compare import EXACT_DIRECTORY, compare_files
from dpngram.pipelines.extract import extract_files
from dpngram.pipelines.io.reading import InputFormat
from dpngram.pipelines.io.writing import WriteWindows
from dpngram.pipelines.launch.beam_flags import beam_options
from dpngram.pipelines.launch.input_flags import read_documents
from dpngram.pipelines.research.systems import SYSTEMS, plan_comparison
from dpngram.pipelines.stream import stream_messages
from dpngram.transforms import ExtractLevels
from dpngram.transforms.baselines.compare_systems import CompareSystems

CORPUS = small_corpus(60)
# kind of run: (policy, runs with faults, places that fail at least)
RUNS = {
    "paper": ("paper", 25, 33),
    "plus": ("plus", 25, 45),
    "paper in windows": ("paper", 20, 28),
    "plus in windows": ("plus", 15, 36),
    "plus resumed": ("plus", 10, 30),
    "paper in windows of a stream": ("paper", 5, 28),
    "compared": ("plus", 5, 40),
}


def make_plan(policy, **more):
    return plan_extraction(epsilon=20, delta=0.1, max_n=2, max_contributions=12, eta=0.1, policy=policy, **more)


def batch(pipeline, tmp_path, policy):
    """Files with some bad records -> a release; a key file with its record, checkpoints, a list of bad records."""
    for part in range(3):
        (tmp_path / f"in{part}.jsonl").write_bytes(jsonl(CORPUS[part::3]) + b"no json\n" * part)
    plan = make_plan(policy)
    extract = ExtractLevels(
        plan, noise_key=str(tmp_path / "key" / "noise.key"), shards=3, checkpoints=str(tmp_path / "out")
    )
    extract_files(
        pipeline,
        [str(tmp_path / "in*.jsonl")],
        InputFormat(name="jsonl"),
        str(tmp_path / "out"),
        plan,
        extract,
        bad_records=str(tmp_path / "bad"),
        max_bad_fraction=0.1,
    )


def in_windows(pipeline, tmp_path, policy):
    """Documents over three windows, each user in at most two -> a release for each window."""
    posts = [TimestampedValue((row["user"], row["text"]), 7 * i % 30) for i, row in enumerate(CORPUS)]
    _release_windows(pipeline | beam.Create(posts), tmp_path, policy)


def streamed(pipeline, tmp_path, policy):
    """The same without an end in sight, from JSON messages: the windows that users are in are kept in state."""
    stream = test_stream.TestStream().advance_watermark_to(-1)
    for second in range(0, 30, 3):
        messages = [(json.dumps({**row, "time": second}), 1000.0) for row in CORPUS[second // 3 :: 10]]
        elements = [TimestampedValue(message, second) for message in [*messages, ("no json", 1000.0)]]
        stream.advance_watermark_to(second).add_elements(elements)
    plan = make_plan(policy, windows=2)
    extract = ExtractLevels(plan, noise_key=str(tmp_path / "key" / "noise.key"), shards=2)
    messages = pipeline | stream.advance_watermark_to_infinity()
    stream_messages(messages, ("user", "text", "time"), FixedWindows(10), str(tmp_path / "out"), plan, extract)


def compared(pipeline, tmp_path, _policy):
    """All systems on one reading, exact counts and a limit of users' tokens included."""
    (tmp_path / "in.jsonl").write_bytes(jsonl(CORPUS))
    budget = {"epsilon": 20, "delta": 0.1, "max_n": 2, "max_contributions": 12, "eta": 0.1, "decay": 1.0}
    more = {"systems": ",".join(SYSTEMS), "sweeps": [], "sweep_system": None, "repeats": 1, "as_printed": False}
    comparison = plan_comparison(**budget, **more)
    systems = CompareSystems(
        [run for _, _, run in comparison.runs()],
        noise_key=str(tmp_path / "key" / "noise.key"),
        shards=2,
        max_user_tokens=60,
        anonymity=[5],
        followed=range(len(comparison.systems)),
    )
    documents, tallies = read_documents(pipeline, [str(tmp_path / "in.jsonl")], InputFormat(name="jsonl"), None)
    compare_files(documents, tallies, str(tmp_path / "out"), comparison, systems, [5])


def _release_windows(documents, tmp_path, policy):
    plan = make_plan(policy, windows=2)
    extract = ExtractLevels(plan, noise_key=str(tmp_path / "key" / "noise.key"), shards=2)
    tables = documents | beam.WindowInto(FixedWindows(10)) | "ExtractNgrams" >> extract
    tables | "Write" >> WriteWindows(str(tmp_path / "out"), plan, {}, "jsonl")


def left_behind(tmp_path):
    """{path: bytes} of everything that a run wrote, temporary names included."""
    places = [tmp_path / name for name in ("out", "bad", "key")]
    return {
        str(path.relative_to(tmp_path)): path.read_bytes()
        for place in places
        for path in place.rglob("*")
        if path.is_file()
    }


def clear(tmp_path, keep=()):
    """As before the run, but for the key."""
    for name in ("out", "bad"):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
        (tmp_path / name).mkdir()
    (tmp_path / "out" / EXACT_DIRECTORY).mkdir()
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
def test_every_step_fails_once_at_a_random_element(tmp_path, monkeypatch, kind):
    """A hundred runs in all; in each of them every DoFn and CombineFn of ours fails once, in every round.

    Before an element, between its outputs, or after them. Key setup, bundles' ends and combining, too.
    """
    policy, runs, places = RUNS[kind]
    (tmp_path / "key").mkdir()
    (tmp_path / "key" / "noise.key").write_bytes(b"f" * 32)
    clear(tmp_path)
    faults, runner = Faults(monkeypatch), RetryingRunner()
    known = []
    if kind == "plus resumed":  # what a run leaves that dies after its first two rounds
        pipeline = beam.Pipeline(runner=runner, options=beam_options([]))
        batch(pipeline, tmp_path, policy)
        runner.run_again(pipeline, monkeypatch)
        known = [(path, path.read_bytes()) for path in sorted((tmp_path / "out").glob("checkpoint-*"))[:2]]
        assert len(known) == 2
        clear(tmp_path, known)
    tolerate_empty_bundles(monkeypatch)
    pipeline = beam.Pipeline(runner=runner, options=beam_options(["--streaming"] if "stream" in kind else []))
    build = streamed if "stream" in kind else in_windows if "windows" in kind else batch
    (compared if kind == "compared" else build)(pipeline, tmp_path, policy)
    faults.order()
    runner.run_again(pipeline, monkeypatch)
    undisturbed, calls = left_behind(tmp_path), dict(faults.calls)
    written = "comparison.json" if kind == "compared" else "manifest.json"
    assert sum(path.endswith(written) for path in undisturbed) == (3 if "windows" in kind else 1)
    assert not [path for path in undisturbed if path.endswith(".tmp")]
    random = np.random.default_rng(17)
    for _ in range(runs):
        clear(tmp_path, known)
        faults.order(random, calls)
        runner.run_again(pipeline, monkeypatch)
        assert sorted(faults.failed) == sorted(calls)  # every place, once
        assert len(faults.failed) >= places
        assert left_behind(tmp_path) == undisturbed


@pytest.mark.parametrize("policy", ["paper", "plus"])
@pytest.mark.parametrize("build", [batch, in_windows])
def test_every_bundle_runs_three_times(tmp_path, monkeypatch, build, policy):
    """The runner of local runs has a switch for it; what was written is written again, the same."""
    (tmp_path / "key").mkdir()
    (tmp_path / "key" / "noise.key").write_bytes(b"f" * 32)
    faults, found = Faults(monkeypatch), []
    for flags in ([], ["--direct_runner_bundle_repeat=2"]):
        clear(tmp_path)
        faults.order()
        pipeline = beam.Pipeline(runner=FnApiRunner(), options=beam_options(flags))
        build(pipeline, tmp_path, policy)
        pipeline.run().wait_until_finish()
        found.append((left_behind(tmp_path), dict(faults.calls)))
    (once, calls), (thrice, more) = found
    assert thrice == once
    for place, times in calls.items():
        if place[1] == "process":
            assert more[place] == 3 * times, place


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
    (tmp_path / "noise.key").write_bytes(b"f" * 32)
    out = tmp_path / "out"
    flags = ["--input", str(tmp_path / "in.jsonl"), "--noise_key", str(tmp_path / "noise.key"), "--quiet"]
    command = [sys.executable, "-m", "dpngram.pipelines.cli", "extract", *BUDGET, *flags, "--output", str(out)]
    command += ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while run.poll() is None and not list(out.glob("checkpoint-*.block")):
        time.sleep(0.02)
    workers = _children(run.pid)
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    printed = run.communicate(timeout=60)
    assert run.returncode == 1
    assert printed[0] == ""
    assert printed[1].startswith("dpngram extract: error: the run failed ")
    assert printed[1].count("\n") == 1
    assert not (out / "manifest.json").exists()
    assert list(out.glob("checkpoint-*.block"))
    assert extract(out, *flags, "--resume") == 0
    assert extract(tmp_path / "quiet", *flags) == 0
    assert files(out) == files(tmp_path / "quiet")

"""The same graph on a real Flink cluster: one release, byte for byte, also when parts of the cluster are killed.

Needs Java and Maven; Flink and Beam's job server are fetched into a cache by `examples/flink.py`.
"""

import importlib.util
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.window import FixedWindows
from helpers.runs import files, jsonl, small_corpus

from dpngram.accounting import plan_extraction
from dpngram.pipelines.io.messages import GatherMessages
from dpngram.pipelines.stream import stream_messages
from dpngram.transforms import ExtractLevels

HERE = Path(__file__).parent
BUDGET = ["--epsilon", "20", "--delta", "0.1", "--max_n", "3", "--max_contributions", "12", "--eta", "0.1"]
TIMEOUT = 600

for tool in ("java", "mvn"):
    if shutil.which(tool) is None:
        pytest.skip(f"Flink needs {tool}, which is not installed", allow_module_level=True)

spec = importlib.util.spec_from_file_location("flink", HERE.parents[1] / "examples" / "flink.py")
flink = importlib.util.module_from_spec(spec)
spec.loader.exec_module(flink)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with flink.FlinkCluster(flink.fetch(), tmp_path_factory.mktemp("cluster")) as running:
        yield running


def start(program, *flags):
    return subprocess.Popen(
        [sys.executable, "-m", "dpngram.pipelines.cli", program, *BUDGET, *map(str, flags)],
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, errors


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("small") / "sequences"
    path.write_text("\n".join(row["text"] for row in small_corpus(5000)) + "\n")
    return path


LONG = [pytest.param(name, marks=pytest.mark.campaign) for name in ("small", "msnbc")]


@pytest.fixture(scope="module", params=["short", *LONG])
def corpus(request, tmp_path_factory):
    """The flags that read a corpus, and its release on the local runner. `short` is `small` with two levels."""
    directory = tmp_path_factory.mktemp("corpus")
    path = request.getfixturevalue("small" if request.param == "short" else request.param)
    flags = ["--input", path, "--input_format", "text", "--tokenizer", "whitespace", "--quiet"]
    flags += ["--noise_key", directory / "key"]
    flags += {"short": ["--max_n", "2"], "small": [], "msnbc": ["--skip_header_lines", "7"]}[request.param]
    finish(start("extract", "--output", directory / "local", *flags))
    return flags, files(directory / "local")


def test_a_worker_frees_what_its_parts_leave():
    """Objects of a part that is done, which refer to each other, are gone at once. In a process of its own: it patches
    Beam's worker."""
    program = """
import gc, sys, weakref
from apache_beam.runners.worker import sdk_worker
sys.path.insert(0, sys.argv[1])
import flink_worker

class Processor:
    def __init__(self):
        self.itself = self

    def shutdown(self):
        pass

gc.disable()
flink_worker.collect_what_parts_leave(sdk_worker, 2)
cached = [Processor()]
left = weakref.ref(cached[0])
sdk_worker.BundleProcessorCache._shutdown_cached_bundle_processors(cached)
assert left() is None
assert sdk_worker.DEFAULT_BUNDLE_PROCESSOR_CACHE_SHUTDOWN_THRESHOLD_S == 2
"""
    subprocess.run([sys.executable, "-c", program, HERE.parents[1] / "examples"], check=True)


def test_the_same_bytes(cluster, corpus, tmp_path):
    flags, expected = corpus
    finish(start("extract", "--output", tmp_path / "out", *flags, *cluster.flags))
    assert files(tmp_path / "out") == expected


def running_tasks(cluster):
    """Finished tasks of the job that runs now; -1 if there is none."""
    for job in cluster.ask("jobs/overview")["jobs"]:
        if job["state"] == "RUNNING":
            return job["tasks"]["finished"]
    return -1


def wait_for_the_middle(cluster, process, finished=30):
    end = time.monotonic() + TIMEOUT
    while running_tasks(cluster) < finished:
        assert process.poll() is None, "the run was over before anything could be killed"
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.campaign
@pytest.mark.parametrize("corpus", LONG, indirect=True)
@pytest.mark.parametrize("victim", ["TaskManager", "Python worker"])
def test_killed_in_the_middle(cluster, corpus, tmp_path, victim):
    """Flink starts the lost part of the job again; the release is the one that nobody disturbed."""
    flags, expected = corpus
    process = start("extract", "--output", tmp_path / "out", *flags, *cluster.flags)
    wait_for_the_middle(cluster, process)
    if victim == "TaskManager":
        cluster.kill("taskmanager1")
    else:
        os.kill(cluster.python_workers()[0], signal.SIGKILL)
    finish(process)
    if victim == "TaskManager":
        cluster.start_task_manager(1)
    assert files(tmp_path / "out") == expected


def feed(directory, begin, seconds):
    """A file with the messages of each second, one after another."""
    rows = small_corpus(300)
    for second in range(seconds):
        messages = [{**row, "time": begin + second + number / len(rows)} for number, row in enumerate(rows)]
        (directory / "part.tmp").write_bytes(jsonl(messages))
        (directory / "part.tmp").rename(directory / f"part{second:03d}.jsonl")
        time.sleep(0.4)


def release_in_batch(messages, flags, output):
    """The graph of `dpngram stream`, on the local runner, with all messages and their arrivals there from the start.

    No windows wait for late messages here: the names of the windows, and so the noise, are the same.
    """
    plan = plan_extraction(epsilon=20, delta=0.1, max_n=3, max_contributions=12, eta=0.1, windows=20)
    extract = ExtractLevels(plan, noise_key=str(flags["--noise_key"]), shards=4, max_bad_fraction=1.0)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        lines = pipeline | beam.Create(messages) | GatherMessages()
        stream_messages(lines, ("user", "text", "time"), FixedWindows(5), str(output), plan, extract)


@pytest.mark.campaign
def test_a_run_of_several_jobs(cluster, small, tmp_path):
    """`plus` with five lengths has fifteen rounds, more than Flink plans as one job."""
    flags = ["--input", small, "--input_format", "text", "--tokenizer", "whitespace", "--max_n", "5"]
    flags += ["--noise_key", tmp_path / "key"]
    finish(start("extract", "--output", tmp_path / "local", *flags))
    before = len(cluster.ask("jobs/overview")["jobs"])
    finish(start("extract", "--output", tmp_path / "flink", *flags, *cluster.flags))
    assert len(cluster.ask("jobs/overview")["jobs"]) == before + 2
    assert files(tmp_path / "flink") == files(tmp_path / "local")
    assert len(json.loads((tmp_path / "local" / "manifest.json").read_text())["levels"]) == 5
    assert not (tmp_path / "flink.checkpoints").exists()


@pytest.mark.campaign
def test_a_stream(cluster, tmp_path):
    """Messages arrive while the job runs; what Flink releases for each window is what a batch of them all gives."""
    (tmp_path / "in").mkdir()
    flags = {"--input": tmp_path / "in" / "*.jsonl", "--time_field": "time", "--noise_key": tmp_path / "key"}
    flags |= {"--window": 5, "--windows": 20, "--max_delay": 6000, "--poll": 1, "--duration": 60}
    words = [word for flag in flags.items() for word in flag]
    begin = time.time() // 5 * 5 - 100  # whole windows, that are not over for a long time yet
    process = start("stream", "--output", tmp_path / "flink", *words, *cluster.flags)
    while running_tasks(cluster) < 0:
        assert process.poll() is None
        time.sleep(0.1)
    feed(tmp_path / "in", begin, 25)
    finish(process)
    messages = [
        (line, math.floor(1000 * json.loads(line)["time"]))
        for path in (tmp_path / "in").iterdir()
        for line in path.read_bytes().splitlines(keepends=True)
    ]
    release_in_batch(messages, flags, tmp_path / "batch")
    windows = sorted(path.name for path in (tmp_path / "batch").iterdir())
    assert len(windows) == 5
    for window in windows:
        assert files(tmp_path / "flink" / window) == files(tmp_path / "batch" / window)
        manifest = json.loads((tmp_path / "batch" / window / "manifest.json").read_text())
        assert min(level["released"] for level in manifest["levels"]) > 0
        assert "--".join(manifest["window"].values()).replace(":", "-") == window
    assert sorted(path.name for path in (tmp_path / "flink").iterdir()) == windows

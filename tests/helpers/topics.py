"""Topics in tests of engines: a broker, messages, what a topic holds, a stream over it, and a batch over the same."""

import contextlib
import importlib.util
import json
import math
import os
import subprocess
import sys
import threading
import time
from datetime import datetime
from pathlib import Path

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.window import FixedWindows
from helpers.runs import small_corpus

from dpngram.accounting import plan_extraction
from dpngram.pipelines.io.messages import GatherMessages
from dpngram.pipelines.stream import stream_messages
from dpngram.transforms import ExtractLevels

ROOT = Path(__file__).parents[2]
WINDOW, DELAY = 10, 2
BUDGET = {"epsilon": 20, "delta": 0.1, "max_n": 3, "max_contributions": 12, "eta": 0.1, "windows": 40}
ROWS = small_corpus(300)
# What no stream should see.
STRANGE = [
    b"no json",
    b"\xff",
    b"",
    None,
    b"[" * 9000,
    json.dumps({**ROWS[0], "time": 32_503_680_000}).encode(),  # the year 3000
    json.dumps({**ROWS[0], "time": 0}).encode(),  # 1970
    json.dumps({**ROWS[0], "time": "never"}).encode(),
]


def example(name):
    """A script of examples/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def feed(broker, topic, seconds, rows=None, strange=STRANGE, pause=0.5):
    """Messages at their own time, keyed by user; other numbers of them in other windows."""
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": broker.servers, "linger.ms": 20})
    end = time.time() + seconds
    while time.time() < end:
        for row in ROWS[:: 2 if time.time() % 20 < 10 else 3] if rows is None else rows:
            message = json.dumps({**row, "time": time.time() - 1.0}).encode()
            producer.produce(topic, message, key=row["user"])
        for message in strange:
            producer.produce(topic, message, key=b"strange")
        producer.flush()
        time.sleep(pause)


def everything(broker, topic):
    """(key, message, append time) of all that a topic has."""
    import confluent_kafka

    settings = {"bootstrap.servers": broker.servers, "group.id": "test", "receive.message.max.bytes": 1 << 30}
    consumer = confluent_kafka.Consumer(settings)
    known = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    partitions = [confluent_kafka.TopicPartition(topic, number, 0) for number in known]
    ends = sum(consumer.get_watermark_offsets(partition)[1] for partition in partitions)
    consumer.assign(partitions)
    found = []
    while len(found) < ends:
        for one in consumer.consume(1000, timeout=5):
            assert one.error() is None, one.error()
            found.append((one.key(), one.value() or b"", one.timestamp()[1]))
    consumer.close()
    return found


def release_in_batch(messages, directory, output="batch"):
    """The graph of `dpngram stream` on the local runner, over (message, arrival) that are there from the start."""
    plan = plan_extraction(**BUDGET)
    extract = ExtractLevels(plan, noise_key=str(directory / "key"), shards=3, window_delay=DELAY, max_bad_fraction=1.0)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        blocks = pipeline | beam.Create(messages) | GatherMessages()
        fields, windows = ("user", "text", "time"), FixedWindows(WINDOW, DELAY)
        stream_messages(blocks, fields, windows, str(directory / output), plan, extract, delay=DELAY)
    return sorted(path.name for path in (directory / output).iterdir())


def start_stream(broker, topic, directory, engine, **more):
    """`dpngram stream` over a topic, in a process. `engine` is what to add for an engine."""
    flags = {"kafka_servers": broker.servers, "kafka_topic": topic, "time_field": "time", "max_delay": DELAY}
    flags |= {"window": WINDOW, "noise_key": directory / "key", "output": directory / "out", "shards": 2}
    words = [str(word) for name, value in {**flags, **BUDGET, **more}.items() for word in (f"--{name}", value)]
    command = [sys.executable, "-m", "dpngram.pipelines.cli", "stream", *words, *engine]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


class Watch:
    """Looks when windows come out: {name: seconds after the window closed}; and that none changes when it is there."""

    def __init__(self, output):
        self.output, self.delays, self._files = output, {}, {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def wait(self, number, seconds, process=None):
        """Until so many windows are there."""
        end = time.monotonic() + seconds
        while len(self.delays) < number:
            assert process is None or process.poll() is None, process.stderr.read()
            assert time.monotonic() < end, f"{len(self.delays)} of {number} windows in {seconds} s"
            time.sleep(0.1)

    @property
    def changed(self):
        """Manifests that were written once more."""
        return [path for path, written in self._files.items() if path.stat().st_mtime_ns != written]

    def _run(self):
        while not self._over.wait(0.1):
            for path in self.output.glob("*/manifest.json"):
                if path not in self._files:
                    with contextlib.suppress(OSError):
                        self._files[path] = path.stat().st_mtime_ns
                        self.delays[path.parent.name] = self._files[path] / 1e9 - end_of(path.parent.name) - DELAY


class Elsewhere:
    """The share of this machine's processors that goes to processes of others, while it is open.

    Ours are those of these process groups: the processes of a broker, of a cluster, and what they have started.
    """

    def __init__(self, *groups):
        self._groups, self.share = {os.getpgid(group) for group in groups}, 0.0

    def __enter__(self):
        self._begin = self._now()
        return self

    def __exit__(self, *_):
        busy, ours, total = (after - before for after, before in zip(self._now(), self._begin, strict=True))
        self.share = max(0.0, busy - ours) / total

    def _now(self):
        fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        ours = 0
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                rest = path.read_text().rpartition(")")[2].split()
                if int(rest[2]) in self._groups:
                    ours += int(rest[11]) + int(rest[12])
        return sum(fields) - fields[3] - fields[4], ours, sum(fields)


def end_of(name):
    """When a window ends, in Unix seconds, from the name of its directory."""
    date, _, clock = name.partition("--")[2].partition("T")
    return datetime.fromisoformat(f"{date}T{clock[:8].replace('-', ':')}+00:00").timestamp()


def window_of(moment):
    """The name of the directory for a time."""
    begin = math.floor(moment / WINDOW) * WINDOW
    names = (time.strftime("%Y-%m-%dT%H-%M-%SZ", time.gmtime(at)) for at in (begin, begin + WINDOW))
    return "--".join(names)

"""`dpngram stream` from a real Kafka broker, on Prism: windows come out while messages go on coming, and are the bytes
of a batch over the same messages.

Needs Java and Maven for the broker (`examples/kafka.py` fetches it into a cache) and Go for Prism.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.window import FixedWindows
from helpers.runs import files, small_corpus

from dpngram.accounting import plan_extraction
from dpngram.pipelines.io.messages import GatherMessages
from dpngram.pipelines.stream import stream_messages
from dpngram.transforms import ExtractLevels

for tool in ("java", "mvn", "go"):
    if shutil.which(tool) is None:
        pytest.skip(f"a stream from Kafka needs {tool}, which is not installed", allow_module_level=True)
confluent_kafka = pytest.importorskip("confluent_kafka")

pytestmark = pytest.mark.campaign
HERE = Path(__file__).parent
WINDOW, DELAY = 10, 2
BUDGET = {"epsilon": 20, "delta": 0.1, "max_n": 3, "max_contributions": 12, "eta": 0.1, "windows": 30}

spec = importlib.util.spec_from_file_location("kafka_broker", HERE.parents[1] / "examples" / "kafka.py")
kafka = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kafka)


@pytest.fixture(scope="module")
def prism():
    """The program, built once for this version of Beam."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dpngram" / f"prism-{beam.__version__}"
    if not (cache / "prism").exists():
        package = f"github.com/apache/beam/sdks/v2/go/cmd/prism@v{beam.__version__}"
        subprocess.run(["go", "install", package], env={**os.environ, "GOBIN": str(cache)}, check=True)
    return cache / "prism"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with kafka.KafkaBroker(kafka.fetch(), tmp_path_factory.mktemp("broker")) as running:
        yield running


def start(broker, prism, topic, directory, duration):
    flags = {"kafka_servers": broker.servers, "kafka_topic": topic, "time_field": "time", "max_delay": DELAY}
    flags |= {"window": WINDOW, "noise_key": directory / "key", "output": directory / "out", "duration": duration}
    flags |= {"shards": 2, "runner": "PrismRunner", "prism_location": prism, "environment_type": "LOOPBACK", **BUDGET}
    words = [str(word) for name, value in flags.items() for word in (f"--{name}", value)]
    return subprocess.Popen(
        [sys.executable, "-m", "dpngram.pipelines.cli", "stream", *words], stderr=subprocess.PIPE, text=True
    )


def feed(broker, topic, seconds):
    """Messages at their own time, and what no stream should see: each is tried, and moves nothing of the others."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.servers, "linger.ms": 20})
    rows, end = small_corpus(300), time.time() + seconds
    strange = [b"no json", b"\xff", b"", None, b"[" * 9000, json.dumps({**rows[0], "time": 32_503_680_000}).encode()]
    strange += [json.dumps({**rows[0], "time": 0}).encode(), json.dumps({**rows[0], "time": "never"}).encode()]
    while time.time() < end:
        for row in rows[:: 2 if time.time() % 20 < 10 else 3]:
            message = json.dumps({**row, "time": time.time() - 1.0}).encode()
            producer.produce(topic, message, key=row["user"])
        for message in strange:
            producer.produce(topic, message, key=b"strange")
        producer.flush()
        time.sleep(0.5)


def everything(broker, topic):
    """(message, append time) of all that the topic has."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.servers, "group.id": "test"})
    partitions = [confluent_kafka.TopicPartition(topic, number, 0) for number in range(2)]
    ends = sum(consumer.get_watermark_offsets(partition)[1] for partition in partitions)
    consumer.assign(partitions)
    found = []
    while len(found) < ends:
        found += [(one.value() or b"", one.timestamp()[1]) for one in consumer.consume(1000, timeout=5)]
    consumer.close()
    return found


def release_in_batch(messages, directory):
    plan = plan_extraction(**BUDGET)
    extract = ExtractLevels(plan, noise_key=str(directory / "key"), shards=3, window_delay=DELAY)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        blocks = pipeline | beam.Create(messages) | GatherMessages()
        fields, windows = ("user", "text", "time"), FixedWindows(WINDOW, DELAY)
        stream_messages(blocks, fields, windows, str(directory / "batch"), plan, extract, delay=DELAY)


def test_windows_come_out_while_messages_come_in(broker, prism, tmp_path):
    """Also if the broker is away for some seconds, and what came late because of it is left out."""
    broker.create_topic("messages", 2)
    duration = 70
    process = start(broker, prism, "messages", tmp_path, duration)
    time.sleep(5)
    feeding = threading.Thread(target=feed, args=(broker, "messages", 40))
    feeding.start()
    time.sleep(15)
    broker.kill()
    broker.start()
    feeding.join()
    fed = time.time()
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors
    release_in_batch(everything(broker, "messages"), tmp_path)
    windows = sorted(path.name for path in (tmp_path / "batch").iterdir())
    assert len(windows) >= 3
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == windows
    for window in windows:
        assert files(tmp_path / "out" / window) == files(tmp_path / "batch" / window), window
    assert (tmp_path / "out" / windows[0] / "manifest.json").stat().st_mtime < fed


def test_a_topic_of_the_producers_clock_is_refused(broker, prism, tmp_path):
    broker.create_topic("created", 2, **{"message.timestamp.type": "CreateTime"})
    feed(broker, "created", 0.1)
    process = start(broker, prism, "created", tmp_path, 30)
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 1
    assert "kafka_topic must have message.timestamp.type=LogAppendTime" in errors
    assert not (tmp_path / "out").exists()

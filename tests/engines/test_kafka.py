"""`dpngram stream` from a real Kafka broker, on Prism: windows come out while messages go on coming, and are the bytes
of a batch over the same messages.

Needs Java and Maven for the broker (`examples/kafka.py` fetches it into a cache) and Go for Prism.
"""

import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import apache_beam as beam
import pytest
from helpers.runs import files
from helpers.topics import everything, example, feed, release_in_batch, start_stream

for tool in ("java", "mvn", "go"):
    if shutil.which(tool) is None:
        pytest.skip(f"a stream from Kafka needs {tool}, which is not installed", allow_module_level=True)
pytest.importorskip("confluent_kafka")

pytestmark = pytest.mark.campaign
kafka = example("kafka")


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
    engine = ["--runner=PrismRunner", f"--prism_location={prism}", "--environment_type=LOOPBACK"]
    return start_stream(broker, topic, directory, engine, duration=duration)


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
    windows = release_in_batch([(message, arrival) for _, message, arrival in everything(broker, "messages")], tmp_path)
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
    assert process.returncode == 2  # before anything is read
    assert "kafka_topic must have message.timestamp.type=LogAppendTime" in errors
    assert not (tmp_path / "out").exists()

"""`dpngram stream` from a real Kafka broker on a real Flink cluster: windows come out while messages come in, one
directory and one record each, with the bytes of a batch; also if processes are killed.

Needs Java and Maven; `examples/kafka.py` and `examples/flink.py` fetch the rest into a cache.
"""

import collections
import json
import os
import shutil
import signal
import time
import urllib.parse

import pytest
from helpers.runs import files
from helpers.topics import (
    DELAY,
    ROWS,
    WINDOW,
    Elsewhere,
    Watch,
    everything,
    example,
    feed,
    release_in_batch,
    start_stream,
    window_of,
)

from dpngram.pipelines.io.kafka import MAX_MESSAGE_BYTES
from dpngram.pipelines.io.kafka_output import record_of

for tool in ("java", "mvn"):
    if shutil.which(tool) is None:
        pytest.skip(f"a stream from Kafka on Flink needs {tool}, which is not installed", allow_module_level=True)
confluent_kafka = pytest.importorskip("confluent_kafka")

flink, kafka = example("flink"), example("kafka")
# Seconds from the closing of a window to its release, on two idle cores; twice that on busy ones: it waits more than
# it computes. 3.2 to 5.9 were measured while others had two thirds of the processors.
AT_ONCE = 7


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with kafka.KafkaBroker(kafka.fetch(), tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def cluster(tmp_path):
    with flink.FlinkCluster(flink.fetch(), tmp_path / "cluster") as running:
        yield running


@pytest.fixture
def topic(broker, request):
    """A topic for one test, and one for its records."""
    name = "".join(letter for letter in request.node.name if letter.isalnum())
    broker.create_topic(name, 2)
    broker.create_topic(f"{name}.out", 2, **{"message.timestamp.type": "CreateTime", "cleanup.policy": "compact"})
    return name


class Stream:
    """A stream on the cluster, what comes out of it, and when."""

    def __init__(self, broker, cluster, topic, directory, **more):
        self.broker, self.cluster, self.topic, self.directory = broker, cluster, topic, directory
        more = {"kafka_output": f"{topic}.out", **more}
        self.process = start_stream(broker, topic, directory, cluster.flags, **more)
        self.watch = Watch(directory / "out")

    def __enter__(self):
        self.watch.__enter__()
        return self

    def __exit__(self, *_):
        self.watch.__exit__()
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def wait(self, windows, seconds=150):
        self.watch.wait(windows, seconds, self.process)

    def is_read(self, seconds=100):
        """Waits until the source reads."""
        end = time.monotonic() + seconds
        while not any(job["state"] == "RUNNING" for job in self.cluster.ask("jobs/overview")["jobs"]):
            assert self.process.poll() is None, self.process.stderr.read()
            assert time.monotonic() < end
            time.sleep(0.2)

    def wait_for_what_closed(self, seconds=30):
        """Until a window of the last messages has had the time to come out."""
        time.sleep(WINDOW + DELAY)
        self.wait(len(self.watch.delays), seconds)

    def counters(self):
        """{name: sum over all steps} of the counters that Beam has in Flink; what was never counted is missing."""
        job = self.cluster.ask("jobs/overview")["jobs"][0]["jid"]
        found = collections.Counter()
        for vertex in self.cluster.ask(f"jobs/{job}")["vertices"]:
            where = f"jobs/{job}/vertices/{vertex['id']}/subtasks/metrics"
            for one in self.cluster.ask(where):
                name = one["id"].rpartition(".")[2]
                if name.startswith("dpngram_") or "droppedDueToLateness" in name:
                    (value,) = self.cluster.ask(f"{where}?get={urllib.parse.quote(one['id'])}")
                    found[name.removeprefix("dpngram_")] += value["sum"]
        return found

    def check_counters(self):
        """Nothing was dropped as late by Flink; what is strange was counted."""
        expected = {"early_messages", "late_messages", "bad_documents"}
        end = time.monotonic() + 30  # Flink asks its TaskManagers for counters every ten seconds
        while not expected <= (counters := self.counters()).keys():
            assert time.monotonic() < end, counters
            time.sleep(1)
        assert not [name for name in counters if "droppedDueToLateness" in name], counters

    def check(self, windows, directory=None):
        """What is there is what a batch over the same messages gives, window by window, and once."""
        released = sorted(self.watch.delays)
        assert len(released) >= windows
        messages = [
            (message, arrival)
            for _, message, arrival in everything(self.broker, self.topic)
            if len(message) <= MAX_MESSAGE_BYTES
        ]
        expected = release_in_batch(messages, self.directory)
        assert released == expected[: len(released)]  # those that have not closed are still to come
        for window in released:
            assert files(self.directory / "out" / window) == files(self.directory / "batch" / window), window
        assert self.watch.changed == []
        records = [(key, value) for key, value, _ in everything(self.broker, f"{self.topic}.out")]
        assert len({key for key, _ in records}) == len(records)  # of windows that have come out since, too
        there = [record_of(str(self.directory / "out" / window / "manifest.json")) for window in released]
        assert sorted(record for record in records if record[0].decode() in released) == there
        return expected


@pytest.mark.campaign
def test_windows_come_out_one_by_one(broker, cluster, topic, tmp_path):
    """Windows in which nobody, or hardly anybody, says something neither stall the others nor leave a trace. Then a
    TaskManager is killed: nothing is lost, nothing comes twice."""
    with Stream(broker, cluster, topic, tmp_path) as stream:
        stream.is_read()
        feed(broker, topic, 15)
        stream.wait(1)
        settled = window_of(time.time())  # the job has caught up with what came while it started
        with Elsewhere(broker.process.pid, *(process.pid for process in cluster.processes.values())) as elsewhere:
            feed(broker, topic, 25)
            time.sleep(12)  # a window in which nobody says anything
            feed(broker, topic, 12, rows=ROWS[:3], strange=[])  # one in which nothing can be released
            feed(broker, topic, 15)
            stream.wait_for_what_closed()
        stream.check_counters()
        undisturbed = {name: late for name, late in stream.watch.delays.items() if name > settled}
        assert len(undisturbed) >= 3
        limit = AT_ONCE / max(0.5, 1 - elsewhere.share)
        print(f"{undisturbed}, at most {limit:.1f} s: {elsewhere.share:.0%} of the processors went to others")
        assert max(undisturbed.values()) <= limit
        cluster.kill("taskmanager1")
        cluster.start_task_manager(1)
        before = len(stream.watch.delays)
        feed(broker, topic, 25)
        stream.wait(before + 1)
        stream.check_counters()
        stream.check(6)


@pytest.mark.campaign
def test_a_python_worker_is_killed(broker, cluster, topic, tmp_path):
    with Stream(broker, cluster, topic, tmp_path) as stream:
        stream.is_read()
        feed(broker, topic, 25)
        stream.wait(1)
        os.kill(cluster.python_workers()[0], signal.SIGKILL)
        before = len(stream.watch.delays)
        feed(broker, topic, 40)
        stream.wait(before + 2)
        stream.check_counters()
        stream.check(3)


@pytest.mark.campaign
def test_the_job_manager_is_killed(broker, topic, tmp_path):
    """The job is gone. The same command with --start replayed reads the topic once more, on another cluster; without
    it, or with other windows, the stream is refused."""
    with flink.FlinkCluster(flink.fetch(), tmp_path / "first") as cluster:
        with Stream(broker, cluster, topic, tmp_path) as stream:
            stream.is_read()
            feed(broker, topic, 25)
            stream.wait(2)
            cluster.kill("jobmanager")
            feed(broker, topic, 15)
        there = dict(stream.watch.delays)
    with flink.FlinkCluster(flink.fetch(), tmp_path / "second") as cluster:
        with Stream(broker, cluster, topic, tmp_path) as stream:
            _, errors = stream.process.communicate(timeout=60)
        assert stream.process.returncode == 2
        assert "--start replayed" in errors
        with Stream(broker, cluster, topic, tmp_path, start="replayed", window=5) as stream:
            _, errors = stream.process.communicate(timeout=60)
        assert stream.process.returncode == 2
        assert "cannot be read once more as the same release" in errors
        with Stream(broker, cluster, topic, tmp_path, start="replayed") as stream:
            stream.is_read()
            feed(broker, topic, 20)
            stream.wait(len(there) + 3)
            assert there.keys() < stream.watch.delays.keys()
            stream.check(len(there) + 3)


@pytest.mark.campaign
def test_what_no_stream_should_see(broker, cluster, topic, tmp_path):
    """A message of 100 MB, a user in very many windows, a partition that falls silent, a broker that is away for half a
    minute, and a stream that begins far behind: none of them changes what others' windows hold."""
    large = f"{topic}large"
    limit = {"max.message.bytes": str(200 << 20)}
    broker.create_topic(large, 2, **limit)
    broker.create_topic(f"{large}.out", 1, **{"message.timestamp.type": "CreateTime"})
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.servers, "message.max.bytes": 200 << 20})
    feed(broker, large, 45)  # far behind: four windows are over when the stream begins
    message = json.dumps({"user": "long", "text": "a " * 49_000_000, "time": time.time()})
    producer.produce(large, message.encode(), key="long", on_delivery=delivered)
    producer.flush()
    with Stream(broker, cluster, large, tmp_path, max_delay=2, shards=3) as stream:
        stream.is_read()
        for number in range(30_000):  # one message for each of many windows, all but a few of them late or early
            moment = time.time() + 10 * (number % 3000 - 1500)
            message = json.dumps({"user": "everywhere", "text": "a b c", "time": moment})
            producer.produce(large, message.encode(), key="everywhere")
            if number % 1000 == 0:
                producer.flush()
        producer.flush()
        feed(broker, large, 12)
        feed(broker, large, 25, rows=only(broker, large))
        stream.wait(4)
        broker.kill()
        time.sleep(30)
        broker.start()
        feed(broker, large, 15)
        before = len(stream.watch.delays)
        feed(broker, large, 12)
        stream.wait(before + 1)
        counters = stream.counters()
        assert counters["bad_too_long"] == 1
        stream.check_counters()
        stream.check(7)


def delivered(error, _message):
    assert error is None, error


def only(broker, topic):
    """Rows of users whose messages go to the first partition."""
    firsts = set()
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.servers})

    def note(error, message):
        if error is None and message.partition() == 0:
            firsts.add(message.key().decode())

    for row in ROWS:
        producer.produce(topic, b"no json", key=row["user"], on_delivery=note)
    producer.flush()
    assert 0 < len(firsts) < len({row["user"] for row in ROWS})
    return [row for row in ROWS if row["user"] in firsts]


@pytest.mark.campaign
def test_topics_that_are_refused(broker, cluster, tmp_path):
    """Before anything is read."""
    refused = {"created": {"message.timestamp.type": "CreateTime"}, "compacted": {"cleanup.policy": "compact"}}
    for name, config in refused.items():
        broker.create_topic(name, 2, **config)
        process = start_stream(broker, name, tmp_path, cluster.flags)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 2
        assert "kafka_topic must have" in errors.splitlines()[-1]
    assert cluster.ask("jobs/overview")["jobs"] == []

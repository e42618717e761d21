"""Windows as records of a topic, on a stand-in for the client; tests/engines has a broker."""

import json
import sys
import types

import pytest
from helpers.runs import files

from dpngram.pipelines.io import kafka_output
from dpngram.pipelines.io.kafka_output import record_of
from dpngram.pipelines.io.kafka_topic import KafkaError, Topic
from dpngram.transforms.randomness.noise_key import NoiseKeyError

EOF, DOWN = -191, -195


class Error:
    _PARTITION_EOF = EOF

    def __init__(self, code):
        self.code = lambda: code
        self.name = lambda: "MSG_SIZE_TOO_LARGE"


class Problem(Exception):
    pass


class Record:
    def __init__(self, offset, key=None, value=None, code=None):
        self.offset, self.key, self.value = lambda: offset, lambda: key, lambda: value
        self.error = lambda: None if code is None else Error(code)
        self.partition = lambda: 0


class Broker:
    """A topic of one partition; `refuses` is the answer to what is sent."""

    def __init__(self, *records, refuses=None, silent=False):
        self.records, self.refuses, self.silent = list(records), refuses, silent
        self.read = 0

    def list_topics(self, name, timeout):
        return types.SimpleNamespace(topics={name: types.SimpleNamespace(partitions={0: None})})

    def get_watermark_offsets(self, partition, timeout):
        return 0, len(self.records)

    def assign(self, partitions):
        self.read = 0

    def consume(self, most, timeout):
        if self.silent:
            return [Record(0, code=DOWN)]
        found = [Record(at, *self.records[at]) for at in range(self.read, len(self.records)) if self.records[at]]
        self.read = len(self.records)
        return [*found, Record(self.read, code=EOF)]

    def produce(self, name, value, key, on_delivery):
        if self.refuses is None:
            self.records.append((key, value))
        if self.refuses != "silence":
            on_delivery(self.refuses, None)

    def flush(self, timeout):
        pass


@pytest.fixture
def send(monkeypatch):
    """(broker, manifest): sends as a new worker does."""

    def begin(broker, *manifests):
        client = types.ModuleType("confluent_kafka")
        client.Consumer = client.Producer = lambda _settings: broker
        client.TopicPartition = lambda _name, number, _offset: types.SimpleNamespace(partition=number)
        client.KafkaError, client.KafkaException = Error, Problem
        monkeypatch.setitem(sys.modules, "confluent_kafka", client)
        monkeypatch.setattr(kafka_output, "_DELIVERY", 0.1)
        step = kafka_output._SendDoFn(Topic("servers", "topic"))
        assert [one for manifest in manifests for one in step.process(manifest)] == list(manifests)

    return begin


@pytest.fixture
def windows(tmp_path):
    """The manifests of two windows, and beside them the same windows with other noise."""
    for name, weight in (("one", 1.5), ("other", 1.25)):
        for window in ("a--b", "b--c"):
            directory = tmp_path / name / window
            directory.mkdir(parents=True)
            levels = [{"n": n, "file": f"ngrams-0{n}.jsonl"} for n in (1, 2)]
            for level in levels:
                (directory / level["file"]).write_text(json.dumps({"n": level["n"], "weight": weight}) + "\n")
            manifest = {"levels": levels, "window": window, "stream": "from the first start"}
            (directory / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    return sorted(str(path) for path in (tmp_path / "one").glob("*/manifest.json"))


def test_a_record_is_the_manifest_and_the_rows(windows, tmp_path):
    key, value = record_of(windows[0])
    assert key == b"a--b"
    line, _, rows = value.partition(b"\n")
    held = files(tmp_path / "one" / "a--b")
    assert json.loads(line) == json.loads(held["manifest.json"])
    assert rows == held["ngrams-01.jsonl"] + held["ngrams-02.jsonl"]


def test_each_window_once(send, windows):
    """Also by a worker that begins anew, and where the topic has gaps and records of others."""
    broker = Broker(None, (None, None), (b"other", b"no json"))
    send(broker, *windows)
    assert broker.records[3:] == [record_of(manifest) for manifest in windows]
    send(broker, windows[1])
    send(broker, *windows)
    assert len(broker.records) == 5


def test_another_start_of_the_same_release_is_the_same(send, windows):
    key, value = record_of(windows[0])
    line, _, rows = value.partition(b"\n")
    broker = Broker((key, json.dumps({**json.loads(line), "stream": "other"}).encode() + b"\n" + rows))
    send(broker, windows[0])
    assert len(broker.records) == 1


def test_other_noise_is_refused(send, windows):
    broker = Broker(record_of(windows[0].replace("/one/", "/other/")))
    with pytest.raises(NoiseKeyError, match="a window of the output has a release already"):
        send(broker, windows[0])
    assert len(broker.records) == 1


@pytest.mark.parametrize(
    ("broker", "said"),
    [
        (Broker(refuses=Error(10)), "MSG_SIZE_TOO_LARGE"),
        (Broker(refuses="silence"), "TimeoutError"),
        (Broker((b"key", b"value"), silent=True), "TimeoutError"),
    ],
)
def test_failures(send, windows, broker, said):
    with pytest.raises(KafkaError, match=f"kafka_output must be a topic .*{said}"):
        send(broker, windows[0])

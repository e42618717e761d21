"""Released windows as records of a Kafka topic, one for each."""

import contextlib
import hashlib
import json
import time
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from dpngram.pipelines.io.kafka_topic import PATIENCE, KafkaError, Topic, client_settings
from dpngram.transforms.messages import Message
from dpngram.transforms.randomness.noise_key import NoiseKeyError
from dpngram.transforms.whole_files import read_whole

__all__ = ["SendWindows", "record_of"]

_MOST_BYTES = 1_000_000_000  # of a record, for librdkafka; how large one may be is the topic's max.message.bytes
_DELIVERY = 60.0  # seconds


class SendWindows(beam.PTransform):
    """Paths of manifests, from `WriteWindows` -> the same paths, when each window is a record of a topic.

    The key of a record is the name of the window's directory, and its value `record_of` the directory. A job that has
    lost its state releases windows once more, with the same bytes. So the topic is read first, and a window that is
    there is not sent again. (Of two workers that send it in the same moment both may: with the same key and bytes.)

    Privacy: a record holds what the directory does, and is made after it, so it is post-processing of the release. A
    window without a release has no manifest, and so no record. A record with other rows is an error, and stays.

    Args:
        topic: where the records go.
    """

    def __init__(self, topic: Topic) -> None:
        super().__init__()
        self._topic = topic

    def expand(self, manifests: beam.PCollection[str]) -> beam.PCollection[str]:
        return manifests | "Send" >> beam.ParDo(_SendDoFn(self._topic))


def record_of(manifest: str) -> tuple[bytes, bytes]:
    """Key and value for a window: the manifest on one line, then the rows of each length, as in its files.

    Args:
        manifest: its path; the release must be in JSON lines.
    """
    directory, _ = FileSystems.split(manifest)
    document = json.loads(read_whole(manifest))
    line = json.dumps(document, ensure_ascii=False).encode() + b"\n"
    files = [read_whole(str(FileSystems.join(directory, level["file"]))) for level in document["levels"]]
    return FileSystems.split(directory.rstrip("/"))[1].encode(), b"".join([line, *files])


def _digest(value: bytes | None) -> bytes:
    """Of a record without what it says about the start of its stream, in which two starts of one release differ."""
    line, _, rows = (value or b"").partition(b"\n")
    with contextlib.suppress(ValueError, TypeError, RecursionError):  # not of ours, and not the same as one of ours
        line = json.dumps({**json.loads(line), "stream": None}).encode()
    return hashlib.sha256(line + b"\n" + rows).digest()


class _Sent:
    """What the topic holds: the digest of the first record of each key, read on from where it ended."""

    def __init__(self, topic: Topic) -> None:
        from confluent_kafka import Consumer, TopicPartition

        settings = {"group.id": "dpngram", "enable.auto.commit": False, "enable.partition.eof": True}
        self._consumer = Consumer({**client_settings(topic), **settings, "auto.offset.reset": "earliest"})
        known = self._consumer.list_topics(topic.name, timeout=PATIENCE).topics[topic.name]
        self._partitions = [TopicPartition(topic.name, number, 0) for number in sorted(known.partitions)]
        self._consumer.assign(self._partitions)
        self._next = dict.fromkeys(known.partitions, 0)
        self._known: dict[bytes, bytes] = {}

    def find(self, key: bytes) -> bytes | None:
        from confluent_kafka import KafkaError as Code

        ends = {one.partition: self._consumer.get_watermark_offsets(one, timeout=PATIENCE) for one in self._partitions}
        left = {number for number, (low, high) in ends.items() if low < high and self._next[number] < high}
        limit = time.monotonic() + _DELIVERY
        while left:
            if time.monotonic() > limit:
                raise TimeoutError
            for record in self._consumer.consume(1000, timeout=1.0):
                error, number, offset = record.error(), record.partition() or 0, record.offset() or 0
                if error is None:
                    self._known.setdefault(record.key() or b"", _digest(record.value()))
                    self._next[number] = offset + 1
                elif error.code() == Code._PARTITION_EOF:  # other errors pass, or the time is over
                    self._next[number] = max(self._next[number], offset)
            left = {number for number in left if self._next[number] < ends[number][1]}
        return self._known.get(key)


class _SendDoFn(beam.DoFn):
    _producer: Any = None
    _sent: _Sent | None = None

    def __init__(self, topic: Topic) -> None:
        self._topic = topic

    def process(self, manifest: str) -> Iterator[str]:
        from confluent_kafka import KafkaException

        key, value = record_of(manifest)
        try:
            if self._sent is None:
                self._sent = _Sent(self._topic)
            before = self._sent.find(key)
            if before is None:
                self._send(key, value)
            elif before != _digest(value):
                raise NoiseKeyError(Message.WINDOW_RELEASED_BEFORE.format())
        except KafkaException as error:
            raise KafkaError(Message.KAFKA_OUTPUT_FAILED.format(kind=error.args[0].name())) from None
        except TimeoutError:
            raise KafkaError(Message.KAFKA_OUTPUT_FAILED.format(kind="TimeoutError")) from None
        yield manifest

    def _send(self, key: bytes, value: bytes) -> None:
        from confluent_kafka import Producer

        if self._producer is None:
            settings = {"enable.idempotence": True, "message.max.bytes": _MOST_BYTES}
            settings["delivery.timeout.ms"] = int(1000 * _DELIVERY)
            self._producer = Producer({**client_settings(self._topic), **settings})
        answers: list[Any] = []
        self._producer.produce(self._topic.name, value, key=key, on_delivery=lambda error, _: answers.append(error))
        self._producer.flush(2 * _DELIVERY)
        if not answers:
            raise TimeoutError
        if answers[0] is not None:
            raise KafkaError(Message.KAFKA_OUTPUT_FAILED.format(kind=answers[0].name()))

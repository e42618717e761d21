"""A Kafka topic as a stream of message blocks, under the clock of its brokers."""

import contextlib
import dataclasses
import json
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.io.iobase import RestrictionProgress, RestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.metrics import Metrics
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Duration, Timestamp

from dpngram.pipelines.io.kafka_topic import PATIENCE, KafkaError, Topic, TopicLook, client_settings, look_at_topic
from dpngram.pipelines.io.messages import MessageBlock
from dpngram.transforms.messages import Message
from dpngram.transforms.randomness.key_records import RecordUnreadableError
from dpngram.transforms.randomness.noise_key import NoiseKeyError, Randomness

__all__ = ["ReadKafka", "StreamStart"]

MAX_MESSAGE_BYTES = 16 << 20  # a longer one is counted and passed over
_BATCH = 10_000
_BLOCK_BYTES = 4 << 20
# Seconds that a look at a partition waits for messages, and until the next look if there were none. Flink's
# runner cuts the second to none, and watermarks to whole seconds (docs/engines.md, *Bugs of engines*).
_IDLE = 0.1
# A message that is appended later has a time that is at most so many seconds before the clock of this worker.
_CLOCKS_DIFFER = 2.0


@dataclasses.dataclass(frozen=True)
class StreamStart:
    """Where a stream begins, remembered with its key. The start of a job that has no state is checked against it.

    Privacy: a job that begins without its state counts the windows of each user anew. That is another release, unless
    it reads the same messages from the first on: then every window is what it was, and so is its noise
    (docs/privacy.md, *Read once more*). Messages that are gone would make later windows look like a user's first.

    Args:
        randomness: the key and the label of the stream.
        settings: everything besides the topic that decides what is in a window: fields, windows, delay, the plan.
        again: names a start that is another release; such starts are compared among each other only.
        replayed: the stream may have been started before, and is to be the same.
    """

    randomness: Randomness
    settings: str
    again: str = ""
    replayed: bool = False

    def check(self, look: TopicLook) -> None:
        """Raises NoiseKeyError if this stream began with other messages before; otherwise remembers these."""
        self.randomness.open().begin_stream(self._source(look), again=self.again, replayed=self.replayed)

    def look_ahead(self, look: TopicLook) -> None:
        """The same check where it is early: before the job is sent. Nothing is written."""
        if self.randomness.key.scheme == "gcp-secret":
            return  # the launcher may have no right to read it
        try:
            source = self.randomness.open()
        except NoiseKeyError:
            return  # only workers have the key, or they say what is wrong
        with contextlib.suppress(RecordUnreadableError):
            source.check_stream(self._source(look), again=self.again, replayed=self.replayed)

    def _source(self, look: TopicLook) -> str:
        return json.dumps([look.id, look.first, self.settings])


class ReadKafka(beam.PTransform):
    """Root: MessageBlock: all messages of a topic, from the first that it still has, each with its append time.

    One restriction for each partition that the topic has when the job starts (on Prism one for all, which one worker
    reads); offsets are its positions, and are part of the state of the job. Nothing is committed to Kafka. If messages
    were deleted before they were read, the job stops: how long the topic keeps messages limits how long the job may be
    down.

    The arrival of a message is the broker's append time, so the topic must have `message.timestamp.type=LogAppendTime`;
    CreateTime is what producers write, and is refused. The watermark is the append time of the last message, and if
    there is none to read, this worker's clock minus two seconds: clocks of workers and brokers must agree that well.
    Messages of a transaction that is open cannot be read yet, nor can any that came after them: then the watermark
    waits for its end. Where append times fall (a clock was turned back, or another broker leads), a message counts as
    arrived with the latest before it, so none is late.

    Privacy: the watermark does not follow what users write. Which messages are read together does not matter: each is
    decided by itself, see `ParseMessages`, and arrivals follow from the partition alone, as long as clocks agree.

    Args:
        topic: what to read, and until when.
        start: refuses to begin if the stream was begun before with other messages; None: nothing is remembered.
    """

    def __init__(self, topic: Topic, start: StreamStart | None = None) -> None:
        super().__init__()
        self._topic, self._start = topic, start

    def expand(self, pbegin: Any) -> beam.PCollection[MessageBlock]:
        # Prism 2.77 takes the watermark of the rest that was put off last, not the smallest.
        together = type(pbegin.pipeline.runner).__name__ == "PrismRunner"
        return (
            pbegin
            | "Topic" >> beam.Create([tuple(self._topic)])
            | "Partitions" >> beam.ParDo(_PartitionsDoFn(together, self._start))
            | "Apart" >> beam.Reshuffle()
            | "Read" >> beam.ParDo(_ReadDoFn())
        )


def _settings(topic: Topic) -> dict[str, Any]:
    return {
        **client_settings(topic),
        "group.id": "dpngram",  # asked for, never used: nothing is committed
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",  # also if the file of settings says another: a replay reads the same
        "queued.max.messages.kbytes": 32 << 10,
        "fetch.wait.max.ms": int(1000 * _IDLE),  # a call waits no longer for messages
        "receive.message.max.bytes": 1 << 30,
    }


class _PartitionsDoFn(beam.DoFn):
    """(topic, ((partition, first offset), ...)): for each partition, or for all `together`."""

    def __init__(self, together: bool, start: StreamStart | None = None) -> None:
        self._together, self._start = together, start

    def process(self, element: Any) -> Iterator[Any]:
        topic = Topic(*element)
        look = look_at_topic(topic)
        if self._start is not None:
            self._start.check(look)
        yield from [(tuple(topic), look.first)] if self._together else [(tuple(topic), (one,)) for one in look.first]


class _Place(NamedTuple):
    """How far a partition is read: its next offset, and a time in milliseconds that no later message is before."""

    offset: int
    time: int


_Places = tuple[_Place, ...]


class PlacesTracker(RestrictionTracker):
    """What is read in order, of several partitions at once: the range is not split, only put off.

    A restriction is where reading begins, and where it ended; None: it goes on.
    """

    def __init__(self, restriction: tuple[_Places, _Places | None]) -> None:
        self._begin, self._end = restriction
        self._claimed = self._begin

    def current_restriction(self) -> tuple[_Places, _Places | None]:
        return self._begin, self._end

    def current_progress(self) -> RestrictionProgress:
        return RestrictionProgress(completed=1, remaining=1)

    def try_claim(self, position: _Places | None) -> bool:
        """Claims all up to these places; None: all there will be."""
        if self._end is not None:
            return False
        if position is None:
            self._end = self._claimed
        else:
            self._claimed = position
        return True

    def try_split(self, fraction_of_remainder: float) -> Any:
        if fraction_of_remainder != 0 or self._end is not None:
            return None
        self._end = self._claimed
        return (self._begin, self._end), (self._claimed, None)

    def check_done(self) -> None:
        if self._end is None:
            raise ValueError("a range of a topic is put off or ended, never left.")

    def is_bounded(self) -> bool:
        return False


class _Offsets(RestrictionProvider):
    def initial_restriction(self, element: Any) -> tuple[_Places, _Places | None]:
        return tuple(_Place(first, MIN_TIMESTAMP.micros // 1000) for _, first in element[1]), None

    def create_tracker(self, restriction: tuple[_Places, _Places | None]) -> PlacesTracker:
        return PlacesTracker(restriction)

    def restriction_size(self, element: Any, restriction: Any) -> int:
        return 1

    def truncate(self, element: Any, restriction: Any) -> None:
        return None  # a job that is drained reads no more


class _Reader:
    """A consumer of some partitions, and where it is."""

    def __init__(self, topic: Topic, partitions: tuple[int, ...]) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._consumer = Consumer(_settings(topic))
        # Sees where a partition ends for producers. For the first, it ends where a transaction is open.
        self._onlooker = Consumer({**_settings(topic), "isolation.level": "read_uncommitted"})
        self._partitions = {number: TopicPartition(topic.name, number) for number in partitions}
        self._next: dict[int, int] = {}  # the offset of the next message
        self._end: dict[int, int] = {}  # nothing is below it; above the next if what ends a transaction takes offsets

    def seek(self, offsets: dict[int, int]) -> None:
        if offsets != self._next:
            for number, offset in offsets.items():
                self._partitions[number].offset = offset
            self._consumer.assign(list(self._partitions.values()))
            self._next, self._end = dict(offsets), {}

    def read(self, most: int) -> dict[int, list[tuple[int, int, bytes | None]]]:
        """For each partition (offset, append time, message) of what comes now; nothing if that is nothing."""
        from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME
        from confluent_kafka import KafkaError as Code

        found: dict[int, list[tuple[int, int, bytes | None]]] = {}
        for record in self._consumer.consume(most, timeout=_IDLE):
            error, offset, number = record.error(), record.offset() or 0, record.partition() or 0
            if error is not None:
                if error.code() == Code._PARTITION_EOF:
                    self._end[number] = offset
                elif error.code() in (Code._AUTO_OFFSET_RESET, Code.OFFSET_OUT_OF_RANGE):
                    raise KafkaError(Message.KAFKA_MESSAGES_GONE.format())
                elif error.code() == Code.UNKNOWN_TOPIC_OR_PART and not error.retriable():
                    raise KafkaError(Message.KAFKA_TOPIC_UNKNOWN.format())
                continue  # librdkafka goes on by itself
            kind, moment = record.timestamp()
            if kind != TIMESTAMP_LOG_APPEND_TIME:
                raise KafkaError(Message.KAFKA_CREATE_TIME.format())
            found.setdefault(number, []).append((offset, moment, record.value()))
            self._next[number] = offset + 1
        return found

    def nothing_before(self, number: int) -> int | None:
        """A time such that every message of a partition before it has been read; None if there is more, or may be when
        a transaction ends, or nobody answers."""
        from confluent_kafka import KafkaException

        asked = time.time()
        try:
            _, end = self._onlooker.get_watermark_offsets(self._partitions[number], timeout=PATIENCE)
        except KafkaException:
            return None
        read = max(self._next[number], self._end.get(number, 0))
        return int(1000 * (asked - _CLOCKS_DIFFER)) if end <= read else None

    def forget(self) -> None:
        """Where it is: after an error the next call begins anew."""
        self._next = {}

    def close(self) -> None:
        self._consumer.close()
        self._onlooker.close()


class _Readers:
    """Readers of this process that wait for the next call. Who takes one has it alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[tuple[Topic, tuple[int, ...]], _Reader] = {}

    def take(self, topic: Topic, partitions: tuple[int, ...]) -> _Reader:
        with self._lock:
            reader = self._idle.pop((topic, partitions), None)
        return reader or _Reader(topic, partitions)

    def give(self, topic: Topic, partitions: tuple[int, ...], reader: _Reader) -> None:
        with self._lock:
            before = self._idle.pop((topic, partitions), None)
            self._idle[topic, partitions] = reader
        if before is not None:
            before.close()


_READERS = _Readers()


class _ReadDoFn(beam.DoFn):
    def __init__(self) -> None:
        self._long = Metrics.counter("dpngram", "bad_too_long")
        self._empty = Metrics.counter("dpngram", "bad_documents")
        self._clock = Metrics.counter("dpngram", "messages_behind_the_clock")

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]
    def process(
        self,
        element: Any,
        tracker: Any = beam.DoFn.RestrictionParam(_Offsets()),  # noqa: B008 (Beam's way to ask for it)
        watermark: Any = beam.DoFn.WatermarkEstimatorParam(ManualWatermarkEstimator.default_provider()),  # noqa: B008
    ) -> Iterator[Any]:
        """What the partitions have now, in each call; then the rest of the range is put off."""
        topic, partitions = Topic(*element[0]), tuple(number for number, _ in element[1])
        if topic.stop is not None and time.time() > topic.stop:
            tracker.try_claim(None)
            return
        places = dict(zip(partitions, tracker.current_restriction()[0], strict=True))
        reader = _READERS.take(topic, partitions)
        try:
            reader.seek({number: place.offset for number, place in places.items()})
            found = reader.read(_BATCH)
            after = {}
            for number, place in places.items():
                records = found.get(number, [])
                now = max((moment for _, moment, _ in records), default=None) or reader.nothing_before(number) or 0
                after[number] = _Place(records[-1][0] + 1 if records else place.offset, max(place.time, now))
            if not tracker.try_claim(tuple(after.values())):
                reader.forget()
                return
            for number, records in found.items():
                for block in self._blocks(records, places[number].time):
                    yield TimestampedValue(block, block.begin)
            # Set in every call: a rest without a watermark holds nothing (seen in Prism 2.77).
            watermark.set_watermark(Timestamp(micros=1000 * min(place.time for place in after.values())))
            tracker.defer_remainder(Duration(0 if found else _IDLE))
        except BaseException:
            reader.forget()
            raise
        finally:
            _READERS.give(topic, partitions, reader)

    def _blocks(self, found: list[tuple[int, int, bytes | None]], passed: int) -> Iterator[MessageBlock]:
        """Arrivals never fall, wherever a call ends: so they are the same when the partition is read once more."""
        messages: list[bytes] = []
        arrivals: list[int] = []
        size = 0
        for _, moment, message in found:
            is_behind, passed = moment < passed, max(moment, passed)
            if message is None:  # a tombstone
                self._empty.inc()
            elif len(message) > MAX_MESSAGE_BYTES:
                self._long.inc()
            else:
                self._clock.inc(int(is_behind))
                messages.append(message)
                arrivals.append(passed)
                size += len(message)
            if size >= _BLOCK_BYTES:
                yield MessageBlock.of(messages, arrivals)
                messages, arrivals, size = [], [], 0
        if messages:
            yield MessageBlock.of(messages, arrivals)

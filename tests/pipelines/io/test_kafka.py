"""Kafka as a source, on a stand-in for the client: what is read, where the watermark is. tests/engines has a broker."""

import itertools
import sys
import types

import pytest
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.runners.sdf_utils import (
    RestrictionTrackerView,
    ThreadsafeRestrictionTracker,
    ThreadsafeWatermarkEstimator,
)

from dpngram.pipelines.io import kafka
from dpngram.pipelines.io.kafka import PlacesTracker, ReadKafka, StreamStart
from dpngram.pipelines.io.kafka_topic import KafkaError, Topic, TopicLook
from dpngram.transforms.randomness.noise_key import KeyReference, NoiseKeyError, Randomness

LOG_APPEND, CREATE = 2, 1
EOF, RESET, OUT_OF_RANGE, UNKNOWN, DOWN = -191, -140, 1, 3, -195


class Code:
    """An error as the client gives it."""

    _PARTITION_EOF, _AUTO_OFFSET_RESET, OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PART = EOF, RESET, OUT_OF_RANGE, UNKNOWN

    def __init__(self, code):
        self._code = code

    def code(self):
        return self._code

    def retriable(self):
        return False


class Record:
    def __init__(self, offset, moment=0, value=b"{}", kind=LOG_APPEND, error=None, partition=0):
        self.partition = lambda: partition
        self._offset, self._moment, self._value, self._kind = offset, moment, value, kind
        self._error = None if error is None else Code(error)

    def offset(self):
        return self._offset

    def timestamp(self):
        return self._kind, self._moment

    def value(self):
        return self._value

    def error(self):
        return self._error


class Broker:
    """What a consumer sees of one partition: batches that come one after another, and where the partition ends.

    Messages of a transaction that is open are behind `end`, and before `written`.
    """

    def __init__(self, *batches, end=0, written=None):
        self.batches, self.end, self.written, self.assigned, self.down = list(batches), end, written, [], False

    def __call__(self, settings):
        if self.written is None or settings["isolation.level"] == "read_committed":
            return self
        return Broker(end=self.written)

    def assign(self, partitions):
        self.assigned.append(tuple(partition.offset for partition in partitions))

    def consume(self, _most, timeout):
        return self.batches.pop(0) if self.batches else []

    def get_watermark_offsets(self, partition, timeout):
        if self.down:
            raise Problem
        return 0, self.end if partition.number == 0 else 0

    def close(self):
        pass


class Problem(Exception):
    pass


@pytest.fixture
def serve(monkeypatch):
    """Puts a broker in place of the client, and a clock in place of time: (broker) -> read(position)."""

    def begin(broker, stop=None):
        def make_partition(_topic, number):
            return types.SimpleNamespace(number=number, partition=number, offset=None)

        client = types.SimpleNamespace(
            Consumer=broker,
            TopicPartition=make_partition,
            KafkaError=Code,
            KafkaException=Problem,
            TIMESTAMP_LOG_APPEND_TIME=LOG_APPEND,
        )
        monkeypatch.setitem(sys.modules, "confluent_kafka", client)
        monkeypatch.setattr(kafka, "_READERS", kafka._Readers())
        monkeypatch.setattr(kafka, "time", types.SimpleNamespace(time=lambda: 1000.0))
        step, watermark = kafka._ReadDoFn(), ManualWatermarkEstimator(None)

        places = {}

        def read(*offsets):
            """One call: (messages and arrivals, where the rest begins or None, the watermark in seconds)."""
            begin = places.get(offsets) or kafka._Offsets().initial_restriction((None, tuple(enumerate(offsets))))[0]
            tracker = ThreadsafeRestrictionTracker(PlacesTracker((begin, None)))
            element = (("servers", "topic", None, stop), tuple(enumerate(offsets)))
            before = watermark.current_watermark()
            given = step.process(element, RestrictionTrackerView(tracker), ThreadsafeWatermarkEstimator(watermark))
            made = []
            for block in given:
                assert block.timestamp == block.value.begin
                assert before is None or block.timestamp >= before
                made += zip(block.value.messages, block.value.arrivals.tolist(), strict=True)
            tracker.check_done()
            rest = tracker.deferred_status()
            now = watermark.current_watermark()
            after = None if rest is None else tuple(place.offset for place in rest[0][0])
            if rest is not None:
                places[after] = rest[0][0]
            after = after[0] if rest is not None and len(after) == 1 else after
            return made, after, None if now is None else now.micros / 1e6

        return read

    return begin


def test_what_comes_is_read_in_order(serve):
    broker = Broker([Record(3, 5000, b"a"), Record(4, 5000, b"b"), Record(7, 6500, b"c")], [Record(8, 9000, b"d")])
    read = serve(broker)
    assert read(3) == ([(b"a", 5000), (b"b", 5000), (b"c", 6500)], 8, 6.5)
    assert read(8) == ([(b"d", 9000)], 9, 9.0)
    assert broker.assigned == [(3,)]  # the reader went on where it was


def test_a_bundle_that_runs_again_reads_the_same(serve):
    broker = Broker([Record(0, 5000, b"a")], [Record(0, 5000, b"a")])
    read = serve(broker)
    assert read(0)[0] == read(0)[0] == [(b"a", 5000)]
    assert broker.assigned == [(0,), (0,)]


def test_the_watermark_of_an_idle_partition(serve):
    """This worker's clock, two seconds back: only at the end of the partition, and only if a broker says so."""
    broker = Broker([Record(0, 5000)], [Record(1, error=EOF)], [], [], [], end=1)
    read = serve(broker)
    assert read(0)[1:] == (1, 5.0)
    assert read(1) == ([], 1, 998.0)
    broker.end = 2
    kafka.time.time = lambda: 2000.0
    assert read(1)[2] == 998.0  # there is one that was not read
    broker.end, broker.down = 1, True
    assert read(1)[2] == 998.0
    broker.down = False
    assert read(1)[2] == 1998.0


def test_the_end_of_a_transaction_is_no_message(serve):
    """It takes an offset; the partition is at its end all the same."""
    read = serve(Broker([Record(0, 5000), Record(2, error=EOF)], [], end=2))
    assert read(0)[1] == 1
    assert read(1)[2] == 998.0


def test_an_open_transaction_holds_the_watermark(serve):
    """Its messages, and what others wrote after them, have append times already, and are read when it ends."""
    assert serve(Broker([Record(0, 5000), Record(1, error=EOF)], [], end=1, written=3))(0)[2] == 5.0
    read = serve(Broker([Record(0, 5000), Record(1, error=EOF)], [], end=1, written=3))
    read(0)
    assert read(1)[2] == 5.0
    read = serve(Broker([Record(0, 5000), Record(1, error=EOF)], [], end=1, written=1))
    read(0)
    assert read(1)[2] == 998.0


def test_arrivals_do_not_depend_on_where_a_call_ends(serve):
    """Another broker leads, with a clock that is behind: read once more, in other calls, each arrival is the same."""
    records = [Record(0, 9000, b"a"), Record(1, 8000, None), Record(2, 8200, b"b"), Record(3, 9500, b"c")]
    records.append(Record(4, 9400, b"d"))
    expected = [(b"a", 9000), (b"b", 9000), (b"c", 9500), (b"d", 9500)]
    for cuts in ([0, 5], [0, 1, 5], [0, 2, 3, 5], [0, 1, 2, 3, 4, 5]):
        read = serve(Broker(*(records[begin:end] for begin, end in itertools.pairwise(cuts))))
        assert [one for begin in cuts[:-1] for one in read(begin)[0]] == expected


def test_a_clock_that_was_turned_back_makes_nobody_late(serve):
    read = serve(Broker([Record(0, 9000, b"a")], [Record(1, 4000, b"b")], [Record(2, 9500, b"c")]))
    assert [read(position) for position in range(3)] == [
        ([(b"a", 9000)], 1, 9.0),
        ([(b"b", 9000)], 2, 9.0),
        ([(b"c", 9500)], 3, 9.5),
    ]


def test_partitions_together(serve):
    """The watermark is that of the partition that is furthest behind; each is silent, or goes on, by itself."""
    first = [Record(0, 9000, b"a"), Record(0, 5000, b"b", partition=1)]
    read = serve(Broker(first, [Record(1, 9500, b"c")], [Record(1, 8000, b"d", partition=1)], end=3))
    assert read(0, 0) == ([(b"a", 9000), (b"b", 5000)], (1, 1), 5.0)
    assert read(1, 1) == ([(b"c", 9500)], (2, 1), 9.5)  # the other is silent
    assert read(2, 1) == ([(b"d", 998_000)], (2, 2), 9.5)  # now the first has messages that were not read


def test_what_is_put_off_begins_where_reading_ended():
    begin, next_ = (kafka._Place(0, 0),), (kafka._Place(5, 7),)
    tracker = PlacesTracker((begin, None))
    assert tracker.try_split(0.5) is None
    with pytest.raises(ValueError, match="never left"):
        tracker.check_done()
    assert tracker.try_claim(next_)
    assert tracker.try_split(0) == ((begin, next_), (next_, None))
    assert not tracker.try_claim((kafka._Place(6, 7),))
    tracker.check_done()
    assert not tracker.is_bounded()
    assert tracker.current_progress().fraction_completed == 0.5


def test_what_cannot_be_a_message(serve, monkeypatch):
    """A tombstone and a message that is too long are passed over; the others come, in blocks of bounded size."""
    monkeypatch.setattr(kafka, "MAX_MESSAGE_BYTES", 10)
    monkeypatch.setattr(kafka, "_BLOCK_BYTES", 15)
    values = [b"x" * 10, None, b"y" * 11, b"z" * 10, b"last"]
    read = serve(Broker([Record(number, 5000, value) for number, value in enumerate(values)]))
    assert [message for message, _ in read(0)[0]] == [b"x" * 10, b"z" * 10, b"last"]


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (Record(0, 5000, kind=CREATE), "LogAppendTime"),
        (Record(0, error=RESET), "has deleted messages"),
        (Record(0, error=OUT_OF_RANGE), "has deleted messages"),
        (Record(0, error=UNKNOWN), "must be a topic"),
    ],
)
def test_refused(serve, record, said):
    with pytest.raises(KafkaError, match=said):
        serve(Broker([Record(0, 5000), record]))(0)


def test_errors_that_pass(serve):
    assert serve(Broker([Record(None, error=DOWN), Record(0, 5000, b"a")]))(0)[0] == [(b"a", 5000)]


def test_the_end(serve):
    made, rest, _ = serve(Broker([Record(0, 5000)]), stop=999.0)(0)
    assert (made, rest) == ([], None)


def start(directory, settings="s", release="", **how):
    return StreamStart(Randomness(KeyReference.parse(f"{directory}/key"), release, "app", "x"), settings, **how)


def test_partitions(monkeypatch, tmp_path):
    """Looked at when the job starts, on a worker; a start with others than before is refused."""
    look = TopicLook("id", ((0, 3), (1, 0)))
    monkeypatch.setattr(kafka, "look_at_topic", lambda _topic: look)
    element = tuple(Topic("servers", "topic"))
    assert list(kafka._PartitionsDoFn(False).process(element)) == [(element, ((0, 3),)), (element, ((1, 0),))]
    KeyReference.parse(f"{tmp_path}/key").create_if_missing()
    step = kafka._PartitionsDoFn(True, start(tmp_path))
    for _ in range(2):  # an engine that runs it again
        assert list(step.process(element)) == [(element, look.first)]
    look = TopicLook("id", ((0, 4), (1, 0)))
    with pytest.raises(NoiseKeyError, match="other first"):
        list(step.process(element))


def test_a_look_ahead_writes_nothing(tmp_path):
    """And says the same as a start would; a key that only workers have is left to them."""
    looks = [TopicLook("id", ((0, 3),)), TopicLook("id", ((0, 4),))]
    start(tmp_path).look_ahead(looks[0])  # no key yet
    KeyReference.parse(f"{tmp_path}/key").create_if_missing()
    before = sorted(tmp_path.iterdir())
    for look in looks:
        start(tmp_path).look_ahead(look)
    assert sorted(tmp_path.iterdir()) == before
    start(tmp_path).check(looks[0])
    start(tmp_path, replayed=True).look_ahead(looks[0])
    with pytest.raises(NoiseKeyError, match="cannot be read once more"):
        start(tmp_path, replayed=True).look_ahead(looks[1])


def test_the_same_stream_once_more(tmp_path):
    """Another topic, other partitions, lost messages, other settings: none of them is the same release."""
    KeyReference.parse(f"{tmp_path}/key").create_if_missing()
    look = TopicLook("id", ((0, 3), (1, 0)))
    start(tmp_path).check(look)
    start(tmp_path, replayed=True).check(look)
    for changed in (TopicLook("other", look.first), TopicLook("id", ((0, 3),)), TopicLook("id", ((0, 4), (1, 0)))):
        with pytest.raises(NoiseKeyError, match="cannot be read once more"):
            start(tmp_path, replayed=True).check(changed)
    with pytest.raises(NoiseKeyError, match="cannot be read once more"):
        start(tmp_path, "t", replayed=True).check(look)
    start(tmp_path, again="first").check(changed)  # another release, which is the same as itself only
    start(tmp_path, again="second").check(look)
    with pytest.raises(NoiseKeyError, match="cannot be read once more"):
        start(tmp_path, again="first").check(look)
    start(tmp_path, release="other", replayed=True).check(changed)  # never started: this is the first start


def test_settings(tmp_path):
    (tmp_path / "config").write_text("sasl.password=a=b\nisolation.level=read_uncommitted\n")
    settings = kafka._settings(Topic("servers", "topic", str(tmp_path / "config")))
    assert settings["sasl.password"] == "a=b"
    assert settings["enable.auto.commit"] is False
    assert settings["isolation.level"] == "read_committed"  # a start with another file reads the same messages


def test_the_graph_names_no_secret(tmp_path):
    (tmp_path / "config").write_text("sasl.password=passw0rd\n")
    assert "passw0rd" not in repr(vars(ReadKafka(Topic("servers", "topic", str(tmp_path / "config")))))

"""Messages of a stream: JSON into documents with their times; each decided by itself."""

import itertools
import json

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from dpngram.pipelines.io import messages as messages_module
from dpngram.pipelines.io.messages import GatherMessages, MessageBlock, MessageFields, ParseMessages, read_messages
from dpngram.transforms.blocks.columns import binary_array

FIELDS = MessageFields("user", "text", "time")
ARRIVAL = 1_000_000_000  # 1970-01-12T13:46:40


def found(block):
    """(user, text or tokens, milliseconds) of each document."""
    strings, bounds = binary_array(block.offsets, block.data).to_pylist(), block.token_bounds.tolist()
    texts = [tuple(strings[a:b]) for a, b in itertools.pairwise(bounds)] if bounds else strings
    return list(zip(block.users.to_pylist(), texts, block.times.tolist(), strict=True))


def read(messages, fields=FIELDS, delay=10_000, arrival=ARRIVAL):
    reading = read_messages(MessageBlock.of(messages, [arrival] * len(messages)), fields, delay)
    return sorted((one for block in reading.blocks for one in found(block)), key=repr), reading


def encoded(**record):
    return json.dumps(record).encode()


GOOD = {
    encoded(user="a", text="x", time=999_995): (b"a", b"x", ARRIVAL + 5_000),
    encoded(user="a", text="x", time=999_995.5): (b"a", b"x", ARRIVAL + 5_500),
    encoded(user=7, text="", time="1970-01-12T13:46:30Z"): (b"7", b"", ARRIVAL),
    encoded(user="c", text="x", time="1970-01-12T15:46:30+02:00"): (b"c", b"x", ARRIVAL),
    encoded(user="d", text="x", time="1970-01-12T13:46:30"): (b"d", b"x", ARRIVAL),
    encoded(user="e", text=["x", "y"], time=1_000_059): (b"e", (b"x", b"y"), ARRIVAL + 69_000),
    encoded(text="y", more={"a": [None]}, time=1_000_000, user="f"): (b"f", b"y", ARRIVAL + 10_000),
    b'{"user": "g",\r\n "text": "z",\n"time": 1e6}\n': (b"g", b"z", ARRIVAL + 10_000),
}
LATE = [encoded(user="l", text="x", time=time) for time in (999_989.999, 0, -1e300, "0001-01-01T00:00:00+01:00")]
EARLY = [encoded(user="m", text="x", time=time) for time in (1_000_060.001, 32_503_680_000, 1e300, 10**400)]
BAD = [
    *(encoded(user="n", text="x", time=time) for time in ("yesterday", True, None, [1], {})),
    *(encoded(user=user, text="x", time=1e6) for user in ("", None, 1.5, True, ["a"], 2**63, "\ud800")),
    *(encoded(user="n", text=text, time=1e6) for text in (None, 3, {}, ["a", None], ["a", 1], "\ud800")),
    encoded(user="n", text="x"),
    encoded(user="n", time=1e6),
    *(b"", b"  ", b"null", b"[1]", b"{", b"\xff", b"[" * 10_000, b'{"user":' * 5_000, b"{}{}", b'{"user": "n"}}'),
    b'{"user": "n", "text": "x", "time": NaN}',
    b'{"user": "n", "text": "\xff", "time": 1000000}',
]


def test_messages():
    for message, expected in GOOD.items():
        documents, reading = read([message])
        assert documents == [expected]
        assert reading[1:] == (0, 0, 0)
    for messages, counts in ((LATE, (0, 1, 0)), (EARLY, (0, 0, 1)), (BAD, (1, 0, 0))):
        for message in messages:
            documents, reading = read([message])
            assert documents == [], message
            assert reading[1:] == counts, message


def test_no_message_decides_about_another(monkeypatch):
    """Any mix, in any order, in chunks of any size: the same documents as one at a time."""
    monkeypatch.setattr(messages_module, "_CHUNK", 16)
    odd = [
        b'{"user": "a", "user": "b", "text": "x", "time": 1000000}',  # repeated
        b'{"user": "a", "text": "x", "time": 1000000, "time": "1970-01-12T13:46:30Z"}',
        b'{"user": "deep", "text": "x", "time": 1000000, "more": ' + b"[" * 2000 + b"]" * 2000 + b"}",
        b'{"user": "digits", "text": "x", "time": 1000000, "more": ' + b"9" * 5000 + b"}",
    ]
    every = [*GOOD, *LATE, *EARLY, *BAD, *odd]
    expected = sorted((one for message in every for one in read([message])[0]), key=repr)
    rng = np.random.default_rng(1)
    for _ in range(6):
        documents, reading = read([every[row] for row in rng.permutation(len(every))])
        assert documents == expected
        assert (reading.late, reading.early) == (len(LATE), len(EARLY))
        assert reading.bad == len(every) - len(expected) - len(LATE) - len(EARLY)


def test_a_message_is_late_by_itself():
    """Not by a watermark: whether it is used follows from its time and its arrival, to the millisecond."""
    for before, used in ((10_000, 1), (10_001, 0), (-60_000, 1), (-60_001, 0)):
        for arrival in (10**9, 2 * 10**12 + 123):
            documents, _ = read([encoded(user="a", text="x", time=(arrival - before) / 1000)], arrival=arrival)
            assert len(documents) == used, (before, arrival)
            assert all(time >= arrival for _, _, time in documents)


def test_the_time_of_arrival():
    """Without a field for the time no message is late."""
    reading = read_messages(
        MessageBlock.of([encoded(user="a", text="x")] * 3, [5, 7, 6]), FIELDS._replace(time=None), 0
    )
    assert [one[2] for block in reading.blocks for one in found(block)] == [5, 7, 6]


def test_one_parse_for_messages_of_one_shape(monkeypatch):
    """The way that is fast: Arrow is asked once for a chunk, and Python looks at one message."""
    parsed, looked = [], []
    parse, look = messages_module._parse, messages_module._look
    monkeypatch.setattr(messages_module, "_parse", lambda *given: parsed.append(len(given[1])) or parse(*given))
    monkeypatch.setattr(messages_module, "_look", lambda *given: looked.append(1) or look(*given))
    read([encoded(user=f"u{row}", text="x y", time=1e6 + row % 7) for row in range(5000)])
    assert parsed == [2000, 2000, 1000]
    assert len(looked) == 3


@pytest.mark.parametrize("limit", [3, 10_000])
def test_in_a_graph(monkeypatch, limit):
    """Every message once. Blocks have the time of their first arrival, those of documents too: 14 s before theirs."""
    monkeypatch.setattr(messages_module, "_GATHER_MESSAGES", limit)
    sent = [(encoded(user=f"u{row}", text="x", time=row + 9), 1000 * row) for row in range(20)]

    def stamps(block, timestamp=beam.DoFn.TimestampParam):
        times = block.arrivals if isinstance(block, MessageBlock) else block.times
        assert timestamp.micros == 1000 * (times.min() - (0 if isinstance(block, MessageBlock) else 14_000))
        return times.tolist()

    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        gathered = pipeline | beam.Create(sent) | GatherMessages()
        parsed = gathered | ParseMessages("user", "text", "time", delay=5.0)
        assert_that(gathered | "Arrivals" >> beam.FlatMap(stamps), equal_to([1000 * row for row in range(20)]), "a")
        assert_that(parsed | "Times" >> beam.FlatMap(stamps), equal_to([1000 * row + 14_000 for row in range(20)]), "t")


def test_tokens_are_arrow_strings():
    assert pa.types.is_list(messages_module._look(encoded(user="a", text=[], time=1), FIELDS).text)


def test_others_do_not_change_the_order_of_a_users_documents():
    """A user's first windows count, so the shape of somebody else's message must not say which are the first."""
    mine = [encoded(user="u", text=str(n), time=999_995 if n % 3 else "1970-01-12T13:46:35Z") for n in range(9)]
    other = encoded(user="v", text="x", time="1970-01-12T13:46:35Z")
    for messages in (mine, [other, *mine], [*mine[:4], other, *mine[4:]]):
        blocks = read_messages(MessageBlock.of(messages, [ARRIVAL] * len(messages)), FIELDS, 10_000).blocks
        texts = [text for block in blocks for user, text, _ in found(block) if user == b"u"]
        assert texts == [str(n).encode() for n in range(9)]

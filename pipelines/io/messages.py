"""Messages of a stream, in blocks: JSON into documents with their times, in columns by Arrow.

Privacy: what becomes of a message must depend on this message and its arrival alone. As for files (`parsing.py`),
Arrow's result for many messages is used only if all of them are objects of one shape, without exception. If not, they
are sorted by shape, one by one, and Arrow reads each kind; what it refuses is halved down to single messages. The
documents of each user stay in the order of their messages (`keep_order`), whatever shapes others use.
"""

import dataclasses
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.json
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from dpngram.pipelines.io.parsing import is_utf8, make_block, plain_objects
from dpngram.transforms.blocks.columns import Array, Block, register_block
from dpngram.transforms.blocks.documents import DocumentBlock, keep_order
from dpngram.transforms.windowing import check_delay

__all__ = ["GatherMessages", "MessageBlock", "MessageFields", "ParseMessages", "Reading", "read_messages"]

# A message may have a time that is so many milliseconds after its arrival: clocks differ.
_MOST_AHEAD = 60_000
_CHUNK = 2_000  # messages that Arrow reads at once; one bad message costs a look at so many
_GATHER_MESSAGES = 10_000
_GATHER_BYTES = 4 << 20


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class MessageBlock(Block):
    """Messages, one on each line, and when each arrived at the source, in milliseconds."""

    data: Array  # uint8
    arrivals: Array  # int64

    @classmethod
    def of(cls, messages: Sequence[bytes], arrivals: Sequence[int]) -> "MessageBlock":
        """Line ends in a message are white space, so that each message is one line.

        >>> block = MessageBlock.of([b'{"a":\\n1}', b""], [5, 6])
        >>> block.data.tobytes(), block.arrivals.tolist()
        (b'{"a": 1}\\n\\n', [5, 6])
        """
        lines = b"".join(message.replace(b"\n", b" ") + b"\n" for message in messages)
        return cls(data=np.frombuffer(lines, np.uint8), arrivals=np.array(arrivals, np.int64))

    @property
    def messages(self) -> list[bytes]:
        return self.data.tobytes().split(b"\n")[:-1]

    @property
    def begin(self) -> Timestamp:
        """The first arrival."""
        return Timestamp(micros=1000 * int(self.arrivals.min()))


class MessageFields(NamedTuple):
    """The names of the fields; without `time` a message has the time of its arrival."""

    user: str
    text: str
    time: str | None = None


class Reading(NamedTuple):
    """Documents with their times plus the delay, and how many messages were left out, by reason."""

    blocks: list[DocumentBlock]
    bad: int
    late: int
    early: int


class _Shape(NamedTuple):
    """The types of the fields that are read: one line of JSON has at most one of these shapes."""

    user: pa.DataType
    text: pa.DataType
    time: pa.DataType | None


class _Columns(NamedTuple):
    rows: Array  # of the chunk
    block: DocumentBlock
    times: pa.Array | None


def read_messages(block: MessageBlock, fields: MessageFields, delay: int) -> Reading:
    """The documents of a block. Whether and when a message counts follows from it and its arrival: see `ParseMessages`.

    Args:
        block: the messages.
        fields: where user, text and time are.
        delay: milliseconds that a message may be late.
    """
    messages, used, late, early = block.messages, 0, 0, 0
    blocks: list[DocumentBlock] = []
    for begin in range(0, len(messages), _CHUNK):
        arrivals = block.arrivals[begin : begin + _CHUNK]
        parts: list[tuple[Array, DocumentBlock]] = []
        for rows, documents, times in _read_chunk(messages[begin : begin + _CHUNK], fields):
            arrived = arrivals[rows]
            moments = arrived.astype(np.float64) if times is None else _milliseconds(times)
            known = ~np.isnan(moments)
            is_late, is_early = moments + delay < arrived, moments > arrived + _MOST_AHEAD
            kept = np.flatnonzero(known & ~is_late & ~is_early)
            used += int(known.sum())
            late, early = late + int(is_late.sum()), early + int(is_early.sum())
            if len(kept):
                stamps = moments[kept].astype(np.int64) + delay
                parts.append((rows[kept], dataclasses.replace(documents.take(kept), times=stamps)))
        blocks += keep_order(parts)
    return Reading(blocks, len(messages) - used, late, early)


def _milliseconds(times: pa.Array) -> Array:
    """Unix time, rounded down; not a number where there is no time."""
    if pa.types.is_floating(times.type):
        with np.errstate(over="ignore"):  # infinitely early, or late
            floored: Array = np.floor(times.to_numpy(zero_copy_only=False) * 1000.0)
            return floored
    return np.array([_moment(text) for text in times.to_pylist()])


def _moment(text: str) -> float:
    """ISO 8601, in UTC unless it has a time zone."""
    try:
        parsed = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return math.floor((parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return math.nan


def _read_chunk(messages: Sequence[bytes], fields: MessageFields) -> Iterator[_Columns]:
    messages = [message.strip(b" \t\r") for message in messages]
    first = _look(messages[0], fields)
    if first is not None:
        every = np.arange(len(messages))
        read = _parse(messages, every, first, fields)
        if read is not None:
            yield read
            return
    kinds: dict[_Shape | None, list[int]] = {}
    for row, message in enumerate(messages):
        if message[:1] == b"{" and message[-1:] == b"}":
            kinds.setdefault(_look(message, fields), []).append(row)
    for shape, rows in kinds.items():
        if shape is not None:
            yield from _halve(messages, np.array(rows), shape, fields)
        else:  # Python cannot say what it is
            for row in rows:
                if is_utf8(messages[row]):
                    tried = (_parse(messages, np.array([row]), shape, fields) for shape in _all_shapes(fields))
                    yield from itertools.islice((read for read in tried if read is not None), 1)


def _halve(messages: Sequence[bytes], rows: Array, shape: _Shape, fields: MessageFields) -> Iterator[_Columns]:
    read = _parse(messages, rows, shape, fields)
    if read is not None:
        yield read
    elif len(rows) > 1:
        for half in np.array_split(rows, 2):
            yield from _halve(messages, half, shape, fields)


def _look(message: bytes, fields: MessageFields) -> _Shape | None:
    """The only shape that a message can have; None if it takes Arrow to find out.

    Python and Arrow differ in what they take (repeated fields, numbers of thousands of digits, depth). Arrow decides.
    """
    repeated = False

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        repeated = repeated or len(dict(found)) < len(found)
        return dict(found)

    try:
        record = json.loads(message, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        return None
    if repeated or not isinstance(record, dict):
        return None
    user, text = record.get(fields.user), record.get(fields.text)
    time = None if fields.time is None else record.get(fields.time)
    return _Shape(
        pa.int64() if isinstance(user, int) else pa.string(),
        pa.list_(pa.string()) if isinstance(text, list) else pa.string(),
        None if fields.time is None else pa.string() if isinstance(time, str) else pa.float64(),
    )


def _all_shapes(fields: MessageFields) -> Iterator[_Shape]:
    times = [None] if fields.time is None else [pa.float64(), pa.string()]
    texts = [pa.string(), pa.list_(pa.string())]
    return (_Shape(*types) for types in itertools.product((pa.string(), pa.int64()), texts, times))


def _parse(messages: Sequence[bytes], rows: Array, shape: _Shape, fields: MessageFields) -> _Columns | None:
    """Columns of these messages, if each of them is an object of this shape with nothing missing; else None."""
    lines = b"\n".join(messages[row] for row in rows.tolist())
    if not plain_objects(lines):
        return None
    schema = [(fields.user, shape.user), (fields.text, shape.text)]
    if fields.time is not None:
        schema.append((fields.time, shape.time))
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(lines),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema(schema), unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowInvalid:
        return None  # the message may quote the data; it goes nowhere
    if len(table) != len(rows):
        return None
    users, texts = (table[name].combine_chunks() for name in (fields.user, fields.text))
    times = None if fields.time is None else table[fields.time].combine_chunks()
    block = make_block(users.cast(pa.string()), texts)
    if block is None or (times is not None and times.null_count):
        return None
    return _Columns(rows, block, times)


class GatherMessages(beam.PTransform):
    """(message, arrival in milliseconds) -> MessageBlock: those of a bundle together, for sources of single messages.

    Privacy: nothing is looked at. A block has the time of its first arrival, so it holds the watermark for all.
    """

    def expand(self, messages: beam.PCollection[tuple[bytes, int]]) -> beam.PCollection[MessageBlock]:
        return messages | beam.ParDo(_GatherDoFn())


class _GatherDoFn(beam.DoFn):
    def start_bundle(self) -> None:
        self._messages: list[bytes] = []
        self._arrivals: list[int] = []
        self._size = 0

    def process(self, message: tuple[bytes, int], window: Any = beam.DoFn.WindowParam) -> Iterator[Any]:
        self._window = window
        self._messages.append(message[0])
        self._arrivals.append(message[1])
        self._size += len(message[0])
        if len(self._messages) >= _GATHER_MESSAGES or self._size >= _GATHER_BYTES:
            block = self._block()
            yield TimestampedValue(block, block.begin)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._messages:
            block = self._block()
            yield WindowedValue(block, block.begin, (self._window,))

    def _block(self) -> MessageBlock:
        block = MessageBlock.of(self._messages, self._arrivals)
        self.start_bundle()
        return block


class ParseMessages(beam.PTransform):
    """MessageBlock -> DocumentBlock: documents at the time of their message, or of its arrival, plus `delay`.

    A block has the time of the first arrival, which is not after that of any of its documents.

    A message is a JSON object; its user is a text or a whole number, its text a text or a list of tokens, its time a
    number of seconds since 1970 or an ISO 8601 text (in UTC unless it has a time zone).

    Whether a message is used is decided by the message and its arrival alone: it is left out if its time is more than
    `delay` before its arrival (counter `late_messages`) or more than a minute after (`early_messages`: it would wait in
    memory for a window that may be years away). What is used gets a time that is never before its arrival. So under a
    watermark that never passes an arrival that is still to come, the engine drops nothing as late, and what a window
    holds is a function of the messages and their arrivals: not of the speed of the job, or of a restart.

    Privacy: the watermark comes from the source's clock, never from the messages. Otherwise one message with a time far
    in the future would make everybody else's late. Nor do the times of blocks: some engines take what waits in the
    order of times. A user's message with an early time would bring its block before the blocks of earlier arrivals, and
    other users' first windows would be other ones. A message that cannot be used is counted and left out; no error
    shows its content.

    Args:
        user_field, text_field: the names of the fields.
        time_field: the name of the field with the time; None: the time of arrival.
        delay: seconds that a message may be late.
    """

    def __init__(self, user_field: str, text_field: str, time_field: str | None, delay: float = 0.0) -> None:
        super().__init__()
        self._parse = _ParseDoFn(MessageFields(user_field, text_field, time_field), check_delay(delay))

    def expand(self, messages: beam.PCollection[MessageBlock]) -> beam.PCollection[DocumentBlock]:
        return messages | "Fields" >> beam.ParDo(self._parse)


class _ParseDoFn(beam.DoFn):
    def __init__(self, fields: MessageFields, delay: int) -> None:
        self._fields, self._delay = fields, delay
        self._bad = Metrics.counter("dpngram", "bad_documents")
        self._late = Metrics.counter("dpngram", "late_messages")
        self._early = Metrics.counter("dpngram", "early_messages")

    def process(self, messages: MessageBlock) -> Iterator[DocumentBlock]:
        read = read_messages(messages, self._fields, self._delay)
        self._bad.inc(read.bad)
        self._late.inc(read.late)
        self._early.inc(read.early)
        for block in read.blocks:
            yield TimestampedValue(block, messages.begin)

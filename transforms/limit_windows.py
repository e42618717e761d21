"""A bound on the number of windows that one user is in."""

import dataclasses
import secrets
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import (
    GlobalWindows,
    SlidingWindows,
    TimestampCombiner,
    TimestampedValue,
    WindowFn,
)
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from dpngram.accounting import ParameterError
from dpngram.accounting.parameters import check_choice, check_integer
from dpngram.transforms.admission import NOBODY, UserWindows, Windows, admit
from dpngram.transforms.blocks.columns import Array, split_binary
from dpngram.transforms.blocks.documents import DocumentBlock, keep_order
from dpngram.transforms.document_form import UNUSABLE, DocumentForm, check_form, collect_documents, plain_text
from dpngram.transforms.document_types import check_documents
from dpngram.transforms.keyed_dofn import KeyedDoFn
from dpngram.transforms.messages import Message
from dpngram.transforms.randomness.key_records import RecordUnreadableError
from dpngram.transforms.randomness.noise_key import NoiseKeyError, Randomness
from dpngram.transforms.randomness.prf import Prf
from dpngram.transforms.windowing import producers

__all__ = ["STREAM_STARTS", "LimitWindowsPerUser"]

STREAM_STARTS = ("new", "continued", "again")
_BATCH_DOCUMENTS = 20_000
_BATCH_CHARACTERS = 8_000_000


class LimitWindowsPerUser(beam.PTransform):
    """Documents or DocumentBlocks in fixed or sliding windows -> DocumentBlocks in the same windows, with each user in
    at most `windows` of them.

    State in Beam is per key and window, so a counter inside the windows would see one window only. The documents go
    back to the global window, in blocks, keyed by the shard of their user; each document is kept whole or left out
    whole, together with all the windows that its time falls into; what is kept goes into the windows again by its time.

    Bounded input: a user's earliest windows, whatever the order of reading. Unbounded: the first windows to arrive.

    Privacy: whether a document of a user is kept depends on documents of this user alone (`admission.admit`), so that
    adding or removing the user changes nothing for others; and the user is then in at most W releases, for which a plan
    with `windows=W` is calibrated (docs/privacy.md, Windows). A shard holds many users, under keyed digests of 128
    bits; two users with the same digest would share a bound (probability N²/2¹²⁹ for N users, as for all names).

    What is kept, for as long as the job lives, for unbounded input: 24 bytes for each user and window that is not over,
    and 24 for each user who was in windows that are over, with their number. So at most 24·(W + 1) bytes a user. A
    watermark timer takes windows together when they are over: then no document of theirs can come. The number of
    windows of a user never falls, so a timer that came too early could only leave out too much.
    A job that is started anew, without that state, would count every user from zero: 2W windows in all. So the start of
    a stream is remembered with its key and label, before any document passes, and a second one is refused unless the
    operator asks for it. So is a start with other `shards`, which would look for users in other parts of the state, and
    one with other windows, settings or another field of the user.

    Args:
        windows: W, the most windows that one user may be in.
        randomness: where the key is; users are named by keyed digests.
        form: where the user and the text are in a document; documents must have users.
        shards: into how many parts the users are cut. The state of a part is read, and written, once for each block.
        start: unbounded input only. "new": the first start of this stream; "continued": the engine restores the state
            of the job (a savepoint, an updated job); "again": a start without that state, which is another release.
        offline: building the graph looks at no file.
    """

    def __init__(
        self,
        windows: int,
        randomness: Randomness,
        form: DocumentForm,
        *,
        shards: int = 32,
        start: str = "new",
        offline: bool = False,
    ) -> None:
        super().__init__()
        self._most, self._randomness, self._form = windows, randomness, check_form(form)
        self._shards = check_integer("shards", shards, 1, 1 << 20)
        self._known, self._offline = check_choice("start", start, STREAM_STARTS) != "new", offline

    def expand(self, documents: beam.PCollection[Any]) -> beam.PCollection[DocumentBlock]:
        check_documents(documents, self._form)
        windows = documents.windowing.windowfn
        if isinstance(windows, SlidingWindows) and _grouped(documents, windows):
            raise ParameterError(
                "sliding windows must come straight from WindowInto: after a GroupByKey an element's time is the end "
                "of its window, which belongs to other windows as well."
            )
        start = None
        if not documents.is_bounded:
            start = _Start(secrets.token_hex(16), self._known)
            if not (self._known or self._offline):
                _refuse_second_start(self._randomness)
        # The earliest time of a block, and of a group, holds the watermark: what leaves it is not late.
        sharded = (
            documents
            | "Shard"
            >> beam.ParDo(_ShardDoFn(windows, self._randomness, self._form, self._shards, start)).with_output_types(
                tuple[int, DocumentBlock]
            )
            | "AllWindows" >> beam.WindowInto(GlobalWindows(), timestamp_combiner=TimestampCombiner.OUTPUT_AT_EARLIEST)
        )
        if documents.is_bounded:
            earliest = beam.ParDo(_EarliestDoFn(windows, self._randomness, self._most))
            kept = sharded | "Users" >> beam.GroupByKey() | "Earliest" >> earliest
        else:
            kept = sharded | "FirstToArrive" >> beam.ParDo(_AdmitDoFn(windows, self._randomness, self._most))
        return kept | "SameWindows" >> beam.WindowInto(windows)


def _grouped(documents: beam.PCollection[Any], windows: WindowFn) -> bool:
    """Whether something was grouped since the documents were put into these windows."""
    return any(
        isinstance(made_by.transform, beam.GroupByKey) and made_by.inputs[0].windowing.windowfn == windows
        for made_by in producers(documents)
    )


class _Start(NamedTuple):
    """One start of a stream. Every worker that sets up its graph has the same name for it."""

    name: str
    known: bool


def _refuse_second_start(randomness: Randomness) -> None:
    """The same check as on the workers, where it is early: before the job is sent. Nothing is written."""
    if randomness.key.scheme == "gcp-secret":
        return  # the launcher may have no right to read it
    try:
        source = randomness.open()
        started = source.was_stream_started()
    except (NoiseKeyError, RecordUnreadableError):
        return  # only workers have the key, or they say what is wrong
    if started:
        raise NoiseKeyError(Message.STREAM_STARTED.format(key=randomness.key.location))


class _NamesUsersDoFn(KeyedDoFn):
    """Names users by digests that are the same for all jobs with this key."""

    _names: Prf

    def setup(self) -> None:
        super().setup()
        self._names = self._source.names("bounded user")

    def digests(self, block: DocumentBlock) -> Array:
        """(rows, 2) words: who wrote each document."""
        users = block.users
        if users is None:
            raise TypeError(Message.NO_USERS.format())
        encoded = users.dictionary_encode()
        distinct = self._names.strings(*split_binary(encoded.dictionary))
        digests: Array = np.take(distinct, encoded.indices.to_numpy(zero_copy_only=False), axis=0)
        return digests


class _Waiting:
    """Documents that wait for the end of a batch: pairs of (user, text), their milliseconds, their places in it."""

    def __init__(self) -> None:
        self.documents: list[Any] = []
        self.times: list[int] = []
        self.places: list[int] = []


class _ShardDoFn(_NamesUsersDoFn):
    """(shard of the user, block with a time for each document). Keys may be shown on a runner's pages: they are small
    numbers that follow from keyed digests.
    """

    def __init__(
        self,
        windows: WindowFn,
        randomness: Randomness,
        form: DocumentForm,
        shards: int,
        start: _Start | None = None,
    ) -> None:
        super().__init__(randomness)
        self._windows, self._form, self._shards, self._start = windows, form, shards, start
        self._bad = Metrics.counter("dpngram", "bad_documents")

    def setup(self) -> None:
        super().setup()
        if self._start is not None:  # no document passes before the start is remembered
            windows = Windows.of(self._windows), self._randomness.window_delay  # a window's number, and its name
            counts = repr((windows, self._form.user_field))
            self._source.start_stream(self._start.name, known=self._start.known, shards=self._shards, counts=counts)

    def start_bundle(self) -> None:
        self._waiting = {False: _Waiting(), True: _Waiting()}  # texts, and sequences of tokens
        self._size = self._number = 0

    def process(
        self, document: Any, timestamp: Any = beam.DoFn.TimestampParam, window: Any = beam.DoFn.WindowParam
    ) -> Iterator[Any]:
        # Beam shows an element once for each of its sliding windows; one copy is enough.
        ends = (one.end.micros for one in self._windows.assign(WindowFn.AssignContext(timestamp)))
        if window.end.micros != min(ends, default=None):
            return
        # Round down to milliseconds here. Beam's coder would truncate anyway, and truncates negative times
        # *upwards*, which could move a document into the next window.
        time = timestamp.micros // 1000
        if isinstance(document, DocumentBlock):
            if self._number:  # what came before goes before
                yield from self.finish_bundle()
                self.start_bundle()
            if document.rows:
                times = document.times if len(document.times) else np.full(document.rows, time)
                for shard, part in self._split(dataclasses.replace(document, times=times)):
                    # Its own time, so that blocks keep their order where an engine goes by times (Prism).
                    yield TimestampedValue((shard, part), min(timestamp, _begin(part)))
            return
        try:
            user, text = self._form.read(document)
            text = plain_text(text)  # between workers, a coder would fail the run over what it cannot take
        except UNUSABLE:
            self._bad.inc()
            return
        waiting = self._waiting[not isinstance(text, str)]
        waiting.documents.append((user, text))
        waiting.times.append(time)
        waiting.places.append(self._number)
        self._window = window
        self._size += len(text)
        self._number += 1
        if self._number >= _BATCH_DOCUMENTS or self._size > _BATCH_CHARACTERS:
            yield from self.finish_bundle()
            self.start_bundle()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """All windows together, so that the documents of each user stay in their order; their times say the windows."""
        parts = []
        for waiting in self._waiting.values():
            blocks, _ = collect_documents(waiting.documents, DocumentForm())
            for block in blocks:  # one, or none
                timed = dataclasses.replace(block, times=np.array(waiting.times, np.int64))
                parts.append((np.array(waiting.places, np.int64), timed))
        for block in keep_order(parts):
            for shard, part in self._split(block):
                yield WindowedValue((shard, part), _begin(part), (self._window,))

    def _split(self, block: DocumentBlock) -> Iterator[tuple[int, DocumentBlock]]:
        shard = (self.digests(block)[:, 0] % np.uint64(self._shards)).astype(np.int64)
        for number in np.unique(shard).tolist():
            yield number, block.take(np.flatnonzero(shard == number))


def _begin(block: DocumentBlock) -> Timestamp:
    return Timestamp(micros=1000 * int(block.times.min()))


def _in_windows(block: DocumentBlock, rows: Array, first: Array, last: Array) -> Iterator[TimestampedValue]:
    """A block for each set of windows, at a time that falls into just these."""
    for begin, end in sorted(set(zip(first[rows].tolist(), last[rows].tolist(), strict=True))):
        same = block.take(rows[(first[rows] == begin) & (last[rows] == end)])
        yield TimestampedValue(dataclasses.replace(same, times=_NO_TIMES), _begin(same))


_NO_TIMES: Array = np.zeros(0, np.int64)


class _EarliestDoFn(_NamesUsersDoFn):
    def __init__(self, windows: WindowFn, randomness: Randomness, most: int) -> None:
        super().__init__(randomness)
        self._windows, self._most = Windows.of(windows), most

    def process(self, shard: tuple[int, Iterable[DocumentBlock]]) -> Iterator[Any]:  # at their time
        blocks = list(shard[1])
        times = np.concatenate([block.times for block in blocks])
        digests = np.concatenate([self.digests(block) for block in blocks])
        first, last = self._windows.spans(times)
        order = np.argsort(times, kind="stable")
        kept = np.zeros(len(times), bool)
        kept[order], _ = admit(NOBODY, digests[order], first[order], last[order], self._most)
        at = 0
        for block in blocks:
            mine = slice(at, at + block.rows)
            yield from _in_windows(block, np.flatnonzero(kept[mine]), first[mine], last[mine])
            at += block.rows


class _AdmitDoFn(_NamesUsersDoFn):
    KNOWN = ReadModifyWriteStateSpec("windows", beam.coders.BytesCoder())
    OVER = TimerSpec("over", TimeDomain.WATERMARK)

    def __init__(self, windows: WindowFn, randomness: Randomness, most: int) -> None:
        super().__init__(randomness)
        self._windows, self._most = Windows.of(windows), most

    def process(
        self,
        shard: tuple[int, DocumentBlock],
        state: Any = beam.DoFn.StateParam(KNOWN),  # noqa: B008 (Beam's way to ask for it)
        timer: Any = beam.DoFn.TimerParam(OVER),  # noqa: B008
    ) -> Iterator[Any]:
        block = shard[1]
        known = UserWindows.from_bytes(state.read() or b"")
        first, last = self._windows.spans(block.times)
        admitted, after = admit(known, self.digests(block), first, last, self._most)
        if after is not known:
            state.write(after.to_bytes())
            self._wait(after, timer)
        yield from _in_windows(block, np.flatnonzero(admitted), first, last)

    @on_timer(OVER)  # type: ignore[untyped-decorator]
    def over(
        self,
        time: Any = beam.DoFn.TimestampParam,
        state: Any = beam.DoFn.StateParam(KNOWN),  # noqa: B008
        timer: Any = beam.DoFn.TimerParam(OVER),  # noqa: B008
    ) -> None:
        known = UserWindows.from_bytes(state.read() or b"").close(self._windows.over(time.micros // 1000))
        state.write(known.to_bytes())
        self._wait(known, timer)

    def _wait(self, known: UserWindows, timer: Any) -> None:
        """For the end of the first window that is not over."""
        if known.first_open is not None:
            timer.set(Timestamp(micros=1000 * self._windows.end(known.first_open)))

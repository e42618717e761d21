"""A bound on the number of windows that one user is in."""

import secrets
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.transforms.window import (
    GlobalWindows,
    SlidingWindows,
    TimestampCombiner,
    TimestampedValue,
    WindowFn,
)
from apache_beam.utils.timestamp import Timestamp

from dpngram.accounting import ParameterError
from dpngram.accounting.parameters import check_choice
from dpngram.transforms.blocks.documents import DocumentBlock
from dpngram.transforms.document_form import UNUSABLE, DocumentForm, check_form, plain_text
from dpngram.transforms.document_types import check_documents
from dpngram.transforms.keyed_dofn import KeyedDoFn
from dpngram.transforms.messages import Message
from dpngram.transforms.randomness.key_records import RecordUnreadableError
from dpngram.transforms.randomness.noise_key import NoiseKeyError, Randomness
from dpngram.transforms.windowing import producers

__all__ = ["STREAM_STARTS", "LimitWindowsPerUser", "admit", "earliest"]

STREAM_STARTS = ("new", "continued", "again")


class LimitWindowsPerUser(beam.PTransform):
    """Documents in fixed or sliding windows -> the same windows, with each user in at most `windows` of them.

    State in Beam is per key and window, so a counter inside the windows would see one window only. The documents
    go back to the global window, keyed by user; each is kept whole or left out whole, together with all the windows
    that its time falls into; and what is kept goes into the windows again by its time.

    Bounded input: a user's earliest windows, whatever the order of reading. Unbounded: the first windows to arrive.

    Privacy: whether a document of a user is kept depends on documents of this user alone, so that adding or
    removing the user changes nothing for others; and the user is then in at most W releases, for which a plan with
    `windows=W` is calibrated (docs/privacy.md, Windows). The windows that a user is in are kept for as long as
    the job lives: for unbounded input that is 8 bytes a window and user. A job that is started anew, without that
    state, would count every user from zero: 2W windows in all. So the start of a stream is remembered with its key and
    label, before any document passes, and a second one is refused unless the operator asks for it.

    Args:
        windows: W, the most windows that one user may be in.
        randomness: where the key is; users are named by keyed digests.
        form: where the user and the text are in a document; documents must have users.
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
        start: str = "new",
        offline: bool = False,
    ) -> None:
        super().__init__()
        self._most, self._randomness, self._form = windows, randomness, check_form(form)
        self._known, self._offline = check_choice("start", start, STREAM_STARTS) != "new", offline

    def expand(self, documents: beam.PCollection[Any]) -> beam.PCollection[Any]:
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
        # The earliest time of a group holds the watermark: what leaves it at its own time is not late.
        named = (
            documents
            | "ByUser"
            >> beam.ParDo(_ByUserDoFn(windows, self._randomness, self._form, start))  # (user, (time, document))
            | "AllWindows" >> beam.WindowInto(GlobalWindows(), timestamp_combiner=TimestampCombiner.OUTPUT_AT_EARLIEST)
        )
        if documents.is_bounded:
            kept = named | "Users" >> beam.GroupByKey() | "Earliest" >> beam.ParDo(_EarliestDoFn(windows, self._most))
        else:
            kept = named | "FirstToArrive" >> beam.ParDo(_AdmitDoFn(windows, self._most))
        return kept | "SameWindows" >> beam.WindowInto(windows)


def admit(known: frozenset[int], wanted: Iterable[int], most: int) -> frozenset[int] | None:
    """The windows of a user with those of one more document; None if they would be more than `most`."""
    both = known.union(wanted)
    return both if len(both) <= most else None


def earliest(documents: Iterable[frozenset[int]], most: int) -> frozenset[int]:
    """The windows of a user whose documents are admitted in the order of time: the same for any order of reading."""
    known: frozenset[int] = frozenset()
    for wanted in sorted(set(documents), key=sorted):
        known = admit(known, wanted, most) or known
    return known


def _ends(windows: WindowFn, micros: int) -> frozenset[int]:
    """The windows of a time, named by where they end."""
    context = WindowFn.AssignContext(Timestamp(micros=micros))
    return frozenset(window.end.micros for window in windows.assign(context))


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


class _ByUserDoFn(KeyedDoFn):
    """Keys a document by a keyed digest of its user: keys may be shown on a runner's pages."""

    def __init__(
        self, windows: WindowFn, randomness: Randomness, form: DocumentForm, start: _Start | None = None
    ) -> None:
        super().__init__(randomness)
        self._windows, self._form, self._start = windows, form, start
        self._bad = Metrics.counter("dpngram", "bad_documents")

    def setup(self) -> None:
        super().setup()
        if self._start is not None:  # no document passes before the start is remembered
            self._source.start_stream(self._start.name, known=self._start.known)

    def process(
        self, document: Any, timestamp: Any = beam.DoFn.TimestampParam, window: Any = beam.DoFn.WindowParam
    ) -> Iterator[tuple[bytes, tuple[int, tuple[bytes, Any]]]]:
        if isinstance(document, DocumentBlock):
            raise TypeError(Message.BLOCKS_IN_WINDOWS.format())
        # Beam shows a document once for each of its sliding windows; one copy is enough.
        if window.end.micros == min(_ends(self._windows, timestamp.micros), default=None):
            try:
                user, text = self._form.read(document)
                text = plain_text(text)  # between workers, a coder would fail the run over what it cannot take
            except UNUSABLE:
                self._bad.inc()
            else:
                # Round down to milliseconds here. Beam's coder would truncate anyway, and truncates negative times
                # *upwards*, which could move a document into the next window.
                yield self._source.name("bounded user", user), (timestamp.micros // 1000 * 1000, (user, text))


class _EarliestDoFn(beam.DoFn):
    def __init__(self, windows: WindowFn, most: int) -> None:
        self._windows, self._most = windows, most

    def process(self, user: tuple[bytes, Iterable[tuple[int, Any]]]) -> Iterator[Any]:  # at their time
        kept = earliest((_ends(self._windows, micros) for micros, _ in user[1]), self._most)
        for micros, document in user[1]:
            if _ends(self._windows, micros) <= kept:
                yield TimestampedValue(document, Timestamp(micros=micros))


class _AdmitDoFn(beam.DoFn):
    KNOWN = ReadModifyWriteStateSpec("windows", beam.coders.BytesCoder())

    def __init__(self, windows: WindowFn, most: int) -> None:
        self._windows, self._most = windows, most

    def process(
        self,
        keyed: tuple[bytes, tuple[int, Any]],
        state: Any = beam.DoFn.StateParam(KNOWN),  # noqa: B008 (Beam's way to ask for it)
    ) -> Iterator[Any]:
        micros, document = keyed[1]
        known = frozenset(np.frombuffer(state.read() or b"", np.int64).tolist())
        admitted = admit(known, _ends(self._windows, micros), self._most)
        if admitted is not None:
            if admitted != known:
                state.write(np.array(sorted(admitted), np.int64).tobytes())
            yield TimestampedValue(document, Timestamp(micros=micros))  # as it was admitted

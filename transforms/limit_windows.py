"""A bound on the number of windows that one user is in."""

from collections.abc import Iterable, Iterator
from typing import Any

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
from dpngram.transforms.blocks.documents import DocumentBlock
from dpngram.transforms.document_form import UNUSABLE, DocumentForm, check_form
from dpngram.transforms.keyed_dofn import KeyedDoFn
from dpngram.transforms.messages import Message
from dpngram.transforms.randomness.noise_key import Randomness
from dpngram.transforms.windowing import producers

__all__ = ["LimitWindowsPerUser", "admit", "earliest"]


class LimitWindowsPerUser(beam.PTransform):
    """Documents in fixed or sliding windows -> the same windows, with each user in at most `windows` of them.

    State in Beam is per key and window, so a counter inside the windows would see one window only. The documents
    go back to the global window, keyed by user; each is kept whole or left out whole, together with all the windows
    that its time falls into; and what is kept goes into the windows again by its time.

    Bounded input: a user's earliest windows, whatever the order of reading. Unbounded: the first windows to arrive.

    Privacy: whether a document of a user is kept depends on documents of this user alone, so that adding or
    removing the user changes nothing for others; and the user is then in at most W releases, for which a plan with
    `windows=W` is calibrated (docs/privacy.md, Windows). The windows that a user is in are kept for as long as
    the job lives: for unbounded input that is 8 bytes a window and user.

    Args:
        windows: W, the most windows that one user may be in.
        randomness: where the key is; users are named by keyed digests.
        form: where the user and the text are in a document; documents must have users.
    """

    def __init__(self, windows: int, randomness: Randomness, form: DocumentForm) -> None:
        super().__init__()
        self._most, self._randomness, self._form = windows, randomness, check_form(form)

    def expand(self, documents: beam.PCollection[Any]) -> beam.PCollection[Any]:
        windows = documents.windowing.windowfn
        if isinstance(windows, SlidingWindows) and _grouped(documents, windows):
            raise ParameterError(
                "sliding windows must come straight from WindowInto: after a GroupByKey an element's time is the end "
                "of its window, which belongs to other windows as well."
            )
        # The earliest time of a group holds the watermark: what leaves it at its own time is not late.
        named = (
            documents
            | "ByUser" >> beam.ParDo(_ByUserDoFn(windows, self._randomness, self._form))  # (user, (time, document))
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


class _ByUserDoFn(KeyedDoFn):
    """Keys a document by a keyed digest of its user: keys may be shown on a runner's pages."""

    def __init__(self, windows: WindowFn, randomness: Randomness, form: DocumentForm) -> None:
        super().__init__(randomness)
        self._windows, self._form = windows, form
        self._bad = Metrics.counter("dpngram", "bad_documents")

    def process(
        self, document: Any, timestamp: Any = beam.DoFn.TimestampParam, window: Any = beam.DoFn.WindowParam
    ) -> Iterator[tuple[bytes, tuple[int, tuple[bytes, Any]]]]:
        if isinstance(document, DocumentBlock):
            raise TypeError(Message.BLOCKS_IN_WINDOWS.format())
        # Beam shows a document once for each of its sliding windows; one copy is enough.
        if window.end.micros == min(_ends(self._windows, timestamp.micros), default=None):
            try:
                user, text = self._form.read(document)
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

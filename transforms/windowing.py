"""Windows: one window, one release. Which windowing is accepted, and the name of a window in key derivation."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.transforms.trigger import AfterWatermark, DefaultTrigger
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindow,
    GlobalWindows,
    IntervalWindow,
    SlidingWindows,
    WindowFn,
)

from dpngram.accounting import ParameterError
from dpngram.accounting.parameters import check_number

__all__ = ["check_delay", "check_windowing", "window_name", "windows_per_document"]

# Seen on FnApiRunner, which the others may choose: windows come out when the stream ends, and levels went missing
# without an error. TestStream is run by another.
_NOT_FOR_STREAMS = ("FnApiRunner", "DirectRunner", "SwitchingDirectRunner")


def window_name(window: Any, delay: int = 0) -> bytes:
    """The bytes that stand for a window in key derivation: its bounds, as they are without a delay of milliseconds.

    A stream waits for late messages in windows that are shifted by a delay. The noise belongs to the hour in which
    messages were written, whatever the delay: a batch over the same messages has the same.

    >>> window_name(IntervalWindow(60, 120)), window_name(IntervalWindow(65, 125), delay=5000)
    (b'60000000:120000000', b'60000000:120000000')
    """
    if isinstance(window, GlobalWindow):
        return b"global"
    if isinstance(window, IntervalWindow):
        return f"{window.start.micros - 1000 * delay}:{window.end.micros - 1000 * delay}".encode()
    raise TypeError(f"windows must be global, fixed or sliding, got {type(window).__name__}.")


def check_delay(seconds: float) -> int:
    """A delay of windows in milliseconds.

    >>> check_delay(2.5)
    2500
    """
    milliseconds = 1000 * check_number("window_delay", seconds, 0.0, 1e9)
    if abs(milliseconds - round(milliseconds)) > 1e-6:
        raise ParameterError(f"window_delay must be whole milliseconds, got {seconds:g} s.")
    return round(milliseconds)


def check_windowing(documents: beam.PCollection[Any]) -> None:
    """Refuses, when the graph is built, windowing under which a window could be released twice.

    Privacy: a second firing is a second release that nothing has paid for, and the bounds of session or custom
    windows come from the data, so the existence of a window would reveal something about them.
    """
    windowing = documents.windowing
    windows = windowing.windowfn
    if type(windows) not in (GlobalWindows, FixedWindows, SlidingWindows):
        raise ParameterError(
            f"windows must be global, fixed or sliding, got {type(windows).__name__}: the bounds of others come from "
            "the data. Apply beam.WindowInto(FixedWindows(...)) first."
        )
    bounds = [getattr(windows, name).micros for name in ("size", "period", "offset") if hasattr(windows, name)]
    if any(bound % 1000 for bound in bounds):
        raise ParameterError("windows must begin and end at whole milliseconds: runners carry no finer times.")
    trigger = windowing.triggerfn
    once = isinstance(trigger, DefaultTrigger) or (
        type(trigger) is AfterWatermark and trigger.early is None and trigger.late is None
    )
    if not once:
        raise ParameterError(
            f"trigger must be the default one, got {type(trigger).__name__}: each window may be released only once."
        )
    if windowing.allowed_lateness != 0:
        raise ParameterError("allowed_lateness must be 0: a late post would release its window a second time.")
    if isinstance(windows, GlobalWindows) and not documents.is_bounded:
        raise ParameterError(
            "unbounded input must be in windows: the global window never closes. "
            "Apply beam.WindowInto(FixedWindows(...)) first."
        )
    runner = type(documents.pipeline.runner).__name__
    tested = any(type(made_by.transform).__name__ == "TestStream" for made_by in producers(documents))
    if not documents.is_bounded and not tested and runner in _NOT_FOR_STREAMS:
        raise ParameterError(
            f"runner must be one for streams (PrismRunner, Flink, Dataflow), got {runner}: it does not wait for the "
            "side inputs of unbounded input."
        )


def windows_per_document(windows: WindowFn) -> int:
    """How many windows a document falls into, at most."""
    if isinstance(windows, SlidingWindows):
        return int(-(-windows.size.micros // windows.period.micros))
    return 1


def producers(documents: beam.PCollection[Any]) -> Iterator[Any]:
    """The applied transforms that the documents come from, those before WindowInto included."""
    waiting, seen = [documents], set()
    while waiting:
        producer = waiting.pop().producer
        if producer is not None and id(producer) not in seen:
            seen.add(id(producer))
            yield producer
            waiting += producer.inputs

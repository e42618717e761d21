"""Windows: one window, one release, one family of noise."""

from typing import Any

import apache_beam as beam
from apache_beam.transforms.trigger import AfterWatermark, DefaultTrigger
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindow,
    GlobalWindows,
    IntervalWindow,
    SlidingWindows,
)

from dpngram.accounting import ParameterError

__all__ = ["check_windowing", "window_name"]


def window_name(window: Any) -> bytes:
    """The bytes that stand for a window in key derivation."""
    if isinstance(window, GlobalWindow):
        return b"global"
    if isinstance(window, IntervalWindow):
        return f"{window.start.micros}:{window.end.micros}".encode()
    raise TypeError(f"windows must be global, fixed or sliding, got {type(window).__name__}.")


def check_windowing(documents: beam.PCollection[Any]) -> None:
    """Refuses, when the graph is built, windowing under which a window could be released twice.

    Privacy: a second firing is a second release that nothing has paid for, and the bounds of session or custom
    windows come from the data, so their existence would tell of it.
    """
    windowing = documents.windowing
    windows = windowing.windowfn
    if type(windows) not in (GlobalWindows, FixedWindows, SlidingWindows):
        raise ParameterError(
            f"windows must be global, fixed or sliding, got {type(windows).__name__}: the bounds of others come from "
            "the data. Apply beam.WindowInto(FixedWindows(...)) first."
        )
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

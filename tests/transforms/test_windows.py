"""Windowing under which a window could be released twice is refused when the graph is built."""

import apache_beam as beam
import pytest
from apache_beam.testing import test_stream
from apache_beam.transforms.trigger import (
    AccumulationMode,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    DefaultTrigger,
    Repeatedly,
)
from apache_beam.transforms.window import FixedWindows, GlobalWindows, Sessions, SlidingWindows

from dpngram.accounting import ParameterError, plan_extraction
from dpngram.transforms import ExtractNgrams

PLAN = plan_extraction(epsilon=1, delta=1e-6, max_n=2, max_contributions=5)
DISCARD = {"accumulation_mode": AccumulationMode.DISCARDING}


@pytest.mark.parametrize(
    ("window", "message"),
    [
        (beam.WindowInto(Sessions(10)), "windows must be global, fixed or sliding, got Sessions"),
        (beam.WindowInto(FixedWindows(10), allowed_lateness=5), "allowed_lateness must be 0"),
        (beam.WindowInto(FixedWindows(10), trigger=Repeatedly(AfterCount(3)), **DISCARD), "trigger must be"),
        (beam.WindowInto(FixedWindows(10), trigger=AfterWatermark(early=AfterCount(1)), **DISCARD), "trigger must be"),
        (beam.WindowInto(FixedWindows(10), trigger=AfterWatermark(late=AfterCount(1)), **DISCARD), "trigger must be"),
        (beam.WindowInto(GlobalWindows(), trigger=AfterProcessingTime(1), **DISCARD), "trigger must be"),
    ],
)
def test_refused(window, message):
    documents = beam.Pipeline() | beam.Create([("u", "a")]) | window
    with pytest.raises(ParameterError, match=message):
        documents | ExtractNgrams(PLAN)


def test_an_unbounded_input_needs_windows():
    documents = beam.Pipeline() | test_stream.TestStream()
    with pytest.raises(ParameterError, match="unbounded input must be in windows"):
        documents | ExtractNgrams(PLAN)
    documents | beam.WindowInto(FixedWindows(10)) | "InWindows" >> ExtractNgrams(PLAN)


@pytest.mark.parametrize(
    "window",
    [
        beam.WindowInto(FixedWindows(10)),
        beam.WindowInto(SlidingWindows(10, 5)),
        beam.WindowInto(FixedWindows(10), trigger=DefaultTrigger(), **DISCARD),
        beam.WindowInto(FixedWindows(10), trigger=AfterWatermark(), **DISCARD),
    ],
)
def test_accepted(window):
    (beam.Pipeline() | beam.Create([("u", "a")]) | window) | ExtractNgrams(PLAN)

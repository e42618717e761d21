"""Windowing under which a window could be released twice is refused when the graph is built."""

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing import test_stream
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.trigger import (
    AccumulationMode,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    DefaultTrigger,
    Repeatedly,
)
from apache_beam.transforms.window import FixedWindows, GlobalWindows, Sessions, SlidingWindows
from helpers.streams import HELD_BY_THREE, everybody, stream_of

from dpngram.accounting import ParameterError, plan_extraction
from dpngram.transforms import ExtractNgrams

PLAN = plan_extraction(epsilon=1, delta=1e-6, max_n=2, max_contributions=5, windows=2)
DISCARD = {"accumulation_mode": AccumulationMode.DISCARDING}


@pytest.mark.parametrize(
    ("window", "message"),
    [
        (beam.WindowInto(Sessions(10)), "windows must be global, fixed or sliding, got Sessions"),
        (beam.WindowInto(FixedWindows(1.0005)), "windows must begin and end at whole milliseconds"),
        (beam.WindowInto(FixedWindows(1, 0.0005)), "windows must begin and end at whole milliseconds"),
        (beam.WindowInto(SlidingWindows(1, 0.0005)), "windows must begin and end at whole milliseconds"),
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


REFUSED = {
    "windows must be global, fixed or sliding, got Sessions": (Sessions(10), {}),
    "unbounded input must be in windows": (GlobalWindows(), {}),
    "allowed_lateness must be 0": (FixedWindows(10), {"allowed_lateness": 1}),
    "trigger must be": (FixedWindows(10), {"trigger": AfterWatermark(early=AfterCount(1)), **DISCARD}),
    "trigger must be the": (FixedWindows(10), {"trigger": AfterWatermark(late=AfterCount(1)), **DISCARD}),
    "trigger must be .* got Repeatedly": (FixedWindows(10), {"trigger": Repeatedly(AfterCount(2)), **DISCARD}),
    "trigger must be .* got AfterCount": (SlidingWindows(10, 5), {"trigger": AfterCount(2), **DISCARD}),
    "allowed_lateness must be 0: a": (SlidingWindows(10, 5), {"allowed_lateness": 5, **DISCARD}),
}


@pytest.mark.filterwarnings("ignore:AfterCount:UserWarning")
@pytest.mark.parametrize("message", REFUSED)
def test_refused_when_the_graph_is_built(message):
    window, more = REFUSED[message]
    options = PipelineOptions(streaming=True, allow_unsafe_triggers=True)
    documents = beam.Pipeline(options=options) | stream_of(*everybody(1, "a b")) | beam.WindowInto(window, **more)
    with pytest.raises(ParameterError, match=message):
        documents | ExtractNgrams(HELD_BY_THREE)


def test_a_local_stream_is_refused():
    """Beam's local runner would not wait for side inputs; which one the default would choose is not known yet."""
    for runner in ("DirectRunner", FnApiRunner()):
        documents = beam.Pipeline(runner=runner) | PeriodicImpulse() | beam.WindowInto(FixedWindows(10))
        with pytest.raises(ParameterError, match="runner must be one for streams"):
            documents | ExtractNgrams(HELD_BY_THREE)

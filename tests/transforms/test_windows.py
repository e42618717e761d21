"""Windowing under which a window could be released twice is refused when the graph is built."""

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing import test_stream
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.trigger import (
    AccumulationMode,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    DefaultTrigger,
    Repeatedly,
)
from apache_beam.transforms.window import FixedWindows, GlobalWindows, Sessions, SlidingWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from dpngram.accounting import ParameterError, plan_extraction
from dpngram.transforms import ExtractNgrams
from dpngram.transforms.limit_windows import _AdmitDoFn, _ByUserDoFn
from dpngram.transforms.randomness.noise_key import KeyReference, Randomness

PLAN = plan_extraction(epsilon=1, delta=1e-6, max_n=2, max_contributions=5)
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


class _Seen(beam.DoFn):
    def process(self, document, window=beam.DoFn.WindowParam):
        yield document[1], window.start.micros


def test_times_that_a_coder_cuts(tmp_path):
    """Runners carry milliseconds, cut towards 1970: half a millisecond before it would be in the window after.

    Between admission and the steps around it stands a coder here, as on engines: a side input ends the stage before.
    """
    windows = FixedWindows(1)
    key = KeyReference("file", str(tmp_path / "key"))
    key.create_if_missing()
    fields = {"user_field": "user", "text_field": "text", "user_per_document": False}
    moments = {-2_000_400: "a", -500: "b", 999_999: "c", 1_000_000: "d"}
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        named = (
            pipeline
            | beam.Create(list(moments.items()))
            | beam.Map(lambda item: TimestampedValue(("alice", item[1]), Timestamp(micros=item[0])))
            | beam.WindowInto(windows)
            | "ByUser" >> beam.ParDo(_ByUserDoFn(windows, Randomness(key, "", "x", "s"), fields))
            | "AllWindows" >> beam.WindowInto(GlobalWindows())
        )
        number = named | beam.combiners.Count.Globally()
        kept = (
            named
            | "Border" >> beam.Map(lambda named, _: named, beam.pvalue.AsSingleton(number))
            | beam.ParDo(_AdmitDoFn(windows, 4))
            | "Again" >> beam.WindowInto(windows)
            | beam.ParDo(_Seen())
        )
        expected = [("a", -3_000_000), ("b", -1_000_000), ("c", 0), ("d", 1_000_000)]
        assert_that(kept, equal_to(expected))

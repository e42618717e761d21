"""Streams: one release per window, whatever arrives when."""

import collections
import functools

import apache_beam as beam
import pytest
from apache_beam.testing import test_stream
from apache_beam.transforms.trigger import AccumulationMode, AfterWatermark, DefaultTrigger
from apache_beam.transforms.window import FixedWindows, SlidingWindows, TimestampedValue
from helpers.streams import USERS, everybody, grams, release_of, stream_of, tolerate_empty_bundles


@pytest.fixture(autouse=True)
def _empty_bundles(monkeypatch):
    tolerate_empty_bundles(monkeypatch)


# Here users are in as many windows as they like; test_limit_windows.py bounds them.
released = functools.partial(release_of, bound_windows=False)

WINDOWS = {
    "fixed": FixedWindows(10),
    "fixed with offset": FixedWindows(10, offset=3),
    "fixed, long": FixedWindows(100),
    "sliding": SlidingWindows(20, 10),
    "sliding with offset": SlidingWindows(20, 10, offset=2),
    "sliding, dense": SlidingWindows(12, 3),
}
TRIGGERS = {
    "default": {},
    "default, said": {"trigger": DefaultTrigger(), "accumulation_mode": AccumulationMode.DISCARDING},
    "watermark": {"trigger": AfterWatermark(), "accumulation_mode": AccumulationMode.DISCARDING},
    "watermark, accumulating": {"trigger": AfterWatermark(), "accumulation_mode": AccumulationMode.ACCUMULATING},
}


# Every kind of window and every trigger once; all twenty-four mixes in a campaign.
MIXES = [
    pytest.param(kind, trigger, marks=() if trigger == "default" or kind == "sliding" else pytest.mark.campaign)
    for kind in WINDOWS
    for trigger in TRIGGERS
]


@pytest.mark.parametrize(("windows", "trigger"), MIXES)
def test_one_release_per_window(windows, trigger):
    """Expected is worked out from the windows' own arithmetic: each post in each of its windows."""
    posts = [*everybody(5, "a b"), *everybody(14, "c d"), *everybody(38, "a b"), (38, "u0", "x y")]
    texts = collections.defaultdict(set)
    for time, _, text in posts:
        context = beam.transforms.window.WindowFn.AssignContext(beam.utils.timestamp.Timestamp(time))
        for window in WINDOWS[windows].assign(context):
            texts[int(window.start), int(window.end)].update({text} - {"x y"})
    expected = {}
    for window, found in texts.items():
        expected[window] = sorted({gram for text in found for gram in grams(text)})
    assert released(stream_of(*posts), beam.WindowInto(WINDOWS[windows], **TRIGGERS[trigger])) == expected


def test_what_comes_late_is_dropped():
    stream = (
        test_stream.TestStream()
        .advance_watermark_to(0)
        .add_elements([TimestampedValue((user, "a b"), 5) for user in USERS])
        .advance_watermark_to(30)
        .add_elements([TimestampedValue((user, "c d"), 6) for user in USERS])  # its window is over
        .add_elements([TimestampedValue((user, "e f"), 31) for user in USERS])
        .advance_watermark_to_infinity()
    )
    expected = {(0, 10): grams("a b"), (30, 40): grams("e f")}
    assert released(stream, beam.WindowInto(FixedWindows(10))) == expected


def test_a_window_without_a_release_leaves_no_trace():
    posts = [(5, "u0", "a b"), *everybody(15, "c d")]
    assert released(stream_of(*posts), beam.WindowInto(FixedWindows(10))) == {(10, 20): grams("c d")}


def test_each_window_prunes_with_its_own_tokens():
    """'a b' is a bigram of both windows; only in one of them are its words released."""
    posts = [*everybody(5, "a b"), *everybody(15, "a c"), (15, "u0", "a b"), (15, "u1", "a b")]
    expected = {(0, 10): grams("a b"), (10, 20): grams("a c")}
    assert released(stream_of(*posts), beam.WindowInto(FixedWindows(10))) == expected

"""Streams: one release per window, whatever arrives when; and each user in at most W windows."""

import ast
import collections
import itertools
import os
import tempfile

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing import test_pipeline, test_stream
from apache_beam.transforms import sideinputs
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, AfterWatermark, DefaultTrigger, Repeatedly
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindows,
    IntervalWindow,
    Sessions,
    SlidingWindows,
    TimestampedValue,
)
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp

from dpngram.accounting import ParameterError
from dpngram.transforms import ExtractNgrams
from dpngram.transforms.limit_windows import _ByUserDoFn, admit, earliest
from dpngram.transforms.testing import exact_plan, key_source

USERS = [f"u{number}" for number in range(4)]
HELD_BY_THREE = exact_plan(max_n=2, threshold=1.2)  # a user gives each of six words 0.41, of two words 0.71


@pytest.fixture(autouse=True)
def _empty_bundles(monkeypatch):
    """Beam's runner for TestStream asks a bundle without elements for its window, and hangs on the answer."""
    make = sideinputs.default_window_mapping_fn

    def tolerant(windows):
        mapping = make(windows)
        before_all = IntervalWindow(MIN_TIMESTAMP, MIN_TIMESTAMP)
        return lambda window: before_all if window is None else mapping(window)

    monkeypatch.setattr(sideinputs, "default_window_mapping_fn", tolerant)


class _NoteRows(beam.DoFn):
    """Writes each row and its window into a file: this runner hangs when a check inside of the graph fails."""

    def __init__(self, path):
        self._path = path

    def process(self, row, window=beam.DoFn.WindowParam):
        span = window.start.micros // 10**6, window.end.micros // 10**6
        with open(self._path, "a") as file:
            file.write(repr((span, (row.n, tuple(row.tokens)))) + "\n")


def _stream(*posts, until=1000):
    """All posts of one time together, the watermark following behind; what comes late comes last."""
    stream = test_stream.TestStream().advance_watermark_to(0)
    for time, group in itertools.groupby(sorted(posts), key=lambda post: post[0]):
        stream.advance_watermark_to(time).add_elements(
            [TimestampedValue((user, text), time) for _, user, text in group]
        )
    return stream.advance_watermark_to(until).advance_watermark_to_infinity()


def _release(source, window, plan=HELD_BY_THREE, **options):
    """{window: its grams}, from a whole run."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "rows")
        with test_pipeline.TestPipeline(options=PipelineOptions(streaming=True)) as pipeline:
            rows = pipeline | source | window | ExtractNgrams(plan, shards=2, **options)
            rows | "Note" >> beam.ParDo(_NoteRows(path))
        found = collections.defaultdict(list)
        if os.path.exists(path):
            with open(path) as file:
                for line in file:
                    span, gram = ast.literal_eval(line)
                    found[span].append(gram)
    return {span: sorted(found) for span, found in found.items()}


def everybody(time, text):
    return [(time, user, text) for user in USERS]


def grams(text):
    words = text.split()
    return sorted([(1, (word,)) for word in set(words)] + [(2, pair) for pair in set(itertools.pairwise(words))])


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


@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("windows", WINDOWS)
def test_one_release_per_window(windows, trigger):
    """Twenty-four mixes. Expected is worked out from the windows' own arithmetic: each post in each of its windows."""
    posts = [*everybody(5, "a b"), *everybody(14, "c d"), *everybody(38, "a b"), (38, "u0", "x y")]
    texts = collections.defaultdict(set)
    for time, _, text in posts:
        context = beam.transforms.window.WindowFn.AssignContext(beam.utils.timestamp.Timestamp(time))
        for window in WINDOWS[windows].assign(context):
            texts[int(window.start), int(window.end)].update({text} - {"x y"})
    expected = {}
    for window, found in texts.items():
        expected[window] = sorted({gram for text in found for gram in grams(text)})
    assert _release(_stream(*posts), beam.WindowInto(WINDOWS[windows], **TRIGGERS[trigger])) == expected


DISCARDING = {"accumulation_mode": AccumulationMode.DISCARDING}
REFUSED = {
    "windows must be global, fixed or sliding, got Sessions": (Sessions(10), {}),
    "unbounded input must be in windows": (GlobalWindows(), {}),
    "allowed_lateness must be 0": (FixedWindows(10), {"allowed_lateness": 1}),
    "trigger must be": (FixedWindows(10), {"trigger": AfterWatermark(early=AfterCount(1)), **DISCARDING}),
    "trigger must be the": (FixedWindows(10), {"trigger": AfterWatermark(late=AfterCount(1)), **DISCARDING}),
    "trigger must be .* got Repeatedly": (FixedWindows(10), {"trigger": Repeatedly(AfterCount(2)), **DISCARDING}),
    "trigger must be .* got AfterCount": (SlidingWindows(10, 5), {"trigger": AfterCount(2), **DISCARDING}),
    "allowed_lateness must be 0: a": (SlidingWindows(10, 5), {"allowed_lateness": 5, **DISCARDING}),
}


@pytest.mark.filterwarnings("ignore:AfterCount:UserWarning")
@pytest.mark.parametrize("message", REFUSED)
def test_refused_when_the_graph_is_built(message):
    window, more = REFUSED[message]
    options = PipelineOptions(streaming=True, allow_unsafe_triggers=True)
    documents = beam.Pipeline(options=options) | _stream(*everybody(1, "a b")) | beam.WindowInto(window, **more)
    with pytest.raises(ParameterError, match=message):
        documents | ExtractNgrams(HELD_BY_THREE)


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
    assert _release(stream, beam.WindowInto(FixedWindows(10))) == expected


def test_a_window_without_a_release_leaves_no_trace():
    posts = [(5, "u0", "a b"), *everybody(15, "c d")]
    assert _release(_stream(*posts), beam.WindowInto(FixedWindows(10))) == {(10, 20): grams("c d")}


def test_each_window_prunes_with_its_own_tokens():
    """'a b' is a bigram of both windows; only in one of them are its words released."""
    posts = [*everybody(5, "a b"), *everybody(15, "a c"), (15, "u0", "a b"), (15, "u1", "a b")]
    expected = {(0, 10): grams("a b"), (10, 20): grams("a c")}
    assert _release(_stream(*posts), beam.WindowInto(FixedWindows(10))) == expected


def _bounded_source(posts):
    return beam.Create(posts) | beam.Map(lambda post: TimestampedValue(post[1:], post[0]))


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("most", [2, 3])
def test_a_user_in_ten_times_as_many_windows(bounded, most):
    """Everybody says the same in 10 W windows: only W windows can have anything to release."""
    posts = [post for time in range(10 * most) for post in everybody(10 * time + 1, "a b")]
    source = _bounded_source(posts[::-1]) if bounded else _stream(*posts)
    expected = {(10 * time, 10 * time + 10): grams("a b") for time in range(most)}
    plan = exact_plan(max_n=2, threshold=2.0, windows=most)
    assert _release(source, beam.WindowInto(FixedWindows(10)), plan) == expected


@pytest.mark.parametrize("bounded", [True, False])
def test_sliding_windows_count_each_window_of_a_post(bounded):
    """A post at 25 is in [10, 30) and [20, 40). Two posts ten seconds apart are in three; with W = 3 that is all."""
    posts = [post for time in (25, 35, 45, 55, 65) for post in everybody(time, "a b")]
    source = _bounded_source(posts[::-1]) if bounded else _stream(*posts)
    expected = {(start, start + 20): grams("a b") for start in (10, 20, 30)}
    plan = exact_plan(max_n=2, threshold=2.0, windows=3)
    assert _release(source, beam.WindowInto(SlidingWindows(20, 10)), plan) == expected


def test_one_user_beyond_the_bound_does_not_touch_the_others():
    """u0 is in six windows, the others in the last of them. Four users give a word 2.8, three 2.1."""
    often = [(10 * time + 1, "u0", "a b") for time in range(6)]
    others = [post for post in everybody(51, "a b") if post[1] != "u0"]
    last = {(50, 60): grams("a b")}
    for windows, threshold, expected in [(2, 2.0, last), (2, 2.5, {}), (6, 2.5, last)]:
        plan = exact_plan(max_n=2, threshold=threshold, windows=windows)
        assert _release(_stream(*often, *others), beam.WindowInto(FixedWindows(10)), plan) == expected


def test_without_a_bound_every_window_counts():
    posts = [post for time in range(4) for post in everybody(10 * time + 1, "a b")]
    expected = {(10 * time, 10 * time + 10): grams("a b") for time in range(4)}
    assert _release(_stream(*posts), beam.WindowInto(FixedWindows(10))) == expected
    bounded = _release(_stream(*posts), beam.WindowInto(FixedWindows(10)), bound_windows=True)
    assert bounded == {(0, 10): grams("a b")}


def test_the_bound_cannot_be_less_than_the_windows_of_one_post():
    documents = beam.Pipeline() | beam.Create([("u", "a")]) | beam.WindowInto(SlidingWindows(40, 10))
    with pytest.raises(ParameterError, match="windows must be at least 4 in the plan, got 3"):
        documents | ExtractNgrams(exact_plan(max_n=1, threshold=1.0, windows=3))


def test_sliding_windows_after_a_grouping_are_refused():
    """Their elements have the time of the window's end, which lies in other windows, too."""
    documents = (
        beam.Pipeline()
        | beam.Create([("u", "a")])
        | beam.WindowInto(SlidingWindows(20, 10))
        | beam.GroupByKey()
        | beam.MapTuple(lambda user, texts: (user, " ".join(texts)))
    )
    plan = exact_plan(max_n=1, threshold=1.0, windows=3)
    with pytest.raises(ParameterError, match="sliding windows must come straight from WindowInto"):
        documents | ExtractNgrams(plan)
    documents | "InFixed" >> beam.WindowInto(FixedWindows(10)) | "Fixed" >> ExtractNgrams(plan)


def test_a_local_stream_is_refused():
    """Beam's local runner would not wait for side inputs; which one the default would choose is not known yet."""
    for runner in ("DirectRunner", FnApiRunner()):
        documents = beam.Pipeline(runner=runner) | PeriodicImpulse() | beam.WindowInto(FixedWindows(10))
        with pytest.raises(ParameterError, match="runner must be one for streams"):
            documents | ExtractNgrams(HELD_BY_THREE)


def test_admission():
    assert admit(frozenset({1, 2}), [2], 2) == {1, 2}
    assert admit(frozenset({1, 2}), [3], 2) is None
    assert admit(frozenset({1}), [2, 3], 3) == {1, 2, 3}
    documents = [frozenset({5, 6}), frozenset({1, 2}), frozenset({2, 3}), frozenset({8, 9})]
    for order in itertools.permutations(documents):
        assert earliest(order, 3) == {1, 2, 3}
        assert earliest(order, 4) == {1, 2, 3}  # two more windows at a time, or none
        assert earliest(order, 5) == {1, 2, 3, 5, 6}


def test_keys_of_the_bound_name_nobody(monkeypatch):
    """Users are grouped over all windows by a keyed name, never by their id: runners show keys."""
    monkeypatch.setenv("unused", "ab" * 32)
    fields = {"user_field": "user", "text_field": "text", "user_per_document": False}
    step = _ByUserDoFn(FixedWindows(10), key_source(b"n" * 32).randomness, fields)
    step.setup()
    keys = []
    for time, user in ((5, "somebody"), (15, "somebody"), (5, "else"), (5, b"else")):
        window = IntervalWindow(time - 5, time + 5)
        ((key, (micros, document)),) = step.process((user, "a b"), Timestamp(time), window)
        assert (micros, document[1]) == (time * 10**6, "a b")
        keys.append(key)
    assert keys[0] == keys[1] != keys[2] == keys[3]
    assert all(len(key) == 16 and b"some" not in key and b"else" not in key for key in keys)

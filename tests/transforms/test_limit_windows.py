"""Each user in at most W windows, whatever comes when."""

import itertools

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows, GlobalWindows, IntervalWindow, SlidingWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp
from helpers.streams import USERS, everybody, grams, release_of, stream_of, tolerate_empty_bundles

from dpngram.accounting import ParameterError
from dpngram.transforms import ExtractNgrams
from dpngram.transforms.document_form import DocumentForm
from dpngram.transforms.limit_windows import _AdmitDoFn, _ByUserDoFn, _Start, admit, earliest
from dpngram.transforms.randomness.noise_key import KeyReference, NoiseKeyError, Randomness
from dpngram.transforms.testing import exact_plan, key_source


@pytest.fixture(autouse=True)
def _empty_bundles(monkeypatch):
    tolerate_empty_bundles(monkeypatch)


def _bounded_source(posts):
    return beam.Create(posts) | beam.Map(lambda post: TimestampedValue(post[1:], post[0]))


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("most", [2, 3])
def test_a_user_in_ten_times_as_many_windows(bounded, most):
    """Everybody says the same in 10 W windows: only W windows can have anything to release."""
    posts = [post for time in range(10 * most) for post in everybody(10 * time + 1, "a b")]
    source = _bounded_source(posts[::-1]) if bounded else stream_of(*posts)
    expected = {(10 * time, 10 * time + 10): grams("a b") for time in range(most)}
    plan = exact_plan(max_n=2, threshold=2.0, windows=most)
    assert release_of(source, beam.WindowInto(FixedWindows(10)), plan) == expected


@pytest.mark.parametrize("bounded", [True, False])
def test_sliding_windows_count_each_window_of_a_post(bounded):
    """A post at 25 is in [10, 30) and [20, 40). Two posts ten seconds apart are in three; with W = 3 that is all."""
    posts = [post for time in (25, 35, 45, 55, 65) for post in everybody(time, "a b")]
    source = _bounded_source(posts[::-1]) if bounded else stream_of(*posts)
    expected = {(start, start + 20): grams("a b") for start in (10, 20, 30)}
    plan = exact_plan(max_n=2, threshold=2.0, windows=3)
    assert release_of(source, beam.WindowInto(SlidingWindows(20, 10)), plan) == expected


def test_one_user_beyond_the_bound_does_not_touch_the_others():
    """u0 is in six windows, the others in the last of them. Four users give a word 2.8, three 2.1."""
    often = [(10 * time + 1, "u0", "a b") for time in range(6)]
    others = [post for post in everybody(51, "a b") if post[1] != "u0"]
    last = {(50, 60): grams("a b")}
    for windows, threshold, expected in [(2, 2.0, last), (2, 2.5, {}), (6, 2.5, last)]:
        plan = exact_plan(max_n=2, threshold=threshold, windows=windows)
        assert release_of(stream_of(*often, *others), beam.WindowInto(FixedWindows(10)), plan) == expected


def test_one_window_is_a_bound_too():
    """A plan of one window is for users in one window, by default; who wants no bound must say so, and is told."""
    posts = [post for time in range(4) for post in everybody(10 * time + 1, "a b")]
    windows = beam.WindowInto(FixedWindows(10))
    assert release_of(stream_of(*posts), windows) == {(0, 10): grams("a b")}
    expected = {(10 * time, 10 * time + 10): grams("a b") for time in range(4)}
    assert release_of(stream_of(*posts), beam.WindowInto(FixedWindows(10)), bound_windows=False) == expected
    plan = exact_plan(max_n=1, threshold=1.0)
    assert "all the data of one user changes" in ExtractNgrams(plan).guarantee()
    assert "all the data of one user in one window changes" in ExtractNgrams(plan, bound_windows=False).guarantee()


def test_what_a_coder_cannot_take_is_a_bad_document(monkeypatch):
    """One user's half of a surrogate pair is left out: the coder between workers would fail the run of all others.

    (In a graph the host's own collections come before; their coders are the host's.)
    """
    monkeypatch.setenv("unused", "ab" * 32)
    step = _ByUserDoFn(FixedWindows(10), key_source(b"n" * 32).randomness, DocumentForm())
    step.setup()
    coder = beam.coders.FastPrimitivesCoder()
    words = type("Words", (str,), {"__reduce__": None})  # a text that cannot be pickled, though it is a text
    good = [("u", "a b"), ("u", ["a", "b"]), ("u", ("a", "b")), ("u", words("a b")), (7, [words("a"), "b"])]
    bad = [("u", "a \ud800 b"), ("u", ["a", "\udfff"]), ("u", ["a", 3]), ("u", [iter("c")]), ("u", ["a", b"b"])]
    bad += [("u", ("a", None)), ("\ud800", "a b"), (None, "a b"), ("u", iter("ab")), ("u",), iter("ab")]
    found = [list(step.process(document, Timestamp(5), IntervalWindow(0, 10))) for document in good + bad]
    assert [len(made) for made in found] == [1] * len(good) + [0] * len(bad)
    assert [coder.decode(coder.encode(made))[1][1][1] for (made,) in found[: len(good)]] == [
        "a b",
        ["a", "b"],
        ["a", "b"],
        "a b",
        ["a", "b"],
    ]


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
    step = _ByUserDoFn(FixedWindows(10), key_source(b"n" * 32).randomness, DocumentForm())
    step.setup()
    keys = []
    for time, user in ((5, "somebody"), (15, "somebody"), (5, "else"), (5, b"else")):
        window = IntervalWindow(time - 5, time + 5)
        ((key, (micros, document)),) = step.process((user, "a b"), Timestamp(time), window)
        assert (micros, document[1]) == (time * 10**6, "a b")
        keys.append(key)
    assert keys[0] == keys[1] != keys[2] == keys[3]
    assert all(len(key) == 16 and b"some" not in key and b"else" not in key for key in keys)


def test_no_document_passes_before_a_stream_is_remembered(tmp_path):
    """A worker that sets up another start of the same stream stops there; bounded input has no start."""
    key = KeyReference("file", str(tmp_path / "key"))
    key.create_if_missing()

    def set_up(start):
        _ByUserDoFn(FixedWindows(5), Randomness(key, "", "x", "s"), DocumentForm(), start).setup()

    set_up(None)
    for _ in range(2):
        set_up(_Start("one", known=False))
    with pytest.raises(NoiseKeyError, match="a stream was started"):
        set_up(_Start("two", known=False))
    set_up(_Start("two", known=True))


def test_a_stream_remembers_its_start(tmp_path):
    """A whole run; the second is refused when its graph is built, before a document is read."""
    options = {"noise_key": str(tmp_path / "key"), "plan": exact_plan(max_n=1, threshold=1.2, windows=2)}
    stream = [(1, user, "a b") for user in USERS]
    first = release_of(stream_of(*stream), beam.WindowInto(FixedWindows(5)), **options)
    assert first
    with pytest.raises(NoiseKeyError, match="a stream was started"):
        release_of(stream_of(*stream), beam.WindowInto(FixedWindows(5)), **options)
    again = release_of(stream_of(*stream), beam.WindowInto(FixedWindows(5)), stream_start="again", **options)
    assert again == first


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
    moments = {-2_000_400: "a", -500: "b", 999_999: "c", 1_000_000: "d"}
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        named = (
            pipeline
            | beam.Create(list(moments.items()))
            | beam.Map(lambda item: TimestampedValue(("alice", item[1]), Timestamp(micros=item[0])))
            | beam.WindowInto(windows)
            | "ByUser" >> beam.ParDo(_ByUserDoFn(windows, Randomness(key, "", "x", "s"), DocumentForm()))
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

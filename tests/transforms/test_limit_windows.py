"""Each user in at most W windows, whatever comes when."""

import dataclasses
import itertools

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows, GlobalWindows, IntervalWindow, SlidingWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp
from helpers.streams import USERS, everybody, grams, release_of, stream_of, tolerate_empty_bundles

from dpngram.accounting import ParameterError
from dpngram.transforms import ExtractNgrams, limit_windows
from dpngram.transforms.admission import Windows
from dpngram.transforms.blocks.columns import binary_array
from dpngram.transforms.blocks.documents import DocumentBlock
from dpngram.transforms.document_form import DocumentForm
from dpngram.transforms.limit_windows import _AdmitDoFn, _in_windows, _ShardDoFn, _Start
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


def sharded(step, *elements):
    """What a bundle of (document, seconds) becomes: (shard, users, texts, milliseconds)."""
    step.start_bundle()
    made = []
    for document, seconds in elements:
        window = IntervalWindow(seconds // 10 * 10, seconds // 10 * 10 + 10)
        made += [one.value for one in step.process(document, Timestamp(seconds), window)]
    made += [one.value for one in step.finish_bundle()]
    return [(shard, block.users.to_pylist(), texts_of(block), block.times.tolist()) for shard, block in made]


def texts_of(block):
    strings = [string.decode() for string in binary_array(block.offsets, block.data).to_pylist()]
    bounds = block.token_bounds.tolist()
    return [strings[begin:end] for begin, end in itertools.pairwise(bounds)] if bounds else strings


def shard_step(monkeypatch, shards=1):
    monkeypatch.setenv("unused", "ab" * 32)
    step = _ShardDoFn(FixedWindows(10), key_source(b"n" * 32).randomness, DocumentForm(), shards)
    step.setup()
    return step


def test_what_a_coder_cannot_take_is_a_bad_document(monkeypatch):
    """One user's half of a surrogate pair is left out: the coder between workers would fail the run of all others.

    (In a graph the host's own collections come before; their coders are the host's.)
    """
    words = type("Words", (str,), {"__reduce__": None})  # a text that cannot be pickled, though it is a text
    good = [("u", "a b"), ("u", words("c d")), ("u", ["a", "b"]), ("u", ("c", "d")), (7, [words("e"), "f"])]
    bad = [("u", "a \ud800 b"), ("u", ["a", "\udfff"]), ("u", ["a", 3]), ("u", [iter("c")]), ("u", ["a", b"b"])]
    bad += [("u", ("a", None)), ("\ud800", "a b"), (None, "a b"), ("u", iter("ab")), ("u",), iter("ab")]
    found = sharded(shard_step(monkeypatch), *((document, 5) for document in [*bad, *good, *bad]))
    assert found == [
        (0, [b"u", b"u"], ["a b", "c d"], [5000] * 2),
        (0, [b"u", b"u", b"7"], [["a", "b"], ["c", "d"], ["e", "f"]], [5000] * 3),
    ]


def test_blocks_and_documents_alike(monkeypatch):
    """A block has the time of its element, or a time for each document; it is cut by user."""
    texts = pa.array(["a", "b", "c", "d", "e"])
    users = pa.array(["u", "v", "u", "w", "x"])
    block = DocumentBlock.from_texts(users, texts)
    dated = dataclasses.replace(block, times=np.arange(5) * 10_000)
    step = shard_step(monkeypatch, 3)
    single = [((user, text), 5) for user, text in zip(users.to_pylist(), texts.to_pylist(), strict=True)]
    assert sharded(step, (block, 5)) == sharded(step, *single)
    found = sharded(step, (dated, 5))
    assert [part[:3] for part in found] == [part[:3] for part in sharded(step, (block, 5))]
    times = {text: time for _, _, texts, times in found for text, time in zip(texts, times, strict=True)}
    assert times == {"a": 0, "b": 10_000, "c": 20_000, "d": 30_000, "e": 40_000}
    assert sharded(step, (DocumentBlock.from_bad_records([b"u"], 3), 5)) == []
    with pytest.raises(TypeError, match="documents must have users"):
        sharded(step, (DocumentBlock.from_texts(None, texts), 5))


def test_others_do_not_change_the_order_of_a_users_documents(monkeypatch):
    """Also if they are the first in their window, or with their kind of text: the order decides what is admitted."""
    mine = [(("u", "b"), 15), (("u", ["a"]), 5), (("u", "c"), 25), (("u", ["d"]), 15)]
    step = shard_step(monkeypatch)
    for others in ([], [(("v", "x"), 5)], [(("v", ["x"]), 25), (("w", "x"), 35)]):
        found = sharded(step, *others, *mine)
        texts = [text for _, users, texts, _ in found for user, text in zip(users, texts, strict=True) if user == b"u"]
        assert texts == ["b", ["a"], "c", ["d"]]
    block = DocumentBlock.from_texts(pa.array(["u"]), pa.array(["e"]))
    assert [texts for _, _, texts, _ in sharded(step, *mine[:1], (block, 5))] == [["b"], ["e"]]


def test_a_batch_has_an_end(monkeypatch):
    """Documents do not wait for the end of a bundle that never ends."""
    monkeypatch.setattr(limit_windows, "_BATCH_DOCUMENTS", 3)
    step = shard_step(monkeypatch)
    step.start_bundle()
    made = [len(list(step.process(("u", "a"), Timestamp(5), IntervalWindow(0, 10)))) for _ in range(7)]
    assert made == [0, 0, 1, 0, 0, 1, 0]
    assert len(list(step.finish_bundle())) == 1


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


def test_keys_of_the_bound_name_nobody(monkeypatch):
    """Users are grouped over all windows by the shard of a keyed name, never by their id: runners show keys."""
    step = shard_step(monkeypatch, 1 << 20)
    keys = [sharded(step, ((user, "a b"), 5))[0][0] for user in ("somebody", "somebody", "else", b"else")]
    assert keys[0] == keys[1] != keys[2] == keys[3]
    assert all(type(key) is int for key in keys)


def test_no_document_passes_before_a_stream_is_remembered(tmp_path):
    """A worker that sets up another start of the same stream stops there; bounded input has no start."""
    key = KeyReference("file", str(tmp_path / "key"))
    key.create_if_missing()

    def set_up(start):
        _ShardDoFn(FixedWindows(5), Randomness(key, "", "x", "s"), DocumentForm(), 2, start).setup()

    set_up(None)
    for _ in range(2):
        set_up(_Start("one", known=False))
    with pytest.raises(NoiseKeyError, match="a stream was started"):
        set_up(_Start("two", known=False))
    set_up(_Start("two", known=True))


def test_a_start_that_counts_something_else_is_refused(tmp_path):
    """A state that is restored has numbers of windows, of users by one field, that one plan pays for."""
    key = KeyReference("file", str(tmp_path / "key"))
    key.create_if_missing()
    fixed, start = FixedWindows(10), _Start("one", known=False)

    def set_up(windows=fixed, settings="s", user="user", delay=0):
        randomness = Randomness(key, "", "x", settings, delay)
        _ShardDoFn(windows, randomness, DocumentForm(user_field=user), 2, start).setup()

    set_up()
    start = _Start("two", known=True)
    set_up()
    set_up(SlidingWindows(10, 10))  # the same windows
    others = [{"windows": one} for one in (FixedWindows(5), FixedWindows(10, offset=1), SlidingWindows(10, 5))]
    for other in [*others, {"delay": 10_000}, {"settings": "t"}, {"user": "author"}]:
        with pytest.raises(NoiseKeyError, match="with other settings, other windows or another user field"):
            set_up(**other)


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
    def process(self, block, window=beam.DoFn.WindowParam):
        yield from ((text, window.start.micros) for text in texts_of(block))


def test_times_that_a_coder_cuts(tmp_path):
    """Runners carry milliseconds, cut towards 1970: half a millisecond before it would be in the window after.

    Between admission and the steps around it stands a coder here, as on engines: a side input ends the stage before.
    """
    windows = FixedWindows(1)
    key = KeyReference("file", str(tmp_path / "key"))
    key.create_if_missing()
    randomness = Randomness(key, "", "x", "s")
    moments = {-2_000_400: "a", -500: "b", 999_999: "c", 1_000_000: "d"}
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        named = (
            pipeline
            | beam.Create(list(moments.items()))
            | beam.Map(lambda item: TimestampedValue(("alice", item[1]), Timestamp(micros=item[0])))
            | beam.WindowInto(windows)
            | "Shard" >> beam.ParDo(_ShardDoFn(windows, randomness, DocumentForm(), 2))
            | "AllWindows" >> beam.WindowInto(GlobalWindows())
        )
        number = named | beam.combiners.Count.Globally()
        kept = (
            named
            | "Border" >> beam.Map(lambda named, _: named, beam.pvalue.AsSingleton(number))
            | beam.ParDo(_AdmitDoFn(windows, randomness, 4))
            | "Again" >> beam.WindowInto(windows)
            | beam.ParDo(_Seen())
        )
        expected = [("a", -3_000_000), ("b", -1_000_000), ("c", 0), ("d", 1_000_000)]
        assert_that(kept, equal_to(expected))


def test_a_block_for_each_set_of_windows():
    times = np.array([5, 15, 25, 7, 16]) * 1000
    block = DocumentBlock.from_texts(pa.array(list("uvwxy")), pa.array(list("abcde")))
    first, last = Windows.of(SlidingWindows(20, 10)).spans(times)
    dated = dataclasses.replace(block, times=times)
    found = [
        (one.timestamp.micros // 10**6, texts_of(one.value))
        for one in _in_windows(dated, np.array([0, 1, 3, 4]), first, last)
    ]
    assert found == [(5, ["a", "d"]), (15, ["b", "e"])]


class _State:
    """In place of Beam's state and timer."""

    def __init__(self):
        self.value, self.writes, self.due = b"", 0, None

    def read(self):
        return self.value

    def write(self, value):
        self.value, self.writes = value, self.writes + 1

    def set(self, due):
        self.due = due.micros // 10**6


def test_what_is_kept_of_a_user_is_bounded(monkeypatch):
    """24 bytes for each window that is not over, and for all that are; the timer waits for the first end; and a user
    who is known causes no write."""
    monkeypatch.setenv("unused", "ab" * 32)
    step = _AdmitDoFn(FixedWindows(10), key_source(b"n" * 32).randomness, 5)
    step.setup()
    state, users = _State(), pa.array(["u", "v"])

    def say(*seconds):
        block = DocumentBlock.from_texts(users, pa.array(["a", "b"]))
        dated = dataclasses.replace(block, times=np.array(seconds) * 1000)
        return sum(one.value.rows for one in step.process((0, dated), state, state))

    assert say(1, 2) == say(3, 4) == 2
    assert (state.writes, state.due, len(state.value)) == (1, 10, 2 * 24)
    for time in range(10, 1000, 10):
        admitted = say(time + 1, time + 2)
        assert admitted == (2 if time < 50 else 0)
        step.over(Timestamp(time), state, state)
        assert len(state.value) <= 2 * 2 * 24
    assert len(state.value) == 2 * 24

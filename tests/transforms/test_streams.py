"""Streams: one release per window, whatever arrives when."""

import collections
import dataclasses
import functools

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing import test_pipeline, test_stream
from apache_beam.transforms.trigger import AccumulationMode, AfterWatermark, DefaultTrigger
from apache_beam.transforms.window import FixedWindows, SlidingWindows, TimestampedValue
from helpers.streams import USERS, everybody, grams, release_of, stream_of, tolerate_empty_bundles

from dpngram.transforms import ExtractLevels, add_spurious_grams
from dpngram.transforms.blocks.documents import DocumentBlock
from dpngram.transforms.blocks.pieces import PIECE_BYTES, cut_block
from dpngram.transforms.testing import exact_plan


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


@pytest.mark.campaign
def test_a_window_with_a_level_beyond_the_size_of_an_element(monkeypatch, tmp_path):
    """One million users of fifteen words: 14 million bigrams in one window. Dataflow takes 80 MB as one element."""
    most = 80_000_000
    users, words, random = 1 << 18, 60_000, np.random.default_rng(1)
    vocabulary = pa.array([f"{number:05d}" for number in range(words)])
    bigrams, blocks = np.zeros(0, np.int64), []
    for number in range(4):
        tokens = random.integers(0, words, (users, 15))
        bigrams = np.union1d(bigrams, tokens[:, :-1] * words + tokens[:, 1:])
        names = pa.array([f"user {number} {user}" for user in range(users)])
        bounds = np.arange(0, tokens.size + 1, 15)
        blocks.append(DocumentBlock.from_tokens(names, vocabulary.take(pa.array(tokens.ravel())), bounds))
    # A user gives each bigram 0.26 or more. The noise makes weights differ, and moves no bigram across the threshold.
    plan = exact_plan(max_n=3, threshold=0.2)
    plan = dataclasses.replace(plan, levels=tuple(dataclasses.replace(level, sigma=0.01) for level in plan.levels))
    sizes = []

    def measured(level):
        pieces = list(cut_block(level))
        sizes.append((len(level), [len(piece.data) for piece in pieces]))
        return pieces

    def note(table, path):
        with open(path, "a") as file:  # this runner hangs when a check inside of the graph fails
            file.write(f"{len(table)}\n")

    monkeypatch.setattr(add_spurious_grams, "cut_block", measured)
    source = test_stream.TestStream().advance_watermark_to(0)
    source.add_elements([TimestampedValue(block, 5) for block in blocks])
    source.advance_watermark_to(100).advance_watermark_to_infinity()
    with test_pipeline.TestPipeline(options=PipelineOptions(streaming=True)) as pipeline:
        windows = pipeline | source | beam.WindowInto(FixedWindows(10))
        levels = windows | ExtractLevels(plan, shards=8)
        for n, tables in levels.items():
            tables | f"Note{n}" >> beam.Map(note, tmp_path / f"n{n}")
    released = [sum(map(int, (tmp_path / f"n{n}").read_text().split())) for n in (1, 2)]
    assert released == [words, len(bigrams)]
    pieces = dict(sizes)[len(bigrams)]
    assert sum(pieces) > most
    assert max(pieces) <= PIECE_BYTES

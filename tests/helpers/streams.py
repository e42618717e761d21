"""Streams in tests, and what comes out of them."""

import ast
import collections
import itertools
import os
import tempfile

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing import test_pipeline, test_stream
from apache_beam.transforms import sideinputs
from apache_beam.transforms.window import IntervalWindow, TimestampedValue
from apache_beam.utils.timestamp import MIN_TIMESTAMP

from dpngram.transforms import ExtractNgrams
from dpngram.transforms.testing import exact_plan


def tolerate_empty_bundles(monkeypatch):
    """The runner of TestStream asks a bundle without elements for its window, and hangs on the answer."""
    make = sideinputs.default_window_mapping_fn

    def tolerant(windows):
        mapping = make(windows)
        before_all = IntervalWindow(MIN_TIMESTAMP, MIN_TIMESTAMP)
        return lambda window: before_all if window is None else mapping(window)

    monkeypatch.setattr(sideinputs, "default_window_mapping_fn", tolerant)


USERS = [f"u{number}" for number in range(4)]
HELD_BY_THREE = exact_plan(max_n=2, threshold=1.2)  # a user gives each of six words 0.41, of two words 0.71


class _NoteRows(beam.DoFn):
    """Writes each row and its window into a file: this runner hangs when a check inside of the graph fails."""

    def __init__(self, path):
        self._path = path

    def process(self, row, window=beam.DoFn.WindowParam):
        span = window.start.micros // 10**6, window.end.micros // 10**6
        with open(self._path, "a") as file:
            file.write(repr((span, (row.n, tuple(row.tokens)))) + "\n")


def stream_of(*posts, until=1000):
    """All posts of one time together, the watermark following behind; what comes late comes last."""
    stream = test_stream.TestStream().advance_watermark_to(0)
    for time, group in itertools.groupby(sorted(posts), key=lambda post: post[0]):
        stream.advance_watermark_to(time).add_elements(
            [TimestampedValue((user, text), time) for _, user, text in group]
        )
    return stream.advance_watermark_to(until).advance_watermark_to_infinity()


def release_of(source, window, plan=HELD_BY_THREE, **options):
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

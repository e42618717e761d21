"""Draws of a step belong to its window."""

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from helpers.graphs import corpus

from dpngram.transforms import ExtractNgrams


def test_each_window_is_a_release_of_its_own(collect):
    """The same documents in two windows draw different noise; a window with too few users leaves nothing."""
    documents = corpus()
    stamped = [TimestampedValue(document, at) for at in (5, 15) for document in documents]
    stamped += [TimestampedValue(("one", "w1 w2"), 25)]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        rows = (
            pipeline
            | beam.Create(stamped)
            | beam.Map(lambda value: value)
            | beam.WindowInto(FixedWindows(10))
            | ExtractNgrams(collect.plan, noise_key=str(collect.key), bound_windows=False)
            | beam.Map(lambda row, window=beam.DoFn.WindowParam: (int(window.start), (tuple(row.tokens), row.weight)))
            | "Global" >> beam.WindowInto(beam.window.GlobalWindows())
            | beam.GroupByKey()
        )

        def check(groups):
            found = {start: dict(rows) for start, rows in groups}
            assert sorted(found) == [0, 10]
            common = found[0].keys() & found[10].keys()
            assert len(common) > 50
            assert sum(found[0][gram] == found[10][gram] for gram in common) < 5

        assert_that(rows, check)

"""A user is one, wherever its posts come from."""

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from dpngram.transforms import ExtractNgrams
from dpngram.transforms.testing import exact_plan


def test_one_user_in_many_elements_counts_once(tmp_path):
    plan = exact_plan(max_n=2, threshold=1.5, max_contributions=100)
    documents = [("lonely", "secret phrase")] * 500 + [("a", "hello world"), ("b", "hello world")]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        split = [pipeline | f"{i}" >> beam.Create(documents[i::7]) for i in range(7)]
        rows = split | beam.Flatten() | ExtractNgrams(plan) | beam.Map(lambda row: " ".join(row.tokens))
        # Two users give 1/sqrt(2) to each word, 1 to the phrase; the lonely one gives 1 to its phrase, once.
        assert_that(rows, equal_to([]))
        other = (
            pipeline
            | "Three" >> beam.Create([*documents, ("c", "hello world")])
            | "Again" >> ExtractNgrams(plan)
            | "Text" >> beam.Map(lambda row: " ".join(row.tokens))
        )
        assert_that(other, equal_to(["hello", "world", "hello world"]), label="three")

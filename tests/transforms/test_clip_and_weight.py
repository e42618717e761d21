"""What a user gives is bounded, whatever it holds."""

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from helpers.graphs import PLANS
from helpers.keys import write_key

from dpngram.transforms import ExtractNgrams
from dpngram.transforms.testing import exact_plan

MANY_TOKENS = pytest.mark.parametrize("tokens", [1_000_000, pytest.param(10_000_000, marks=pytest.mark.campaign)])


@MANY_TOKENS
def test_a_user_of_many_tokens(tokens):
    plan = exact_plan(max_n=2, threshold=0.9, max_contributions=1)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        rows = pipeline | beam.Create([tokens]) | beam.Map(lambda n: ("heavy", "x " * n)) | ExtractNgrams(plan)
        assert_that(rows | beam.Map(lambda row: row.tokens), equal_to([["x"], ["x", "x"]]))


@MANY_TOKENS
def test_a_user_of_many_tokens_beside_others(tmp_path, tokens):
    """Policy plus: the heavy user spends its one budget, whatever it holds; the others' phrase comes out. One key."""
    write_key(tmp_path / "noise.key", b"h" * 32)
    extract = ExtractNgrams(PLANS["plus"], noise_key=str(tmp_path / "noise.key"))
    others = [(f"u{i}", "see you tomorrow") for i in range(400)]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        heavy = pipeline | beam.Create([tokens]) | beam.Map(lambda n: ("heavy", "see you " * (n // 2)))
        rows = (heavy, pipeline | "Others" >> beam.Create(others)) | beam.Flatten() | extract
        phrase = rows | beam.Map(lambda row: row.tokens) | beam.Filter(["see", "you", "tomorrow"].__eq__)
        assert_that(phrase, equal_to([["see", "you", "tomorrow"]]))

"""Beam's options from the command line."""

import pickle

import pytest
from apache_beam.options import pipeline_options
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions

from dpngram.accounting import ParameterError
from dpngram.pipelines.launch.beam_flags import beam_options
from dpngram.pipelines.launch.runner import make_pipeline


def test_options_can_be_pickled():
    """Transforms of Beam's keep them (Pub/Sub, BigQuery), and go to the workers with them."""
    options = make_pipeline(beam_options(["--direct_num_workers=3"]), 0).options
    assert options.view_as(DirectOptions) is options.view_as(DirectOptions)  # remembered
    options.view_as(DirectOptions).direct_num_workers = 5
    copy = pickle.loads(pickle.dumps(options))  # noqa: S301
    assert isinstance(copy, PipelineOptions)
    assert copy.view_as(DirectOptions).direct_num_workers == 5
    assert options.view_as(DirectOptions).direct_num_workers == 5


@pytest.mark.parametrize(
    ("words", "dry"),
    [
        ([], False),
        (["--dry_run"], True),
        (["--dry_run", "--no_auth"], True),
        (["--dry_run", "True"], True),
        (["--dry_run=1"], True),
        (["--dry_run=False", "--no_auth"], False),
        (["--dry_run=false"], False),
    ],
)
def test_dry_run_is_a_switch(words, dry):
    assert bool(beam_options(words).view_as(pipeline_options.TestOptions).dry_run) is dry


@pytest.mark.parametrize("words", [["--no_such_flag"], ["--num_workers", "many"], ["--temp_location"]])
def test_a_flag_that_beam_cannot_take(words):
    with pytest.raises(ParameterError, match=r"^flag must be "):
        beam_options(words)

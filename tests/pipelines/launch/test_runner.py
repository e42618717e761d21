"""Which runner, and how many threads."""

import pytest
from apache_beam.options.pipeline_options import DirectOptions

from dpngram.accounting import ParameterError
from dpngram.pipelines.launch import runner
from dpngram.pipelines.launch.beam_flags import beam_options
from dpngram.pipelines.launch.runner import make_pipeline, runs_here


@pytest.mark.parametrize(
    ("words", "size", "threads"),
    [
        ([], 0, 1),
        ([], 1 << 30, 8),
        (["--direct_num_workers=1"], 1 << 30, 1),  # also what is the default anyway
        (["--direct_num_workers", "3"], 1 << 30, 3),
        (["--direct_num_workers=3"], 0, 3),
        (["--direct_running_mode=multi_threading"], 1 << 30, 1),
        (["--runner=DirectRunner"], 1 << 30, 8),
    ],
)
def test_threads(words, size, threads, monkeypatch):
    monkeypatch.setattr(runner.os, "sched_getaffinity", lambda _: range(8))
    pipeline = make_pipeline(beam_options(words), size, given=words)
    assert type(pipeline.runner).__name__ == "FnApiRunner"
    assert pipeline.options.view_as(DirectOptions).direct_num_workers == threads


def test_processes():
    words = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    pipeline = make_pipeline(beam_options(words), 1 << 30, given=words)
    assert pipeline.options.view_as(DirectOptions).direct_running_mode == "in_memory"  # with workers of our own


def test_dask_is_refused():
    with pytest.raises(ParameterError, match="runner must not be DaskRunner"):
        make_pipeline(beam_options(["--runner=DaskRunner"]), 0)


@pytest.mark.parametrize(
    ("words", "here"),
    [
        ([], True),
        (["--runner=DirectRunner"], True),
        (["--runner=FlinkRunner"], False),
        (["--runner=DataflowRunner"], False),
    ],
)
def test_where_files_are_read(words, here):
    assert runs_here(beam_options(words)) is here

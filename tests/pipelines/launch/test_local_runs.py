"""Which runner a run gets, and with how many workers."""

import pytest
from apache_beam.options.pipeline_options import DirectOptions
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from dpngram.accounting import ParameterError
from dpngram.pipelines.launch.beam_flags import beam_options
from dpngram.pipelines.launch.runner import make_pipeline

SMALL = 1 << 20


@pytest.mark.parametrize("verbose", [False, True])
def test_worker_processes_are_silent_unless_asked(verbose):
    options = beam_options(["--direct_running_mode=multi_processing", "--direct_num_workers=2"])
    environment = make_pipeline(options, SMALL, verbose=verbose).runner._default_environment
    assert isinstance(environment, SubprocessSDKEnvironment)
    assert "MALLOC_ARENA_MAX=1 " in environment.command_string
    assert environment.command_string.endswith("2>/dev/null") is not verbose
    assert options.view_as(DirectOptions).direct_num_workers == 2


def test_runners_that_lose_data_or_do_not_exist_are_refused():
    with pytest.raises(ParameterError, match="runner must not be DaskRunner"):
        make_pipeline(beam_options(["--runner=DaskRunner"]), SMALL)
    with pytest.raises(ParameterError, match="flag must be valid for NoSuchRunner"):
        make_pipeline(beam_options(["--runner=NoSuchRunner"]), SMALL)

"""The runner of a run: the one asked for, or the fastest local one."""

import os
import shlex
import sys
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from dpngram.accounting import ParameterError
from dpngram.pipelines.launch.startup import MALLOC_SETTINGS

__all__ = ["make_pipeline"]

# Below this much text one thread is as fast as several.
_PARALLEL_BYTES = 32 << 20
_LOCAL = (None, "DirectRunner", "FnApiRunner")


def make_pipeline(options: PipelineOptions, input_bytes: int, *, verbose: bool = False) -> beam.Pipeline:
    """A pipeline on the runner asked for. Local runs use FnApiRunner, with a thread per core for large input.

    Beam's DirectRunner would first look for another engine on the network. Threads are the fastest local mode: numpy,
    Arrow and AES work outside the interpreter's lock, and blocks stay in the process; worker processes
    (--direct_running_mode=multi_processing) spend as much on moving blocks as they gain.
    """
    runner = options.view_as(StandardOptions).runner
    if runner == "DaskRunner":
        raise ParameterError("runner must not be DaskRunner: it drops all outputs but one without an error.")
    if runner not in _LOCAL:
        try:
            return beam.Pipeline(options=options)
        except ValueError as error:  # Beam's check of its options for this runner
            raise ParameterError(f"flag must be valid for {runner}: {error}") from None
    direct: Any = options.view_as(DirectOptions)
    if not any(word.startswith(("--direct_running_mode", "--direct_num_workers")) for word in options._flags):
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if input_bytes >= _PARALLEL_BYTES:
            direct.direct_num_workers = cores
    environment = None
    if direct.direct_running_mode == "multi_processing":
        # The runner would start workers that print their start-up; the same environment without that is ours.
        direct.direct_running_mode = "in_memory"
        memory = " ".join(f"{name}={value}" for _, value, name in MALLOC_SETTINGS)
        command = f"{memory} exec {shlex.quote(sys.executable)} -m apache_beam.runners.worker.sdk_worker_main"
        environment = SubprocessSDKEnvironment.from_command_string(command + ("" if verbose else " 2>/dev/null"))
    return beam.Pipeline(runner=FnApiRunner(default_environment=environment), options=options)

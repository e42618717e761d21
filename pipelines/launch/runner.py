"""The runner of a job: the one that was asked for, or the fastest local one."""

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions
from apache_beam.transforms.environments import Environment, SubprocessSDKEnvironment

from dpngram.accounting import ParameterError
from dpngram.pipelines.launch.beam_internals import FnApiRunner, remember_views
from dpngram.pipelines.launch.startup import MALLOC_SETTINGS
from dpngram.transforms.blocks.scratch import Scratch

__all__ = ["make_pipeline", "runs_here"]

# Below this much text one thread is as fast as several.
_PARALLEL_BYTES = 32 << 20
_LOCAL = (None, "DirectRunner", "FnApiRunner")
_HOW_MANY = ("--direct_running_mode", "--direct_num_workers")


def make_pipeline(
    options: PipelineOptions,
    input_bytes: int,
    *,
    given: Sequence[str] = (),
    verbose: bool = False,
    make_scratch: Callable[[], Scratch] | None = None,
) -> beam.Pipeline:
    """A pipeline on the runner asked for. Local runs use FnApiRunner, with a thread per core for large input.

    Beam's DirectRunner would first look for another engine on the network. Threads are the fastest local mode: numpy,
    Arrow and AES work outside the interpreter's lock, and blocks stay in the process; worker processes
    (--direct_running_mode=multi_processing) spend as much on moving blocks as they gain.

    Args:
        options: Beam's options.
        input_bytes: the likely size of the text.
        given: the words of the command line that are Beam's. Where they say how many workers to use, it stays so.
        verbose: whether worker processes may write to the screen.
        make_scratch: where large blocks go in a local run with threads; None: everything stays in memory.
    """
    runner = options.view_as(StandardOptions).runner
    if runner == "DaskRunner":
        raise ParameterError("runner must not be DaskRunner: it drops all outputs but one without an error.")
    if runner in _LOCAL:
        environment = _local_environment(options, input_bytes, given, verbose)
        local = FnApiRunner(default_environment=environment)
        local.make_scratch = make_scratch if environment is None else None
        pipeline = beam.Pipeline(runner=local, options=options)
    else:
        try:
            pipeline = beam.Pipeline(options=options)
        except ValueError as error:  # Beam's check of its options for this runner
            raise ParameterError(f"flag must be valid for {runner}: {error}") from None
    remember_views(pipeline)
    return pipeline


def runs_here(options: PipelineOptions) -> bool:
    """Whether the files are read on this machine, by this user."""
    return options.view_as(StandardOptions).runner in _LOCAL


def _local_environment(
    options: PipelineOptions, input_bytes: int, given: Sequence[str], verbose: bool
) -> Environment | None:
    """How many threads there are, or the command of worker processes; None: this process."""
    direct: Any = options.view_as(DirectOptions)
    if input_bytes >= _PARALLEL_BYTES and not any(word.startswith(_HOW_MANY) for word in given):
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        direct.direct_num_workers = cores
    if direct.direct_running_mode != "multi_processing":
        return None
    # The runner would start workers that print their start-up; the same environment without that is ours.
    direct.direct_running_mode = "in_memory"
    memory = " ".join(f"{name}={value}" for _, value, name in MALLOC_SETTINGS)
    command = f"{memory} exec {shlex.quote(sys.executable)} -m apache_beam.runners.worker.sdk_worker_main"
    return SubprocessSDKEnvironment.from_command_string(command + ("" if verbose else " 2>/dev/null"))

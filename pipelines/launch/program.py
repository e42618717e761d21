"""What every program does that runs a job: read flags, build, run, and say in one line what went wrong."""

import argparse
import dataclasses
import sys
from collections.abc import Callable, Sequence

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from dpngram.accounting import ParameterError
from dpngram.pipelines.launch.beam_flags import beam_options
from dpngram.pipelines.launch.failures import failure_line
from dpngram.pipelines.launch.flags import OneLineParser, print_error
from dpngram.pipelines.launch.startup import keep_memory, quiet_logging
from dpngram.transforms.bind_release import unrecorded_key
from dpngram.transforms.randomness.noise_key import NoiseKeyError

__all__ = ["Job", "run_job"]


@dataclasses.dataclass(frozen=True)
class Job:
    """A job that is ready to run.

    Args:
        run: runs it, prints what came of it, and returns the exit status.
        pipeline: the graph; the error of a failed run names one of its steps.
    """

    run: Callable[[], int]
    pipeline: beam.Pipeline | None = None


def run_job(
    parser: OneLineParser, argv: Sequence[str], prepare: Callable[[argparse.Namespace, PipelineOptions], Job]
) -> int:
    """Prepares a job and runs it. The exit status: 0 done, 1 the run failed; a wrong flag exits with 2.

    Args:
        parser: the program's flags, with `noise_key` and `verbose`; all others go to Beam.
        argv: the command line.
        prepare: checks the flags and builds the job; `beam_flags` among them are the words that go to Beam. It may
            raise ParameterError or NoiseKeyError, whose words are shown as they are: no data is read yet.
    """
    flags, flags.beam_flags = parser.parse_known_args(argv)
    quiet_logging(flags.verbose)
    keep_memory()
    try:
        job = prepare(flags, beam_options(flags.beam_flags, [flag.name for flag in parser.flags]))
    except (ParameterError, NoiseKeyError) as error:
        parser.error(str(error))
    if job.pipeline is not None:
        warning = unrecorded_key(job.pipeline, flags.noise_key, getattr(flags, "key_records", None))
        if warning is not None:
            print(f"{parser.prog}: warning: {warning}", file=sys.stderr)
    try:
        return job.run()
    except Exception as error:
        if flags.verbose:
            raise
        return print_error(parser.prog, failure_line(error, job.pipeline, flags.noise_key), status=1)

"""What every program does that runs a job: read flags, build, run, and say in one line what went wrong."""

import argparse
import dataclasses
import shlex
import sys
from collections.abc import Callable, Sequence

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from dpngram.accounting import ParameterError
from dpngram.pipelines.launch.beam_flags import beam_options
from dpngram.pipelines.launch.beam_internals import keep_no_side_inputs, remember_signatures
from dpngram.pipelines.launch.failures import failure_line, failure_message
from dpngram.pipelines.launch.flags import OneLineParser, print_error
from dpngram.pipelines.launch.startup import allow_long_chains, keep_memory, quiet_logging, stop_status
from dpngram.transforms.bind_release import unrecorded_key
from dpngram.transforms.messages import Message
from dpngram.transforms.randomness.noise_key import NoiseKeyError

__all__ = ["Job", "resume_command", "run_job"]


@dataclasses.dataclass(frozen=True)
class Job:
    """A job that is ready to run.

    Args:
        run: runs it, prints what came of it, and returns the exit status.
        pipeline: the graph; the error of a failed run names one of its steps.
        can_resume: whether what a failed run left can be finished with --resume; None: never.
    """

    run: Callable[[], int]
    pipeline: beam.Pipeline | None = None
    can_resume: Callable[[], bool] | None = None


def run_job(
    parser: OneLineParser, argv: Sequence[str], prepare: Callable[[argparse.Namespace, PipelineOptions], Job]
) -> int:
    """Prepares a job and runs it. The exit status: 0 done, 1 the run failed, 130 Ctrl-C; a wrong flag exits with 2.

    Args:
        parser: the program's flags, with `noise_key` and `verbose`; all others go to Beam.
        argv: the command line.
        prepare: checks the flags and builds the job; `beam_flags` among them are the words that go to Beam, and
            `resume_command` is what to type to resume this run. It may raise ParameterError or NoiseKeyError, whose
            words are shown as they are: no value of a record is in them.
    """
    flags, flags.beam_flags = parser.parse_known_args(argv)
    flags.resume_command = resume_command(parser.prog, argv)
    quiet_logging(flags.verbose)
    keep_memory()
    allow_long_chains()
    remember_signatures()
    keep_no_side_inputs()
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
    except (Exception, KeyboardInterrupt) as error:
        status = stop_status()
        if status is not None or isinstance(error, KeyboardInterrupt):
            return print_error(parser.prog, f"stopped.{_offer(job, flags.resume_command)}", status=status or 130)
        if flags.verbose:
            raise
        line = failure_line(error, job.pipeline, flags.noise_key)
        # Those of ours say what to do, and most would come again.
        if failure_message(error) in (None, Message.SCRATCH_FULL):
            line += _offer(job, flags.resume_command)
        return print_error(parser.prog, line, status=1)


def resume_command(program: str, argv: Sequence[str]) -> str:
    """The command line as it was given, with --resume in place of --overwrite."""
    words = [word for word in argv if word not in ("--overwrite", "--resume")]
    return f"{program} {shlex.join([*words, '--resume'])}"


def _offer(job: Job, command: str) -> str:
    """What to type to finish a run that failed or was stopped; nothing where that is not possible."""
    try:
        possible = job.can_resume is not None and job.can_resume()
    except Exception:  # the filesystem may be why the run failed
        return ""
    return f" To finish this run: {command}" if possible else ""

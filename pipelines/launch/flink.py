"""What Flink needs for a stream, and how many rounds it takes as one job in batch.

Without the settings for streams, windows come out late, or at the end, or with messages missing.
"""

import argparse
from collections.abc import Sequence

from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from dpngram.accounting import ExtractionPlan, ParameterError
from dpngram.pipelines.launch.beam_internals import FLINK_FLAGS

__all__ = ["is_flink", "job_ends", "restores_state", "stream_settings"]

_NEVER = str(2**63 - 1)  # milliseconds
_SPARE = 10.0  # seconds that the clocks of launcher and workers may differ
# Restarts of a job that has failed: as long as a TaskManager takes to come back, and a broker.
_RESTARTS, _PAUSE = "10", "10000"
_MOST_ROUNDS = 9  # of a batch job: so many are planned in seconds
_MOST_LENGTH = 18  # beyond, the last job has more paths, and more readers of the binding, than Flink can plan


def is_flink(options: PipelineOptions) -> bool:
    """Whether the job goes to Flink: by its own runner, or by a job server, which for streams is Flink's."""
    return options.view_as(StandardOptions).runner in ("FlinkRunner", "PortableRunner")


def restores_state(options: PipelineOptions, words: Sequence[str]) -> bool:
    """Whether a job on Flink goes on from what another has left.

    Args:
        options: Beam's options, for the runner.
        words: the words of the command line that are Beam's.
    """
    return is_flink(options) and "savepoint_path" in _given(words)


def job_ends(options: PipelineOptions, plan: ExtractionPlan) -> list[int]:
    """The last levels of the jobs that compute a release in batch, one after another. On other engines it is one job.

    Flink's planner for batch walks every path through the graph. Each round reads what the rounds before have found in
    several steps, so the number of paths grows by a factor with each round: a job with many rounds would wait for its
    plan for ever, without an error. Streams are planned in another way. docs/engines.md has the details.

    Privacy: see `transforms.checkpoints`, from which each job goes on.
    """
    if not is_flink(options):
        return [plan.max_n]
    if plan.max_n > _MOST_LENGTH:
        raise ParameterError(f"max_n must be at most {_MOST_LENGTH} on Flink in batch, got {plan.max_n}.")
    ends, rounds = [], 0
    for level in plan.levels:
        if rounds + len(level.rounds) > _MOST_ROUNDS:
            ends.append(level.n - 1)
            rounds = 0
        rounds += len(level.rounds)
    return [*ends, plan.max_n]


def stream_settings(
    options: PipelineOptions, words: Sequence[str], *, replays: bool, duration: float | None = None
) -> list[str]:
    """What to add to Beam's flags for a stream on Flink; nothing for other engines. What was given stays as it is.

    - Sources do not shut down. By default they do at once where there are no checkpoints; then a source in Python runs
      in what Flink does at the end of its input, its watermark goes nowhere, and all windows come out when it ends.
      With a `duration` they do some time after it: a job ends when all of its sources have.
    - Bundles end after each element, and not after a second: a window passes some 35 steps, and the source must hand on
      its watermark. Elements are blocks, so this costs little; 100 ms are for bundles that a timer begins.
    - Restarts. A job that Flink starts again without a checkpoint begins with the first message that its source has.
      A topic is read once more, from the same offsets or not at all (`ReadKafka`), so this is the same release. Any
      other source may have lost messages, or gives them other arrivals: then the job is not started again by itself,
      with checkpoints neither, since it may fail before the first.

    Privacy: Flink's checkpoints lose messages by default. While one is made, the output of a bundle is held back, and
    the watermark is not: messages behind it are dropped as late, without an error, and what a window holds depends on
    the moment of the checkpoint. So checkpoints are refused unless bundles are finished first, and counted once.

    Args:
        options: Beam's options, for the runner.
        words: the words of the command line that are Beam's.
        duration: seconds from now until the source ends; None: it never does.
        replays: the source gives the same messages with the same arrivals once more, or stops the job.
    """
    if not is_flink(options):
        return []
    given = _given(words)
    if _number(given, "checkpointing_interval") > 0:
        _check_checkpoints(given)
    if not replays and _number(given, "number_of_execution_retries") > 0:
        raise ParameterError(
            "number_of_execution_retries must be 0 here: a stream that Flink starts again before its first checkpoint "
            "has forgotten which windows its users were in, and only a Kafka topic can be read once more."
        )
    idle = _NEVER if duration is None else str(round(1000 * (duration + _SPARE)))
    wanted = {"shutdown_sources_after_idle_ms": idle, "max_bundle_size": "1", "max_bundle_time_mills": "100"}
    if replays:
        wanted |= {"number_of_execution_retries": _RESTARTS, "execution_retry_delay": _PAUSE}
    else:
        wanted |= {"number_of_execution_retries": "0"}
    return [f"--{name}={value}" for name, value in wanted.items() if name not in given]


def _given(words: Sequence[str]) -> dict[str, str]:
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False, argument_default=argparse.SUPPRESS)
    for name in FLINK_FLAGS:
        parser.add_argument(f"--{name}", nargs="?", const="true")
    return dict(vars(parser.parse_known_args(words)[0]))


def _number(given: dict[str, str], name: str) -> int:
    try:
        return int(given.get(name, "0"))
    except ValueError:
        raise ParameterError(f"{name} must be a whole number, got {given[name]!r:.40}.") from None


def _check_checkpoints(given: dict[str, str]) -> None:
    if given.get("checkpointing_mode", "EXACTLY_ONCE") != "EXACTLY_ONCE":
        raise ParameterError("checkpointing_mode must be EXACTLY_ONCE for a stream: otherwise messages count twice.")
    if given.get("finish_bundle_before_checkpointing", "false").lower() != "true":
        raise ParameterError(
            "checkpointing_interval needs --finish_bundle_before_checkpointing: without it Flink drops messages at a "
            "checkpoint, without an error."
        )

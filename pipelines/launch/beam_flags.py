"""Beam's flags on our command line."""

import argparse
import functools
from collections.abc import Sequence
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions

from dpngram.accounting import ParameterError
from dpngram.pipelines.launch.dataflow import spell_dry_run

__all__ = ["beam_options"]
# Flags that only Flink's job server knows: Python's Beam asks for them when it has reached it.
_FLINK = (
    "checkpointing_interval",
    "checkpointing_mode",
    "checkpoint_timeout_millis",
    "externalized_checkpoints_enabled",
    "retain_externalized_checkpoints_on_cancellation",
    "number_of_execution_retries",
    "execution_retry_delay",
    "execution_mode_for_batch",
    "savepoint_path",
    "state_backend",
    "state_backend_storage_path",
    "max_bundle_size",
    "max_bundle_time_mills",
    "object_reuse",
    "latency_tracking_interval",
    "auto_watermark_interval",
    "finish_bundle_before_checkpointing",
    "shutdown_sources_after_idle_ms",
)


def beam_options(words: Sequence[str]) -> PipelineOptions:
    """Beam's options from what is left of the command line; a flag that Beam does not know either is an error."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.error = _raise  # type: ignore[method-assign]
    for options in {option.__name__: option for option in all_subclasses(PipelineOptions)}.values():
        if "_add_argparse_args" in vars(options):
            try:
                options._add_argparse_args(parser)
            except argparse.ArgumentError:
                continue  # two of Beam's own classes define the flag
    words = spell_dry_run(words)
    try:
        if parser.parse_known_args(words)[0].runner in ("FlinkRunner", "PortableRunner"):
            for name in _FLINK:
                parser.add_argument(f"--{name}")
        _, unknown = parser.parse_known_args(words)
    except argparse.ArgumentError as error:
        raise ParameterError(f"flag must be valid for Beam: {error}") from None
    if unknown:
        raise ParameterError(f"flag must be one of dpngram's or Beam's, got {unknown[0]!r:.80}.")
    given = PipelineOptions(words)
    # Beam looks at its options for every transform, and makes an argument parser for every look: a fifth of the time it
    # takes to build the graph. Views share what they show, so one of each kind does.
    object.__setattr__(given, "view_as", _Views(given))
    return given


class _Views:
    """`view_as` with a memory. Transforms that keep the options (Pub/Sub, BigQuery) are pickled without it."""

    def __init__(self, options: PipelineOptions) -> None:
        self._options, self._view = options, functools.cache(options.view_as)

    def __call__(self, kind: Any) -> Any:
        return self._view(kind)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._options, "view_as")


def _raise(message: str) -> Any:
    raise ParameterError(f"flag must be valid for Beam: {message}")


def all_subclasses(cls: Any) -> list[Any]:
    return [found for direct in cls.__subclasses__() for found in [direct, *all_subclasses(direct)]]

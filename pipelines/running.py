"""Options for Beam, the choice of a local runner, and failures in one line."""

import argparse
import ctypes
import functools
import itertools
import logging
import os
import re
import shlex
import sys
import threading
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from dpngram.accounting import ParameterError

__all__ = ["beam_options", "failure_line", "keep_memory", "make_pipeline", "quiet_logging"]

# Below this much text one thread is as fast as several.
_PARALLEL_BYTES = 32 << 20
# glibc's mallopt numbers, values and the variables that set the same for a new process.
_MALLOC = (
    (-8, 1, "MALLOC_ARENA_MAX"),
    (-3, 1 << 25, "MALLOC_MMAP_THRESHOLD_"),
    (-1, 1 << 30, "MALLOC_TRIM_THRESHOLD_"),
    (-2, 1 << 26, "MALLOC_TOP_PAD_"),
)
_LOCAL = (None, "DirectRunner", "FnApiRunner")
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
# What our own errors on workers say, see failure_line.
_SENTENCES = (
    "noise_key: the environment variable {key} is not set on this worker.",
    "noise_key: {key} cannot be read on this worker ({kind}).",
    "noise_key: secret {key} cannot be read ({kind}).",
    "noise_key: {key} must hold 32 bytes or 64 hexadecimal digits, got {number} bytes.",
    "noise_key: gcp-secret needs the package google-cloud-secret-manager on the workers.",
    "noise_key: {key} was already used for this release label with other data, parameters or version; take a new key, "
    "or a new --release label (a new release spends epsilon and delta again).",
    "noise_key: workers hold different keys; was the variable or secret changed meanwhile?",
    "noise_key: the checkpoints in the output were made with another key, or from other data; --overwrite starts anew.",
    "noise_key: a window of the output has a release already, with other noise or data.",
    "max_bad_fraction must be at least the share of bad records: {number} of {number} cannot be used (allowed: "
    "{number}); --bad_records DIR lists them. Nothing was released.",
    "sigma must be below 2^26 for exact sums, got {number}: the budget is too small.",
)


def beam_options(words: Sequence[str]) -> PipelineOptions:
    """Beam's options from what is left of the command line; a flag that Beam does not know either is an error."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.error = _raise  # type: ignore[method-assign]
    for options in {option.__name__: option for option in _subclasses(PipelineOptions)}.values():
        if "_add_argparse_args" in vars(options):
            try:
                options._add_argparse_args(parser)
            except argparse.ArgumentError:
                continue  # two of Beam's own classes define the flag
    words = _plain_dry_run(words)
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
        memory = " ".join(f"{name}={value}" for _, value, name in _MALLOC)
        command = f"{memory} exec {shlex.quote(sys.executable)} -m apache_beam.runners.worker.sdk_worker_main"
        environment = SubprocessSDKEnvironment.from_command_string(command + ("" if verbose else " 2>/dev/null"))
    return beam.Pipeline(runner=FnApiRunner(default_environment=environment), options=options)


def failure_line(error: BaseException, pipeline: beam.Pipeline | None = None, noise_key: str | None = None) -> str:
    """What to tell a user of a failed run: a sentence of ours, or the kind of error and the step, never its text.

    All that a worker tells is one text, in which nothing tells our words from those of somebody else's exception, and
    those may quote the data. So the text is only asked which of the things known here it has: our sentences, where
    nothing but numbers is taken over; steps of this pipeline; exceptions that exist.
    """
    seen: BaseException | None = error
    text = ""
    while seen is not None:
        text += f"\n{type(seen).__name__}: {seen}"
        seen = seen.__cause__ or seen.__context__
    exceptions = {kind.__name__ for kind in _subclasses(BaseException)}
    if ours := [(found.start(), form, found) for form in _SENTENCES for found in re.finditer(_pattern(form), text)]:
        _, form, found = max(ours)
        numbers = [value for name, value in sorted(found.groupdict().items()) if name.startswith("number")]
        words = {"key": noise_key or "the fresh key", "kind": found.groupdict().get("kind")}
        words["kind"] = words["kind"] if words["kind"] in exceptions else "an error"
        return form.replace("{number}", "{}").format(*numbers, **words)
    labels = sorted(pipeline.applied_labels if pipeline else (), key=len)
    steps = re.findall(r"while running '([^'\n]+)'", text)
    known = [label for step in steps for label in labels if f"{step}/".startswith(f"{label}/")]
    kinds = [kind for kind in re.findall(r"^(?:[\w.]+\.)?(\w+)\b", text, re.MULTILINE) if kind in exceptions]
    where = f" in step {known[-1]}" if known else ""
    return f"the run failed{where} ({kinds[-1] if kinds else type(error).__name__}); --verbose shows the traceback."


def _pattern(form: str) -> str:
    """A regular expression for a sentence; its numbers are groups."""
    numbers = itertools.count()
    pattern = re.escape(form).replace(r"\{key\}", r"[^\n]+?").replace(r"\{kind\}", r"(?P<kind>\w+)")
    return re.sub(r"\\{number\\}", lambda _: rf"(?P<number{next(numbers)}>\d[\d.,e+\-]{{0,20}})", pattern)


def keep_memory() -> None:
    """Lets the allocator keep freed blocks instead of handing every large array back to the system at once.

    Page faults on fresh memory cost a local run up to a third of its time. Only glibc has these switches.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    for switch, value, _ in _MALLOC:
        mallopt(switch, value)


def quiet_logging(verbose: bool) -> None:
    """Keeps Beam's start-up noise, and tracebacks of a failed worker, off the screen unless asked for.

    Also those that Python prints by itself, of threads and of callbacks: their texts may quote the data.
    """
    logging.basicConfig(level=logging.INFO if verbose else logging.CRITICAL, stream=sys.stderr, force=True)
    if not verbose and threading.excepthook is threading.__excepthook__:
        threading.excepthook = _say_nothing
    if not verbose and sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _say_nothing


def _say_nothing(_unhandled: Any) -> None:
    pass


def _plain_dry_run(words: Sequence[str]) -> list[str]:
    """`--dry_run` as a switch. Beam wants a value, and takes any, also False, for yes."""
    plain = []
    for place, word in enumerate(words):
        if word == "--dry_run" and all(following.startswith("--") for following in words[place + 1 : place + 2]):
            word = "--dry_run=True"
        if word.lower() in ("--dry_run=false", "--dry_run=0"):
            continue
        plain.append(word)
    return plain


def _raise(message: str) -> Any:
    raise ParameterError(f"flag must be valid for Beam: {message}")


def _subclasses(cls: Any) -> list[Any]:
    return [found for direct in cls.__subclasses__() for found in [direct, *_subclasses(direct)]]

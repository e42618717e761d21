"""Options for Beam, the choice of a local runner, and failures in one line."""

import argparse
import ctypes
import logging
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from dpngram.accounting import ParameterError

__all__ = ["beam_options", "failure_line", "keep_memory", "make_pipeline", "quiet_logging"]

# Starting worker processes and moving blocks between them costs seconds; below this, one process is faster.
_MULTIPROCESS_BYTES = 192 << 20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LOCAL = (None, "DirectRunner", "FnApiRunner")


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
    _, unknown = parser.parse_known_args(list(words))
    if unknown:
        raise ParameterError(f"flag must be one of dpngram's or Beam's, got {unknown[0]!r:.80}.")
    return PipelineOptions(list(words))


def make_pipeline(options: PipelineOptions, input_bytes: int) -> beam.Pipeline:
    """A pipeline on the runner asked for. Local runs use FnApiRunner, with worker processes for large input.

    Beam's DirectRunner would first look for another engine on the network.
    """
    runner = options.view_as(StandardOptions).runner
    if runner == "DaskRunner":
        raise ParameterError("runner must not be DaskRunner: it drops all outputs but one without an error.")
    if runner not in _LOCAL:
        return beam.Pipeline(options=options)
    given = options.get_all_options(drop_default=True)
    direct: Any = options.view_as(DirectOptions)
    if "direct_running_mode" not in given and "direct_num_workers" not in given:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if input_bytes >= _MULTIPROCESS_BYTES and cores > 1:
            direct.direct_running_mode = "multi_processing"
            direct.direct_num_workers = cores
    return beam.Pipeline(runner=FnApiRunner(), options=options)


def failure_line(error: BaseException) -> str:
    """What to tell a user of a failed run: our own message, or the kind of error and the step, never its text.

    The text of somebody else's exception may quote the data.
    """
    seen: BaseException | None = error
    text = ""
    while seen is not None:
        text += f"\n{type(seen).__name__}: {seen}"
        seen = seen.__cause__ or seen.__context__
    if ours := re.findall(r"(?:KeyProblem|ParameterError): ((?:noise_key|[a-z_]+ must)[^\n\[]*)", text):
        return str(ours[-1]).strip()
    step = re.findall(r"while running '([\w/ .\-()]+)'", text)
    kind = re.findall(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|Invalid))\b", text, re.MULTILINE)
    where = f" in step {step[-1]}" if step else ""
    return f"the run failed{where} ({kind[-1] if kind else type(error).__name__}); --verbose shows the traceback."


def keep_memory() -> None:
    """Lets the allocator keep freed blocks instead of handing every large array back to the system at once.

    Page faults on fresh memory cost a local run a tenth of its time. Only glibc has the switch.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    mallopt(_M_MMAP_THRESHOLD, 1 << 30)
    mallopt(_M_TRIM_THRESHOLD, 1 << 30)


def quiet_logging(verbose: bool) -> None:
    """Keeps Beam's start-up noise, and tracebacks of a failed worker, off the screen unless asked for."""
    logging.basicConfig(level=logging.INFO if verbose else logging.CRITICAL, stream=sys.stderr, force=True)


def _raise(message: str) -> Any:
    raise ParameterError(f"flag must be valid for Beam: {message}")


def _subclasses(cls: Any) -> list[Any]:
    return [found for direct in cls.__subclasses__() for found in [direct, *_subclasses(direct)]]

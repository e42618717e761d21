"""`dpngram stream`: private n-grams from messages as they arrive, one release for each window of time."""

import argparse
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.transforms.window import FixedWindows, SlidingWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from dpngram.accounting import ExtractionPlan, ParameterError
from dpngram.accounting.parameters import check_choice, check_number
from dpngram.pipelines.io.encoding import OUTPUT_FORMATS
from dpngram.pipelines.io.polling import PollFiles
from dpngram.pipelines.io.writing import WriteWindows
from dpngram.pipelines.launch.beam_flags import beam_options
from dpngram.pipelines.launch.failures import failure_line
from dpngram.pipelines.launch.flags import OneLineParser, add_budget_flags, number_or_text, plan_from_flags, print_error
from dpngram.pipelines.launch.input_flags import add_tokenizer_flags, check_apart
from dpngram.pipelines.launch.runner import make_pipeline
from dpngram.pipelines.launch.startup import keep_memory, quiet_logging
from dpngram.transforms import ExtractLevels
from dpngram.transforms.randomness.noise_key import KeyReference, NoiseKeyError
from dpngram.transforms.validity_filter import PRUNINGS

__all__ = ["ParseMessages", "run", "stream_messages"]

# A message may be stamped this much ahead of its arrival: clocks differ.
_MOST_AHEAD = 60.0


def run(argv: Sequence[str]) -> int:
    parser = OneLineParser(
        prog="dpngram stream",
        description="Release n-grams from messages as they arrive, window by window. Any other flag goes to Beam.",
    )
    add_budget_flags(parser)
    _add_flags(parser)
    flags, rest = parser.parse_known_args(argv)
    quiet_logging(flags.verbose)
    keep_memory()
    try:
        plan = plan_from_flags(flags)
        check_choice("output_format", flags.output_format, tuple(OUTPUT_FORMATS))
        window = _windows(flags)
        _check_source(flags)
        _check_key(flags.noise_key, flags.output)
        options = beam_options(rest)
        options.view_as(StandardOptions).streaming = True
        pipeline = make_pipeline(options, 0, verbose=flags.verbose)
        messages = _read(pipeline, flags)
        extract = ExtractLevels(
            plan,
            tokenizer=flags.tokenizer,
            sentences=flags.sentences,
            pruning=flags.pruning,
            noise_key=flags.noise_key,
            release=flags.release,
            shards=flags.shards,
            bound_windows=True,
        )
        fields = (flags.user_field, flags.text_field, flags.time_field)
        stream_messages(messages, fields, window, flags.output, plan, extract, flags.output_format)
    except (ParameterError, NoiseKeyError) as error:
        parser.error(str(error))
    try:
        pipeline.run().wait_until_finish()
    except Exception as error:
        if flags.verbose:
            raise
        return print_error(parser.prog, failure_line(error, pipeline, flags.noise_key), status=1)
    return 0


def stream_messages(
    messages: beam.PCollection[tuple[bytes, float]],
    fields: tuple[str, str, str | None],
    window: FixedWindows | SlidingWindows,
    output: str,
    plan: ExtractionPlan,
    extract: ExtractLevels,
    output_format: str = "jsonl",
) -> None:
    """The whole graph: messages -> (user, text) by time -> windows -> levels -> a directory for each window."""
    settings = {name: value for name, value in extract.settings().items() if name != "plan"}
    tables = (
        messages
        | "Parse" >> ParseMessages(*fields)  # (user, text) at their time
        | "Windows" >> beam.WindowInto(window)
        | "ExtractNgrams" >> extract  # {n: table of released grams}, for each window
    )
    tables | "Write" >> WriteWindows(output, plan, settings, output_format)


class ParseMessages(beam.PTransform):
    """(JSON message, arrival) -> (user, text), stamped with their own time, or that of their arrival.

    Privacy: the watermark comes from the source's clock, never from the messages: one message stamped far in the future
    must not make everybody else late. A message that cannot be used is counted and left out; its content is in no
    error. One that says it is from more than a minute after its arrival is left out, too: it would wait in
    memory for a window that may be years away.
    """

    def __init__(self, user_field: str, text_field: str, time_field: str | None) -> None:
        super().__init__()
        self._fields = (user_field, text_field, time_field)

    def expand(self, messages: beam.PCollection[tuple[bytes, float]]) -> beam.PCollection[Any]:
        return messages | "Fields" >> beam.ParDo(_ParseDoFn(*self._fields))


class _ParseDoFn(beam.DoFn):
    def __init__(self, user_field: str, text_field: str, time_field: str | None) -> None:
        self._user, self._text, self._time = user_field, text_field, time_field
        self._bad = Metrics.counter("dpngram", "bad_documents")

    def process(self, arrived: tuple[bytes, float]) -> Iterator[Any]:
        message, arrival = arrived
        try:
            record = json.loads(message)
            user, text = record[self._user], record[self._text]
            json.dumps([user, text], ensure_ascii=False).encode()  # half a surrogate pair is no text for a coder
            moment = arrival if self._time is None else _seconds(record[self._time])
            if not -6e10 < moment < arrival + _MOST_AHEAD:
                raise ValueError
        except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError):
            self._bad.inc()
        else:
            yield TimestampedValue((user, text), Timestamp(moment))


def _seconds(moment: Any) -> float:
    """Unix time from a number of seconds, or from an ISO 8601 text (UTC where it does not say)."""
    if isinstance(moment, str):
        parsed = datetime.fromisoformat(moment.replace("Z", "+00:00"))
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)).timestamp()
    if isinstance(moment, bool):
        raise TypeError
    return float(moment)


def _windows(flags: argparse.Namespace) -> FixedWindows | SlidingWindows:
    size = check_number("window", flags.window, 1e-3, 1e9)
    if flags.period is None:
        return FixedWindows(size)
    period = check_number("period", flags.period, 1e-3, 1e9)
    if period > size:
        raise ParameterError(f"period must be at most the window, got {period:g} > {size:g}.")
    return SlidingWindows(size, period)


def _check_source(flags: argparse.Namespace) -> None:
    if (flags.input is None) == (flags.subscription is None):
        raise ParameterError("input must be given, or subscription, and not both.")
    if flags.subscription is not None:
        for name in ("max_delay", "poll", "duration"):
            if getattr(flags, name) is not None:
                raise ParameterError(f"{name} must be left out with subscription: Pub/Sub has its own clock.")
    elif FileSystems.get_scheme(flags.input) is None:
        flags.input = os.path.abspath(flags.input)
        if not os.path.isdir(os.path.dirname(flags.input)):
            raise ParameterError(f"input must be a pattern in a directory that exists, got {flags.input!r}.")


def _check_key(reference: str | None, output: str) -> None:
    """A stream is restarted, so its key must last and stay; beside it lie names of all windows that had data."""
    if reference is None:
        raise ParameterError("noise_key must be given: a stream that is started again needs the same noise.")
    key = KeyReference.parse(reference)
    if key.scheme == "gcp-secret" and not re.search(r"/versions/\d+$", key.location):
        raise ParameterError("noise_key must name a version of the secret (/versions/N): a stream outlives a rotation.")
    check_apart(output, noise_key=reference)  # beside it: which windows had data


def _read(pipeline: beam.Pipeline, flags: argparse.Namespace) -> beam.PCollection[tuple[bytes, float]]:
    """(message, arrival), in the global window."""
    if flags.subscription is not None:
        from apache_beam.io import ReadFromPubSub

        messages = pipeline | "Read" >> ReadFromPubSub(subscription=flags.subscription)
        return messages | "Arrival" >> beam.ParDo(_ArrivalDoFn())
    delay = check_number("max_delay", 60.0 if flags.max_delay is None else flags.max_delay, 0.0, 1e9)
    interval = check_number("poll", 5.0 if flags.poll is None else flags.poll, 0.1, 1e6)
    stop = None
    if flags.duration is not None:
        stop = time.time() + check_number("duration", flags.duration, 0.0, 1e9)
    return pipeline | "Read" >> PollFiles(flags.input, interval=interval, delay=delay, stop=stop)


class _ArrivalDoFn(beam.DoFn):
    def process(self, message: bytes, published: Any = beam.DoFn.TimestampParam) -> Iterator[tuple[bytes, float]]:
        yield message, published.micros / 1e6


def _add_flags(parser: argparse.ArgumentParser) -> None:
    data = parser.add_argument_group("data")
    data.add_argument("--input", metavar="PATTERN", help="files of JSON lines that appear, whole, in a directory")
    data.add_argument("--subscription", help="instead: projects/P/subscriptions/S of Pub/Sub")
    data.add_argument("--output", required=True, help="directory; gets one of its own for each window with a release")
    data.add_argument("--user_field", default="user", help="field that names the user (default user)")
    data.add_argument("--text_field", default="text", help="field with the text (default text)")
    data.add_argument("--time_field", help="field with Unix seconds or an ISO 8601 time (default: time of arrival)")
    data.add_argument("--output_format", default="jsonl", help=f"one of: {', '.join(OUTPUT_FORMATS)} (default jsonl)")
    windows = parser.add_argument_group("windows")
    windows.add_argument("--window", type=number_or_text, required=True, help="length of a window in seconds")
    windows.add_argument("--period", type=number_or_text, help="a new window every so many seconds (default: --window)")
    windows.add_argument(
        "--max_delay", type=number_or_text, help="files: seconds to wait for messages of a window (default 60)"
    )
    windows.add_argument("--poll", type=number_or_text, help="files: look every so many seconds (default 5)")
    windows.add_argument("--duration", type=number_or_text, help="files: end after so many seconds (default: never)")
    how = parser.add_argument_group("extraction")
    add_tokenizer_flags(how)
    how.add_argument("--pruning", default="both", help=f"one of: {', '.join(PRUNINGS)} (default both; plus needs both)")
    how.add_argument("--noise_key", help="file:PATH, env:NAME or gcp-secret:NAME/versions/N; must be given")
    how.add_argument("--release", default="", help="label of the stream, with a key that is used again")
    how.add_argument("--shards", type=number_or_text, default=16, help="blocks of users in a window (default 16)")
    how.add_argument("--verbose", action="store_true", help="show Beam's messages, and tracebacks")

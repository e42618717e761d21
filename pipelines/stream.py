"""`dpngram stream`: releases private n-grams from messages as they arrive, a release for each window of time."""

import argparse
import functools
import importlib.util
import os
import re
import time
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.transforms.window import FixedWindows, SlidingWindows
from apache_beam.utils.timestamp import Timestamp

from dpngram.accounting import ExtractionPlan, ParameterError
from dpngram.accounting.parameters import check_choice, check_number
from dpngram.pipelines.io.deny_list import NOTHING_DENIED, DenyList, read_deny_list
from dpngram.pipelines.io.encoding import OUTPUT_FORMATS
from dpngram.pipelines.io.kafka import ReadKafka, read_config
from dpngram.pipelines.io.look import Look, Wanted, json_columns, look_at_files
from dpngram.pipelines.io.messages import GatherMessages, MessageBlock, ParseMessages
from dpngram.pipelines.io.polling import PollFiles
from dpngram.pipelines.io.reading import match_files
from dpngram.pipelines.io.writing import WriteWindows
from dpngram.pipelines.launch.dataflow import is_dry_run
from dpngram.pipelines.launch.extraction_flags import (
    deny_flag,
    extraction_arguments,
    extraction_flags,
    output_format_flag,
    pruning_flag,
    screen_flags,
)
from dpngram.pipelines.launch.flags import (
    Flag,
    Kind,
    OneLineParser,
    budget_flags,
    plan_from_flags,
    users_flag,
    warn_of_doubts,
)
from dpngram.pipelines.launch.input_flags import check_apart, look_from_here
from dpngram.pipelines.launch.ledger_flags import EXTRACT_LABEL, ledger_flags, open_account
from dpngram.pipelines.launch.program import Job, run_job
from dpngram.pipelines.launch.runner import make_pipeline, runs_here
from dpngram.transforms import ExtractLevels
from dpngram.transforms.limit_windows import STREAM_STARTS
from dpngram.transforms.randomness.noise_key import KeyReference
from dpngram.transforms.windowing import check_delay

__all__ = ["run", "stream_messages"]

# Engines that restore no state when a job is started again.
_FORGETFUL = ("PrismRunner", "BundleBasedDirectRunner")
# What the manifest of a window says about the stream.
_ONE_START = (
    "The guarantee is for all windows of one stream, from its start and for as long as the engine keeps its state. A "
    "start without that state counts the windows of each user anew: it is another release, and its epsilon and delta "
    "are added."
)
_STARTED_AGAIN = (
    "This stream was started again without the state of an earlier start under the same key and label. It is another "
    "release than the earlier start: the windows of each user are counted anew, and epsilon and delta are added to "
    "those of the earlier start."
)


def run(argv: Sequence[str]) -> int:
    """Runs the program, until it is stopped or --duration is over; returns the exit status."""
    return run_job(_make_parser(), argv, _prepare)


def _prepare(flags: argparse.Namespace, options: PipelineOptions) -> Job:
    plan = plan_from_flags(flags)
    check_choice("output_format", flags.output_format, tuple(OUTPUT_FORMATS))
    delay = _delay(flags)
    window = _windows(flags, delay)
    _check_source(flags)
    _check_start(flags.start, options)
    _check_key(flags.noise_key, flags.key_records, flags.output, ledger=flags.ledger, deny=flags.deny)
    offline = is_dry_run(options)
    extract = ExtractLevels(
        plan,
        **extraction_arguments(flags),
        max_bad_fraction=1.0,  # windows have no gate
        bound_windows=True,
        window_delay=delay,
        stream_start=flags.start,
        offline=offline,
    )
    account = open_account(
        "stream",
        flags,
        plan,
        extract.settings(),
        local=runs_here(options),
        offline=offline,
        windows=True,
        again=flags.start == "again",
    )
    account.check()
    if flags.input is not None and not offline:
        _look_at_messages(flags, runs_here(options))
    options.view_as(StandardOptions).streaming = True
    pipeline = make_pipeline(options, 0, verbose=flags.verbose)
    messages = _read(pipeline, flags)
    fields = (flags.user_field, flags.text_field, flags.time_field)
    stream_messages(
        messages,
        fields,
        window,
        flags.output,
        plan,
        extract,
        flags.output_format,
        delay=delay,
        again=flags.start == "again",
        release=flags.release,
        deny=read_deny_list(flags.deny, flags.tokenizer, offline=offline),
    )
    warn_of_doubts("dpngram stream", flags, plan)
    account.enter()  # all that the stream may ever spend
    account.show()
    return Job(functools.partial(_run, pipeline), pipeline)


def _run(pipeline: beam.Pipeline) -> int:
    pipeline.run().wait_until_finish()
    return 0


def stream_messages(
    messages: beam.PCollection[MessageBlock],
    fields: tuple[str, str, str | None],
    window: FixedWindows | SlidingWindows,
    output: str,
    plan: ExtractionPlan,
    extract: ExtractLevels,
    output_format: str = "jsonl",
    *,
    delay: float = 0.0,
    again: bool = False,
    release: str = "",
    deny: DenyList = NOTHING_DENIED,
) -> None:
    """The whole graph: messages -> documents by time -> windows -> levels -> a directory for each window.

    Args:
        messages: JSON messages, and when they arrived.
        fields: the names of the fields with user, text and time; no time: that of the arrival.
        window: fixed or sliding windows, shifted by `delay`.
        output: gets a directory for each window with a release.
        plan: the plan of `extract`, for the manifest.
        extract: the transform from documents to levels.
        output_format: one of `OUTPUT_FORMATS`.
        delay: seconds that a message may be late, see `ParseMessages`; `extract` must have it as its `window_delay`.
        again: the stream was started before, and its state is lost; the manifest says so.
        release: the label, for the manifest.
        deny: what is left out of everything that is written.
    """
    tables = (
        messages
        | "Parse" >> ParseMessages(*fields, delay=delay)  # documents at their time, plus the delay
        | "Windows" >> beam.WindowInto(window)
        | EXTRACT_LABEL >> extract  # {n: table of released grams}, for each window
    )
    tables | "Write" >> WriteWindows(
        output,
        plan,
        extract.settings(),
        output_format,
        origin={"user": f"field {fields[0]}", "text": f"field {fields[1]}", "release": release},
        deny=deny,
        stream=_STARTED_AGAIN if again else _ONE_START,
        window_delay=delay,
    )


def _delay(flags: argparse.Namespace) -> float:
    """Seconds that a message may be late. One that has no time but its arrival never is."""
    if flags.time_field is None:
        if flags.max_delay is not None:
            raise ParameterError("max_delay must be left out without time_field: no message is late by its arrival.")
        return 0.0
    return check_number("max_delay", 60.0 if flags.max_delay is None else flags.max_delay, 0.0, 1e9)


def _windows(flags: argparse.Namespace, delay: float) -> FixedWindows | SlidingWindows:
    """The windows of the messages, shifted by the delay: each closes when nothing for it can arrive any more."""
    size, offset = check_number("window", flags.window, 1e-3, 1e9), Timestamp(micros=1000 * check_delay(delay))
    if flags.period is None:
        return FixedWindows(size, offset)
    period = check_number("period", flags.period, 1e-3, 1e9)
    if period > size:
        raise ParameterError(f"period must be at most the window, got {period:g} > {size:g}.")
    return SlidingWindows(size, period, offset)


def _check_source(flags: argparse.Namespace) -> None:
    if [flags.input, flags.subscription, flags.kafka_topic].count(None) != 2:
        raise ParameterError("give either --input or --subscription or --kafka_topic, not both.")
    if (flags.kafka_topic is None) != (flags.kafka_servers is None):
        raise ParameterError("kafka_servers and kafka_topic must be given together.")
    if flags.kafka_topic is not None:
        if flags.poll is not None:
            raise ParameterError("poll must be left out with kafka_topic: a topic is read as it grows.")
        if importlib.util.find_spec("confluent_kafka") is None:
            raise ParameterError("kafka_topic needs the package confluent-kafka: pip install 'dpngram[kafka]'.")
        try:
            read_config(flags.kafka_config)
        except (OSError, UnicodeDecodeError):
            raise ParameterError(f"kafka_config must be a text file, got {flags.kafka_config}.") from None
    elif flags.kafka_config is not None:
        raise ParameterError("kafka_config must be left out without kafka_topic.")
    elif flags.subscription is not None:
        for name in ("poll", "duration"):
            if getattr(flags, name) is not None:
                raise ParameterError(f"{name} must be left out with subscription: Pub/Sub has its own clock.")
    elif FileSystems.get_scheme(flags.input) is None:
        flags.input = os.path.abspath(flags.input)
        if not os.path.isdir(os.path.dirname(flags.input)):
            raise ParameterError(f"input must be a pattern in a directory that exists, got {flags.input!r}.")


def _check_start(start: str, options: PipelineOptions) -> None:
    """Raises ParameterError if this engine cannot continue a stream.

    Privacy: a job that forgot which windows its users were in counts them anew, which is another release.
    """
    check_choice("start", start, STREAM_STARTS)
    runner = options.view_as(StandardOptions).runner
    if start == "continued" and (runs_here(options) or runner in _FORGETFUL):
        raise ParameterError(
            f"start must not be continued with {runner or 'the local runner'}: it keeps nothing of a job that has "
            "ended. --start again is another release, and its epsilon and delta are added."
        )


def _look_at_messages(flags: argparse.Namespace, here: bool) -> None:
    """Raises ParameterError if there are files, and the first messages in the newest of them lack a field.

    Files that cannot be read are left to the stream, which must start again by itself whatever was put there.
    """
    given = [("user_field", flags.user_field), ("text_field", flags.text_field), ("time_field", flags.time_field)]
    wanted = [Wanted((name,), flag) for flag, name in given if name is not None]

    def look(files: dict[str, int]) -> None:
        newest = dict(sorted(files.items(), reverse=True))  # names of files that are added tend to grow
        look_at_files(newest, "jsonl", Look(columns=json_columns), wanted, fields_only=True)

    try:
        files = match_files([flags.input])
    except Exception:  # the stream tries again, and says so
        return
    look_from_here(look, files, here)


def _check_key(reference: str | None, key_records: str | None, output: str, **paths: str | None) -> None:
    """Raises ParameterError if this key cannot serve a stream.

    A stream is started again, and must then find the same key. The record of a key has a file for every window that
    had data, beside a key file among other places, so neither must be in the output.
    """
    if reference is None:
        raise ParameterError("noise_key must be given: a stream that is started again needs the same noise.")
    key = KeyReference.parse(reference)
    if key.scheme == "gcp-secret" and not re.search(r"/versions/\d+$", key.location):
        raise ParameterError("noise_key must name a version of the secret (/versions/N): a stream outlives a rotation.")
    check_apart(output, noise_key=reference, key_records=key_records, **paths)  # it names windows that had data


def _read(pipeline: beam.Pipeline, flags: argparse.Namespace) -> beam.PCollection[MessageBlock]:
    """Messages and their arrivals, in the global window."""
    if flags.subscription is not None:
        from apache_beam.io import ReadFromPubSub

        messages = pipeline | "Read" >> ReadFromPubSub(subscription=flags.subscription)
        return messages | "Arrival" >> beam.Map(_with_arrival) | "Gather" >> GatherMessages()
    stop = None
    if flags.duration is not None:
        stop = time.time() + check_number("duration", flags.duration, 0.0, 1e9)
    if flags.kafka_topic is not None:
        return pipeline | "Read" >> ReadKafka(flags.kafka_servers, flags.kafka_topic, flags.kafka_config, stop)
    interval = check_number("poll", 5.0 if flags.poll is None else flags.poll, 0.1, 1e6)
    return pipeline | "Read" >> PollFiles(flags.input, interval=interval, stop=stop)


def _with_arrival(message: bytes, published: Any = beam.DoFn.TimestampParam) -> tuple[bytes, int]:
    return message, published.micros // 1000


def _make_parser() -> OneLineParser:
    parser = OneLineParser(
        prog="dpngram stream",
        description="Release n-grams from messages as they arrive, window by window. Any other flag goes to Beam.",
    )
    parser.add_flags([*budget_flags(), users_flag(), *ledger_flags()], "budget")
    parser.add_flags(_data_flags(), "data")
    parser.add_flags(_window_flags(), "windows")
    extraction = extraction_flags("stream", "required, and a secret needs its version", shards=16)
    parser.add_flags([*extraction, pruning_flag(), *screen_flags(progress=False)], "extraction")
    return parser


def _data_flags() -> list[Flag]:
    output = "directory that gets a new directory for each window with a release"
    return [
        Flag(
            "input",
            "pattern of files of JSON lines, which must be renamed into place when they are whole",
            Kind.PATH,
            metavar="PATTERN",
        ),
        Flag("subscription", "instead of --input: projects/P/subscriptions/S of Pub/Sub"),
        Flag("kafka_servers", "with --kafka_topic: HOST:PORT of brokers, separated by commas"),
        Flag("kafka_topic", "instead of --input: a topic with message.timestamp.type=LogAppendTime, keyed by user"),
        Flag(
            "kafka_config",
            "file, here and on every worker, with more settings for librdkafka (passwords), name=value on each line",
            Kind.PATH,
        ),
        Flag("output", output, Kind.PATH, required=True, metavar="DIR"),
        Flag("user_field", "field with the name of the user", default="user"),
        Flag("text_field", "field with the text", default="text"),
        Flag("time_field", "field with Unix seconds or an ISO 8601 time (default: the time of arrival)"),
        output_format_flag(),
        deny_flag(),
    ]


def _window_flags() -> list[Flag]:
    return [
        Flag("window", "length of a window in seconds", Kind.NUMBER, required=True),
        Flag("period", "seconds from the start of one window to the next (default: --window)", Kind.NUMBER),
        Flag(
            "start",
            "new: the first start; continued: the engine restores the state of the job; again: without that state, "
            "which is another release, and its epsilon and delta are added",
            default="new",
            choices=STREAM_STARTS,
        ),
        Flag(
            "max_delay",
            "with --time_field: seconds that a message may be late; windows wait as long (default 60)",
            Kind.NUMBER,
        ),
        Flag("poll", "files: seconds between two looks at the directory (default 5)", Kind.NUMBER),
        Flag("duration", "files and Kafka: seconds until the program ends (default: never)", Kind.NUMBER),
    ]

"""The flags of `dpngram stream`, and what is refused before anything is read."""

import argparse
import importlib.util
import os
import re
from typing import Any

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, StandardOptions
from apache_beam.transforms.window import FixedWindows, SlidingWindows
from apache_beam.utils.timestamp import Timestamp

from dpngram.accounting import ParameterError
from dpngram.accounting.parameters import check_choice, check_number
from dpngram.pipelines.io.kafka_topic import KafkaError, Topic, TopicLook, look_at_topic, read_config
from dpngram.pipelines.launch.dataflow import is_dataflow
from dpngram.pipelines.launch.extraction_flags import (
    deny_flag,
    extraction_flags,
    output_format_flag,
    pruning_flag,
    screen_flags,
)
from dpngram.pipelines.launch.flags import Flag, Kind, OneLineParser, budget_flags, users_flag
from dpngram.pipelines.launch.flink import restores_state
from dpngram.pipelines.launch.input_flags import check_apart
from dpngram.pipelines.launch.ledger_flags import ledger_flags
from dpngram.pipelines.launch.runner import runs_here
from dpngram.transforms.limit_windows import STREAM_STARTS
from dpngram.transforms.messages import Message
from dpngram.transforms.randomness.noise_key import KeyReference
from dpngram.transforms.windowing import check_delay

__all__ = [
    "STARTS",
    "can_replay",
    "check_source",
    "check_start",
    "check_stream_key",
    "check_topic",
    "delay_of",
    "stream_parser",
    "windows_of",
]

STARTS = (*STREAM_STARTS[:2], "replayed", *STREAM_STARTS[2:])
_PATIENCE = 3.0  # seconds to wait for an answer of a broker
# Engines that restore no state when a job is started again.
_FORGETFUL = ("PrismRunner", "BundleBasedDirectRunner")


def stream_parser() -> OneLineParser:
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
        Flag("kafka_output", "with --kafka_topic: a topic that gets a record for each window, too", metavar="TOPIC"),
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
            "new: the first start; continued: the engine restores the state of the job; replayed: without that state, "
            "a Kafka topic is read once more from its first message, which is the same release; again: without that "
            "state, which is another release, and its epsilon and delta are added",
            default="new",
            choices=STARTS,
        ),
        Flag(
            "max_delay",
            "with --time_field: seconds that a message may be late; windows wait as long (default 60)",
            Kind.NUMBER,
        ),
        Flag("poll", "files: seconds between two looks at the directory (default 5)", Kind.NUMBER),
        Flag("duration", "files and Kafka: seconds until the program ends (default: never)", Kind.NUMBER),
    ]


def delay_of(flags: argparse.Namespace) -> float:
    """Seconds that a message may be late. One that has no time but its arrival never is."""
    if flags.time_field is None:
        if flags.max_delay is not None:
            raise ParameterError("max_delay must be left out without time_field: no message is late by its arrival.")
        return 0.0
    return check_number("max_delay", 60.0 if flags.max_delay is None else flags.max_delay, 0.0, 1e9)


def windows_of(flags: argparse.Namespace, delay: float) -> FixedWindows | SlidingWindows:
    """The windows of the messages, shifted by the delay: each closes when nothing for it can arrive any more."""
    size, offset = check_number("window", flags.window, 1e-3, 1e9), Timestamp(micros=1000 * check_delay(delay))
    if flags.period is None:
        return FixedWindows(size, offset)
    period = check_number("period", flags.period, 1e-3, 1e9)
    if period > size:
        raise ParameterError(f"period must be at most the window, got {period:g} > {size:g}.")
    return SlidingWindows(size, period, offset)


def check_source(flags: argparse.Namespace) -> None:
    if [flags.input, flags.subscription, flags.kafka_topic].count(None) != 2:
        raise ParameterError("give either --input or --subscription or --kafka_topic, not both.")
    if (flags.kafka_topic is None) != (flags.kafka_servers is None):
        raise ParameterError("kafka_servers and kafka_topic must be given together.")
    if flags.kafka_output is not None:
        if flags.kafka_topic is None or flags.kafka_output == flags.kafka_topic:
            raise ParameterError("kafka_output must be another topic beside kafka_topic.")
        if flags.output_format != "jsonl":
            raise ParameterError("kafka_output needs output_format jsonl: a record holds lines.")
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


def check_topic(topic: Topic) -> TopicLook | None:
    """Raises ParameterError if a broker that answers says that this topic is not for streams; otherwise what it is.

    None: the brokers may be out of reach of this machine. Workers look again, before they read.
    """
    try:
        return look_at_topic(topic, patience=_PATIENCE)
    except KafkaError as error:
        if str(error) != Message.KAFKA_TOPIC_UNKNOWN.format():
            raise ParameterError(str(error)) from None
        return None


def can_replay(flags: argparse.Namespace, options: PipelineOptions) -> bool:
    """Whether the stream can be read once more, and it is remembered what it was."""
    return flags.kafka_topic is not None and _is_remembered(flags, options)


def _is_remembered(flags: argparse.Namespace, options: PipelineOptions) -> bool:
    return KeyReference.parse(flags.noise_key, flags.key_records, remote=not runs_here(options)).is_remembered


def check_start(flags: argparse.Namespace, options: PipelineOptions) -> None:
    """Raises ParameterError if this engine cannot continue a stream.

    Privacy: a job that forgot which windows its users were in counts them anew, which is another release, unless it
    reads the same messages from the first on. Only a topic says whether it does, and only a record what they were. An
    engine goes on from another job's state if it is told so, and begins without any if not, in silence.
    """
    start = check_choice("start", flags.start, STARTS)
    runner = options.view_as(StandardOptions).runner
    if start == "continued" and (runs_here(options) or runner in _FORGETFUL):
        raise ParameterError(
            f"start must not be continued with {runner or 'the local runner'}: it keeps nothing of a job that has "
            "ended. --start again is another release, and its epsilon and delta are added."
        )
    google: Any = options.view_as(GoogleCloudOptions)
    restored = restores_state(options, flags.beam_flags) or (is_dataflow(options) and google.update)
    if start == "continued" and not (restored or can_replay(flags, options)):
        raise ParameterError(
            "start must not be continued without --savepoint_path on Flink, or --update on Dataflow: the engine would "
            "begin without the state. --start again is another release, and its epsilon and delta are added."
        )
    if start == "replayed" and not can_replay(flags, options):
        raise ParameterError(
            "start must not be replayed without kafka_topic and a key whose use is remembered (--key_records): nothing "
            "would tell whether the messages are the same."
        )


def check_stream_key(reference: str | None, key_records: str | None, output: str, **paths: str | None) -> None:
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

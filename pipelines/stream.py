"""`dpngram stream`: releases private n-grams from messages as they arrive, a release for each window of time."""

import argparse
import functools
import secrets
import time
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.transforms.window import FixedWindows, SlidingWindows

from dpngram.accounting import ExtractionPlan
from dpngram.accounting.parameters import check_choice, check_number
from dpngram.pipelines.io.deny_list import NOTHING_DENIED, DenyList, read_deny_list
from dpngram.pipelines.io.encoding import OUTPUT_FORMATS
from dpngram.pipelines.io.kafka import ReadKafka, StreamStart
from dpngram.pipelines.io.kafka_output import SendWindows
from dpngram.pipelines.io.kafka_topic import Topic, TopicLook
from dpngram.pipelines.io.look import Look, Wanted, json_columns, look_at_files
from dpngram.pipelines.io.messages import GatherMessages, MessageBlock, ParseMessages
from dpngram.pipelines.io.polling import PollFiles
from dpngram.pipelines.io.reading import match_files
from dpngram.pipelines.io.writing import WriteWindows
from dpngram.pipelines.launch.beam_flags import beam_options
from dpngram.pipelines.launch.dataflow import is_dry_run
from dpngram.pipelines.launch.extraction_flags import extraction_arguments
from dpngram.pipelines.launch.flags import plan_from_flags, warn_of_doubts
from dpngram.pipelines.launch.flink import stream_settings
from dpngram.pipelines.launch.input_flags import look_from_here
from dpngram.pipelines.launch.ledger_flags import EXTRACT_LABEL, open_account
from dpngram.pipelines.launch.program import Job, run_job
from dpngram.pipelines.launch.runner import make_pipeline, runs_here
from dpngram.pipelines.launch.stream_flags import (
    can_replay,
    check_source,
    check_start,
    check_stream_key,
    check_topic,
    delay_of,
    stream_parser,
    windows_of,
)
from dpngram.transforms import ExtractLevels
from dpngram.transforms.bind_release import choose_key
from dpngram.transforms.randomness.noise_key import Randomness, settings_digest

__all__ = ["run", "stream_messages"]

# What the manifest of a window says about the stream.
_ONE_START = (
    "The guarantee is for all windows of one stream, from its start and for as long as the engine keeps its state. A "
    "start without that state counts the windows of each user anew, unless it reads the same messages once more: it is "
    "another release, and its epsilon and delta are added."
)
_STARTED_AGAIN = (
    "This stream was started again without the state of an earlier start under the same key and label. It is another "
    "release than the earlier start: the windows of each user are counted anew, and epsilon and delta are added to "
    "those of the earlier start."
)


def run(argv: Sequence[str]) -> int:
    """Runs the program, until it is stopped or --duration is over; returns the exit status."""
    return run_job(stream_parser(), argv, _prepare)


def _prepare(flags: argparse.Namespace, options: PipelineOptions) -> Job:
    plan = plan_from_flags(flags)
    check_choice("output_format", flags.output_format, tuple(OUTPUT_FORMATS))
    delay = delay_of(flags)
    window = windows_of(flags, delay)
    check_source(flags)
    check_stream_key(flags.noise_key, flags.key_records, flags.output, ledger=flags.ledger, deny=flags.deny)
    check_start(flags, options)
    duration = None if flags.duration is None else check_number("duration", flags.duration, 0.0, 1e9)
    added = stream_settings(options, flags.beam_flags, replays=can_replay(flags, options), duration=duration)
    if added:
        options = beam_options([*flags.beam_flags, *added])
    offline = is_dry_run(options)
    extract = ExtractLevels(
        plan,
        **extraction_arguments(flags),
        user_field=flags.user_field,  # the state counts the windows of its values
        max_bad_fraction=1.0,  # windows have no gate
        bound_windows=True,
        window_delay=delay,
        stream_start="continued" if flags.start == "replayed" else flags.start,  # no reason to stop: see StreamStart
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
    look = None if offline else _look_at_messages(flags, runs_here(options))
    options.view_as(StandardOptions).streaming = True
    pipeline = make_pipeline(options, 0, verbose=flags.verbose)
    stop = None if duration is None else time.time() + duration
    messages = _read(pipeline, flags, stop, extract.settings(), look)
    fields = (flags.user_field, flags.text_field, flags.time_field)
    manifests = stream_messages(
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
    if flags.kafka_output is not None:
        manifests | "Records" >> SendWindows(Topic(flags.kafka_servers, flags.kafka_output, flags.kafka_config))
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
) -> beam.PCollection[str]:
    """The whole graph: messages -> documents by time -> windows -> levels -> a directory for each window.

    Gives the path of the manifest of each window that has a release.

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
    return tables | "Write" >> WriteWindows(
        output,
        plan,
        extract.settings(),
        output_format,
        origin={"user": f"field {fields[0]}", "text": f"field {fields[1]}", "release": release},
        deny=deny,
        stream=_STARTED_AGAIN if again else _ONE_START,
        window_delay=delay,
    )


def _look_at_messages(flags: argparse.Namespace, here: bool) -> TopicLook | None:
    """Raises ParameterError if there are files, and the first messages in the newest of them lack a field; or if a
    topic cannot be read as a stream.

    Files that cannot be read are left to the stream, which must start again by itself whatever was put there.
    """
    if flags.kafka_topic is not None:
        return check_topic(Topic(flags.kafka_servers, flags.kafka_topic, flags.kafka_config))
    if flags.input is None:
        return None
    given = [("user_field", flags.user_field), ("text_field", flags.text_field), ("time_field", flags.time_field)]
    wanted = [Wanted((name,), flag) for flag, name in given if name is not None]

    def look(files: dict[str, int]) -> None:
        newest = dict(sorted(files.items(), reverse=True))  # names of files that are added tend to grow
        look_at_files(newest, "jsonl", Look(columns=json_columns), wanted, fields_only=True)

    try:
        files = match_files([flags.input])
    except Exception:  # the stream tries again, and says so
        return None
    look_from_here(look, files, here)
    return None


def _read(
    pipeline: beam.Pipeline,
    flags: argparse.Namespace,
    stop: float | None,
    settings: dict[str, Any],
    look: TopicLook | None,
) -> beam.PCollection[MessageBlock]:
    """Messages and their arrivals, in the global window."""
    if flags.subscription is not None:
        from apache_beam.io import ReadFromPubSub

        messages = pipeline | "Read" >> ReadFromPubSub(subscription=flags.subscription)
        return messages | "Arrival" >> beam.Map(_with_arrival) | "Gather" >> GatherMessages()
    if flags.kafka_topic is not None:
        topic = Topic(flags.kafka_servers, flags.kafka_topic, flags.kafka_config, stop)
        start = _start_of(pipeline, flags, settings)
        if look is not None:
            start.look_ahead(look)
        return pipeline | "Read" >> ReadKafka(topic, start)
    interval = check_number("poll", 5.0 if flags.poll is None else flags.poll, 0.1, 1e6)
    return pipeline | "Read" >> PollFiles(flags.input, interval=interval, stop=stop)


def _start_of(pipeline: beam.Pipeline, flags: argparse.Namespace, settings: dict[str, Any]) -> StreamStart:
    """What a start of this stream is compared by. Shards are compared on their own, see `LimitWindowsPerUser`."""
    offline = is_dry_run(pipeline.options)
    key = choose_key(pipeline, flags.noise_key, flags.key_records, offline=offline)
    randomness = Randomness(key, flags.release, EXTRACT_LABEL, settings_digest(settings))
    names = ("user_field", "text_field", "time_field", "window", "period", "max_delay")
    return StreamStart(
        randomness,
        settings_digest({**{name: getattr(flags, name) for name in names}, "extract": settings}),
        again=secrets.token_hex(16) if flags.start == "again" else "",
        replayed=flags.start in ("replayed", "continued"),  # an engine that has the state does not come here
    )


def _with_arrival(message: bytes, published: Any = beam.DoFn.TimestampParam) -> tuple[bytes, int]:
    return message, published.micros // 1000

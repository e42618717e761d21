"""Flags of a stream; tests/pipelines/test_stream.py has what the program says to each that is wrong."""

import pytest
from apache_beam.transforms.window import FixedWindows, SlidingWindows
from apache_beam.utils.timestamp import Timestamp

from dpngram.accounting import ParameterError
from dpngram.pipelines.io.kafka_topic import KafkaError, Topic
from dpngram.pipelines.launch import stream_flags
from dpngram.pipelines.launch.beam_flags import beam_options
from dpngram.pipelines.launch.stream_flags import (
    can_replay,
    check_start,
    check_topic,
    delay_of,
    stream_parser,
    windows_of,
)
from dpngram.transforms.messages import Message

NEEDED = ["--epsilon=4", "--delta=1e-6", "--max_n=2", "--max_contributions=5", "--output=out", "--window=60"]


def parse(*words):
    return stream_parser().parse_args([*NEEDED, *words])


def test_windows_wait_for_what_is_late():
    assert delay_of(parse()) == 0.0
    assert delay_of(parse("--time_field=t")) == 60.0
    assert windows_of(parse(), 5.0) == FixedWindows(60, Timestamp(5))
    assert windows_of(parse("--period=20"), 0.0) == SlidingWindows(60, 20)


@pytest.mark.parametrize(
    ("words", "can"),
    [
        (["--kafka_topic=t", "--noise_key=key"], True),
        (["--input=in", "--noise_key=key"], False),
        (["--kafka_topic=t", "--noise_key=env:KEY"], False),  # workers keep no record
        (["--kafka_topic=t", "--noise_key=env:KEY", "--key_records=records"], True),
    ],
)
def test_what_can_be_read_once_more(words, can):
    options, flags = beam_options(["--runner=PortableRunner"]), parse(*words, "--start=replayed")
    flags.beam_flags = []
    assert can_replay(flags, options) is can
    if can:
        check_start(flags, options)
    else:
        with pytest.raises(ParameterError, match="start must not be replayed without kafka_topic and a key"):
            check_start(flags, options)


@pytest.mark.parametrize(
    ("words", "beam_words", "may"),
    [
        (["--input=in"], ["--runner=PortableRunner"], False),
        (["--input=in"], ["--runner=PortableRunner", "--savepoint_path=there"], True),
        (["--input=in"], ["--runner=FlinkRunner", "--update"], False),
        (["--input=in"], ["--runner=DataflowRunner"], False),
        (["--input=in"], ["--runner=DataflowRunner", "--update"], True),
        (["--kafka_topic=t"], ["--runner=PortableRunner"], True),  # without the state it is read once more
    ],
)
def test_what_can_be_continued(words, beam_words, may):
    """Who says that the engine restores the state must also say it to the engine."""
    flags = parse(*words, "--noise_key=key", "--start=continued")
    flags.beam_flags = beam_words
    if may:
        check_start(flags, beam_options(beam_words))
    else:
        with pytest.raises(ParameterError, match="must not be continued without --savepoint_path"):
            check_start(flags, beam_options(beam_words))


def test_a_topic_is_looked_at(monkeypatch):
    """What a broker says is an error; that none answers is left to the workers."""
    said = KafkaError(Message.KAFKA_COMPACTED.format())

    def look(_topic, patience):
        raise said

    monkeypatch.setattr(stream_flags, "look_at_topic", look)
    with pytest.raises(ParameterError, match="cleanup"):
        check_topic(Topic("servers", "topic"))
    said = KafkaError(Message.KAFKA_TOPIC_UNKNOWN.format())
    check_topic(Topic("servers", "topic"))

"""`dpngram stream` without an engine: its flags, its messages, its windows on disk. Engines run it in tests/engines."""

import json
import types

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.window import FixedWindows, SlidingWindows, WindowFn
from apache_beam.utils.timestamp import Timestamp
from helpers.runs import files, small_corpus

from dpngram.accounting import ParameterError, plan_extraction
from dpngram.pipelines.cli import main
from dpngram.pipelines.io.messages import GatherMessages, MessageBlock, MessageFields, _ParseDoFn
from dpngram.pipelines.stream import stream_messages
from dpngram.transforms import ExtractLevels
from dpngram.transforms.blocks.columns import binary_array
from dpngram.transforms.document_form import DocumentForm
from dpngram.transforms.limit_windows import _AdmitDoFn, _ShardDoFn
from dpngram.transforms.randomness.noise_key import KeyReference, Randomness
from dpngram.transforms.testing import exact_plan, key_source

FLAGS = {
    "--epsilon": "4",
    "--delta": "1e-6",
    "--max_n": "2",
    "--max_contributions": "10",
    "--window": "60",
    "--output": "out",
    "--noise_key": "key",
}


KAFKA = {"input": None, "kafka_topic": "t", "kafka_servers": "127.0.0.1:1"}


def stream(directory, **changes):
    flags = {**FLAGS, "--input": str(directory / "*.jsonl"), **{f"--{name}": value for name, value in changes.items()}}
    words = [word for flag, value in flags.items() if value is not None for word in (flag, str(value))]
    try:
        return main(["stream", *words])
    except SystemExit as stop:
        return stop.code


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"window": 0}, "window must be"),
        ({"window": "long"}, "window must be"),
        ({"period": 120}, "period must be at most the window"),
        ({"period": 20, "windows": 2, "runner": "PrismRunner"}, "windows must be at least 3"),
        ({"noise_key": None}, "noise_key must be given"),
        ({"input": None}, "give either --input or --subscription"),
        ({"subscription": "projects/p/subscriptions/s"}, "not both"),
        ({"kafka_topic": "t", "kafka_servers": "s:1"}, "not both"),
        ({"input": None, "kafka_topic": "t"}, "kafka_servers and kafka_topic must be given together"),
        ({"kafka_servers": "s:1"}, "kafka_servers and kafka_topic must be given together"),
        ({"kafka_config": "file"}, "kafka_config must be left out without kafka_topic"),
        ({**KAFKA, "poll": 3}, "poll must be left out with kafka_topic"),
        ({**KAFKA, "kafka_config": "nowhere"}, "kafka_config must be a text file"),
        ({"kafka_output": "o"}, "kafka_output must be another topic beside kafka_topic"),
        ({**KAFKA, "kafka_output": "t"}, "kafka_output must be another topic beside kafka_topic"),
        ({**KAFKA, "kafka_output": "o", "output_format": "csv"}, "kafka_output needs output_format jsonl"),
        ({"start": "replayed"}, "start must not be replayed without kafka_topic"),
        (
            {**KAFKA, "runner": "PortableRunner", "checkpointing_interval": 1000},
            "needs --finish_bundle_before_checkpointing",
        ),
        (KAFKA, "runner must be one for streams"),
        ({"input": "nowhere/*.jsonl"}, "input must be a pattern in a directory that exists"),
        ({"max_delay": -1, "time_field": "time"}, "max_delay must be"),
        ({"max_delay": 60}, "max_delay must be left out without time_field"),
        ({"max_delay": 0.00015, "time_field": "time"}, "window_delay must be whole milliseconds"),
        ({"input": None, "subscription": "projects/p/subscriptions/s", "poll": 3}, "poll must be left out"),
        ({"noise_key": "out/key"}, "noise_key must not be in the output"),
        ({"key_records": "out/records"}, "key_records must not be in the output"),
        ({"start": "anew"}, "start must be one of"),
        ({"start": "continued"}, "start must not be continued with the local runner"),
        (
            {"start": "continued", "runner": "PrismRunner"},
            "start must not be continued with PrismRunner: it keeps noth",
        ),
        ({"noise_key": "gcp-secret:projects/p/secrets/s"}, "noise_key must name a version"),
        ({"poll": 0}, "poll must be"),
        ({"output_format": "xml"}, "output_format must be"),
        ({"runner": "DaskRunner"}, "runner must not be DaskRunner"),
        ({}, "runner must be one for streams"),
        ({"frobnicate": 1}, "flag must be one of dpngram's or Beam's"),
    ],
)
def test_one_line_and_status_2(tmp_path, monkeypatch, capsys, changes, message):
    monkeypatch.chdir(tmp_path)
    assert stream(tmp_path, **changes) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1


def release(output, posts, window, plan, delay=0.0, arrival=None, **options):
    extract = ExtractLevels(plan, noise_key=str(output) + ".key", shards=4, bound_windows=True, window_delay=delay)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        messages = (
            pipeline
            | beam.Create([(json.dumps({**post, "time": at}).encode(), 1000 * (arrival or at)) for at, post in posts])
            | GatherMessages()
        )
        fields = ("user", "text", "time")
        stream_messages(messages, fields, window, str(output), plan, extract, delay=delay, **options)


def test_a_directory_for_each_window_with_a_release(tmp_path):
    """The second window has one post, which cannot be released; nothing tells that it was there."""
    rows = small_corpus(200)
    plan = plan_extraction(epsilon=20, delta=1e-5, max_n=2, max_contributions=12, windows=3)
    posts = [(30, row) for row in rows] + [(90, rows[0])] + [(150, row) for row in rows]
    release(tmp_path / "out", posts, FixedWindows(60), plan)
    names = [f"1970-01-01T00-0{2 * i}-00Z--1970-01-01T00-0{2 * i + 1}-00Z" for i in range(2)]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    for name in names:
        manifest = json.loads((tmp_path / "out" / name / "manifest.json").read_text())
        assert manifest["released"] > 10
        assert "at most 3 windows" in manifest["guarantee"]
    first, second = (files(tmp_path / "out" / name) for name in names)
    assert first["ngrams-01.jsonl"] != second["ngrams-01.jsonl"]  # each window has noise of its own


def test_the_delay_leaves_no_trace(tmp_path):
    """A stream that waits for late messages, and a batch of the same: the same directories, with the same bytes."""
    plan = plan_extraction(epsilon=20, delta=1e-5, max_n=2, max_contributions=12, windows=2)
    posts = [(at, row) for at in (30, 90) for row in small_corpus(200)]
    release(tmp_path / "batch", posts, FixedWindows(60), plan)
    (tmp_path / "late.key").write_bytes((tmp_path / "batch.key").read_bytes())
    (tmp_path / "late.key").chmod(0o600)
    late = FixedWindows(60, offset=Timestamp(100))
    release(tmp_path / "late", posts, late, plan, delay=100.0, arrival=119)
    names = sorted(path.name for path in (tmp_path / "batch").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "late").iterdir())
    assert len(names) == 2
    for name in names:
        assert files(tmp_path / "batch" / name) == files(tmp_path / "late" / name)


def test_the_bound_is_on_with_one_window(tmp_path):
    rows = small_corpus(200)
    plan = plan_extraction(epsilon=20, delta=1e-5, max_n=2, max_contributions=12)
    release(tmp_path / "out", [(at, row) for at in (30, 90, 150) for row in rows], FixedWindows(60), plan)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["1970-01-01T00-00-00Z--1970-01-01T00-01-00Z"]


def test_the_program_bounds_windows(tmp_path, monkeypatch):
    """Also with one window, where a graph of one's own would have to ask for it."""
    given = {}

    def stop(_plan, **arguments):
        given.update(arguments)
        raise ParameterError("test must end here.")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dpngram.pipelines.stream.ExtractLevels", stop)
    assert stream(tmp_path) == 2
    assert given["bound_windows"] is True


@pytest.mark.parametrize(
    ("start", "replayed", "again"),
    [("new", False, False), ("replayed", True, False), ("continued", True, False), ("again", False, True)],
)
def test_what_a_start_is_compared_by(tmp_path, monkeypatch, start, replayed, again):
    """Fields, windows and settings; a start that claims to be the same stream must find a record of it."""
    given = []

    def stop(_topic, start):
        given.append(start)
        raise ParameterError("test must end here.")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dpngram.pipelines.stream.ReadKafka", stop)
    monkeypatch.setattr("dpngram.pipelines.stream.check_topic", lambda _topic: None)
    flags = {**KAFKA, "runner": "PortableRunner", "start": start, "time_field": "time"}
    changes = [
        {},
        {},
        {"window": 61},
        {"period": 30, "windows": 2},
        {"max_delay": 9},
        {"text_field": "x"},
        {"max_n": 3},
    ]
    for change in changes:
        assert stream(tmp_path, **{**flags, **change}) == 2
    assert {(one.replayed, bool(one.again)) for one in given} == {(replayed, again)}
    assert len({one.settings for one in given}) == len(changes) - 1
    assert len({one.again for one in given}) == (len(changes) if again else 1)


def test_a_window_is_not_released_twice(tmp_path):
    """With other noise it would be a second release; with the same, it is the same."""
    posts = [(30, row) for row in small_corpus(200)]
    plan = plan_extraction(epsilon=20, delta=1e-5, max_n=1, max_contributions=12)
    release(tmp_path / "out", posts, FixedWindows(60), plan)
    (window,) = (tmp_path / "out").iterdir()
    before = files(window)
    release(tmp_path / "out", posts, FixedWindows(60), plan)
    (tmp_path / "out.key").unlink()
    with pytest.raises(Exception, match="a window of the output has a release already"):
        release(tmp_path / "out", posts, FixedWindows(60), plan)
    assert files(window) == before


def test_a_second_start_is_refused(tmp_path, monkeypatch, capsys):
    """A start without the job's state counts windows anew: only if it is asked for by name, or under a new label."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dpngram.pipelines.stream._run", lambda pipeline: 0)
    assert stream(tmp_path, runner="PrismRunner") == 0
    assert stream(tmp_path, runner="PrismRunner") == 0  # it was never run, so nothing was counted
    started = Randomness(KeyReference.parse("key"), "", "ExtractNgrams", "{}").open()
    started.start_stream("before")
    capsys.readouterr()
    (tmp_path / "link").symlink_to("key")
    for key in ("key", "link"):
        assert stream(tmp_path, runner="PrismRunner", noise_key=key) == 2
        errors = capsys.readouterr().err
        assert "a stream was started with" in errors
        assert "--start again" in errors
        assert errors.count("\n") == 1
    continued = {"start": "continued", "runner": "PortableRunner", "savepoint_path": "there"}
    for changes in ({"start": "again"}, continued, {"release": "next"}):
        assert stream(tmp_path, **{"runner": "PrismRunner", **changes}) == 0
    assert stream(tmp_path, runner="PrismRunner", start="never") == 2


def test_a_stream_that_was_started_again_says_so(tmp_path):
    """In the manifest. A window that both starts release with the same bytes is one release, and stays as it is."""
    plan = plan_extraction(epsilon=20, delta=1e-5, max_n=1, max_contributions=12, windows=2)
    posts = [(30, row) for row in small_corpus(200)]
    release(tmp_path / "out", posts, FixedWindows(60), plan)
    (first,) = (tmp_path / "out").iterdir()
    before = files(first)
    assert "one stream, from its start" in json.loads(before["manifest.json"])["stream"]
    posts += [(90, row) for row in small_corpus(200)]
    release(tmp_path / "out", posts, FixedWindows(60), plan, again=True)
    assert files(first) == before
    (second,) = set((tmp_path / "out").iterdir()) - {first}
    said = json.loads((second / "manifest.json").read_text())["stream"]
    assert said.startswith("This stream was started again")
    assert "It is another release" in said


def in_windows(reads, most=1):
    """(text, window in seconds) of what is kept of u, on an engine like Prism: what waits for a key is taken in the
    order of its times, and of the steps that made it. A window has 10 s, the delay 20 s.
    """
    windows, randomness = FixedWindows(10), key_source(b"n" * 32).randomness
    parse = _ParseDoFn(MessageFields("user", "text", "time"), 20_000)
    shard, admission = (
        step(windows, randomness, *more) for step, more in ((_ShardDoFn, (DocumentForm(), 1)), (_AdmitDoFn, (most,)))
    )
    shard.setup()
    admission.setup()
    waiting = []
    for arrival, messages in reads:
        block = MessageBlock.of(
            [json.dumps(message).encode() for message in messages], [1000 * arrival] * len(messages)
        )
        shard.start_bundle()
        for parsed in parse.process(block):
            (window,) = windows.assign(WindowFn.AssignContext(parsed.timestamp))
            waiting += shard.process(parsed.value, parsed.timestamp, window)
        waiting += shard.finish_bundle()
    state = types.SimpleNamespace(value=b"", read=lambda: state.value, set=lambda due: None)
    state.write = lambda value: vars(state).update(value=value)
    kept = []
    for element in sorted(waiting, key=lambda element: element.timestamp):  # stable
        for one in admission.process(element.value, state, state):
            rows = zip(one.value.users.to_pylist(), strings(one.value), strict=True)
            kept += [(text, one.timestamp.micros // 10**7 * 10 - 20) for user, text in rows if user == b"u"]
    return kept


def strings(block):
    return [text.decode() for text in binary_array(block.offsets, block.data).to_pylist()]


def test_others_do_not_decide_when_a_user_is_read(monkeypatch):
    """Blocks that wait for an engine keep the order of their arrival, whatever times other users write in them."""
    monkeypatch.setenv("unused", "ab" * 32)

    def message(user, text, time):
        return {"user": user, "text": text, "time": time}

    mine = [[message("u", "first", 98)], [message("u", "second", 101)]]
    assert in_windows([(100, mine[0]), (101, mine[1])]) == [("first", 90)]
    for other in (82, 99, 150):
        late = message("v", "x", other)
        assert in_windows([(100, mine[0]), (101, [*mine[1], late])]) == [("first", 90)]
        assert in_windows([(100, [late, *mine[0]]), (101, mine[1])]) == [("first", 90)]
    # Nor does the user, by times that go backwards.
    assert in_windows([(100, mine[1]), (101, [message("u", "late", 85)])]) == [("second", 100)]


def test_plans_without_privacy_are_refused(tmp_path):
    with pytest.raises(ParameterError, match="plan must be one that gives privacy"):
        release(tmp_path / "out", [], SlidingWindows(60, 60), exact_plan(max_n=1, threshold=1.0))


def test_messages_are_looked_at(tmp_path, capsys):
    """The newest that are there, if any are; broken files are left to the stream."""
    runner = "runner must be one for streams"  # what is said when nothing else is wrong
    stream(tmp_path, time_field="when")
    assert runner in capsys.readouterr().err
    (tmp_path / "a.jsonl").write_text('{"user": "a", "text": "b"}\n')
    assert stream(tmp_path, time_field="when") == 2
    said = f"no field 'when' in the only record of {tmp_path}/a.jsonl; it has user, text (--time_field)\n"
    assert said in capsys.readouterr().err
    assert stream(tmp_path) == 2
    assert runner in capsys.readouterr().err
    (tmp_path / "b.jsonl").write_text('{"user": "a", "text": "b", "when": 1}\n')
    stream(tmp_path, time_field="when")
    assert runner in capsys.readouterr().err
    (tmp_path / "b.jsonl").write_bytes(b"\x1f\x8b packed")
    stream(tmp_path, time_field="when")
    assert runner in capsys.readouterr().err

"""The one line of a failed run: every message of a worker reaches the user, and nothing else of what it said."""

import io
import json

import apache_beam as beam
import fastavro
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from helpers.runs import extract, small_corpus

from dpngram.pipelines import extract as program
from dpngram.pipelines.launch.failures import failure_line, failure_message
from dpngram.transforms.messages import Message

VALUES = {"key": "/tmp/secret/a.key", "kind": "PermissionError", "allowed": 0.25, "sigma": 1.5e9}


def sentence(one, key):
    return one.format(**{**dict.fromkeys(one.numbers, 1234), **VALUES, "key": key})


def fail(_element, text):
    raise ValueError(text)


@pytest.mark.parametrize("one", Message)
def test_every_message_reaches_the_user(one):
    """Through the local runner, which makes one text of a worker's traceback; the key is named as the user named it."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    pipeline | "Start" >> beam.Impulse() | "Step" >> beam.Map(fail, sentence(one, VALUES["key"]))
    with pytest.raises(Exception, match="Step") as caught:
        pipeline.run().wait_until_finish()
    assert failure_line(caught.value, pipeline, "env:MINE") == sentence(one, "env:MINE")
    assert failure_message(caught.value) is one


def test_the_last_message_counts():
    first, second = Message.KEYS_DIFFER.format(), Message.SHARD_TOO_LARGE.format()
    assert failure_line(ValueError(f"{first}\n{second}")) == second
    assert failure_line(ValueError(f"{second}\n{first}")) == first


@pytest.mark.parametrize("one", [one for one in Message if "{key}" in one.value or "{kind}" in one.value])
def test_words_are_never_taken_over(one):
    """Where a message names a key or a kind, a text could stand."""
    text = one.format(**dict.fromkeys(one.numbers, 7), key="alice has hiv", kind="AliceError")
    line = failure_line(RuntimeError(text))
    assert "lice" not in line
    assert "hiv" not in line
    assert failure_message(RuntimeError(text)) is one


def test_nothing_known():
    assert failure_message(ValueError("max_bad_fraction must be at least alice")) is None
    line = failure_line(ValueError("max_bad_fraction must be at least alice"))
    assert line == "the run failed (ValueError); --verbose shows the traceback."


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in small_corpus(60)))
    return ["--input", tmp_path / "in.jsonl"]


def said(capfd):
    error = capfd.readouterr().err
    assert error.startswith("dpngram extract: error: ")
    assert error.count("\n") == 1
    return error.removeprefix("dpngram extract: error: ").strip()


def test_a_level_with_too_many_grams(corpus, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("dpngram.transforms.blocks.levels.MAX_ROWS", 5)
    assert extract(tmp_path / "out", *corpus) == 1
    message = said(capfd)
    assert message.startswith("level 2 would hold ")
    assert "at most 5 are supported" in message


def test_a_tokenizer_that_is_not_on_the_worker(corpus, tmp_path, monkeypatch, capfd):
    """When the graph is built, the function is there; when a worker looks for it, it is gone."""
    monkeypatch.setattr("json.split_for_test", str.split, raising=False)
    run = program._run

    def run_without(*arguments):
        monkeypatch.delattr("json.split_for_test")
        return run(*arguments)

    monkeypatch.setattr(program, "_run", run_without)
    assert extract(tmp_path / "out", *corpus, "--tokenizer", "json:split_for_test") == 1
    assert said(capfd) == Message.TOKENIZER_NOT_IMPORTED.format(kind="AttributeError")


def test_an_avro_schema_that_holds_itself(tmp_path, capfd):
    link = {"name": "next", "type": ["null", "row"]}
    fields = [{"name": "user", "type": "string"}, {"name": "text", "type": "string"}, link]
    schema = fastavro.parse_schema({"type": "record", "name": "row", "fields": fields})
    sink = io.BytesIO()
    fastavro.writer(sink, schema, [{"user": "a", "text": "b", "next": None}])
    (tmp_path / "in.avro").write_bytes(sink.getvalue())
    assert extract(tmp_path / "out", "--input", tmp_path / "in.avro", "--input_format", "avro") == 1
    assert said(capfd) == Message.RECURSIVE_AVRO_SCHEMA.format()


def test_noise_that_is_too_large(corpus, tmp_path, capfd):
    """Seen when the graph is built; a worker would say the same."""
    flags = ["--epsilon", "0.01", "--max_n", "2", "--shares", "1,1e-16", "--policy", "paper"]
    assert extract(tmp_path / "out", *corpus, *flags) == 2
    assert said(capfd).startswith("sigma must be below 2^25 for exact sums, got ")

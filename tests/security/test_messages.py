"""No error tells anything of the data: forty raise sites of ours, and other people's exceptions that quote it."""

import json
import re
import traceback
from pathlib import Path

import apache_beam as beam
import pytest
from helpers.canaries import CANARIES, MARK, traces
from helpers.raise_sites import SITES
from helpers.runs import extract, small_corpus
from helpers.runs import jsonl as body

from dpngram import accounting, pipelines, transforms
from dpngram.pipelines.io import reading
from dpngram.pipelines.launch.failures import failure_line

C = CANARIES[0]
OURS = {Path(package.__file__).resolve().parent for package in (accounting, transforms, pipelines)}


def test_forty_raise_sites(tmp_path, monkeypatch):
    """Text, cause and context of each; the sites are told apart by file and line."""
    places = {}
    for number, (name, provoke) in enumerate(SITES.items()):
        directory = tmp_path / str(number)
        directory.mkdir()
        with monkeypatch.context() as patch, pytest.raises(Exception) as caught:  # noqa: PT011 (any, as long as it says nothing)
            provoke(directory, patch)
        error = caught.value
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if OURS & {*Path(frame.filename).resolve().parents}
        ]
        assert frames, name
        if "raise" in (frames[-1].line or "raise"):
            places[frames[-1].filename, frames[-1].lineno] = name
        shown = error
        while shown is not None:
            assert traces(f"{shown} {shown!r} {shown.args!r} {getattr(shown, '__notes__', '')}") == [], name
            shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)
        assert traces(failure_line(error)) == [], name
    assert len(places) >= 40, sorted(set(SITES) - set(places.values()))


HOSTILE = [
    "{c}",
    "ParameterError: user must {c}",
    "dpngram.transforms.randomness.noise_key.NoiseKeyError: noise_key {c}",
    "NoiseKeyError: noise_key: {c} was already used",
    "TooManyBadRecords: max_bad_fraction must {c}",
    "max_bad_fraction must be at least the share of bad records: {c} of {c} cannot be used (allowed: {c})",
    "noise_key: {c} cannot be read on this worker ({c}).",
    "noise_key: secret {c} cannot be read ({c}Error).",
    "x\n{c}Error: text",
    "x\nmodule.{c}Exception: text",
    "x\nArrow{c}Invalid: text",
    "x [while running '{c}']",
    "x [while running 'Read/{c}']",
    "x [while running 'ExtractNgrams/{c}']",
    "noise_key: workers hold different keys; {c} [while running '{c}']\nKeyError: '{c}'",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_that_looks_like_our_words(text):
    """In an exception of somebody else's, in its cause, in what Beam makes of a worker's traceback."""
    text = text.format(c=C)
    pipeline = beam.Pipeline()
    pipeline | "Read" >> beam.Create([1])
    for error in (ValueError(text), KeyError(text)):
        wrapped = RuntimeError(f'Traceback (most recent call last):\n  File "x.py"\n{type(error).__name__}: {error}')
        wrapped.__cause__ = error
        for one in (error, wrapped):
            for noise_key in (None, "file:mine.key"):
                assert traces(failure_line(one, pipeline, noise_key)) == []


def test_words_of_ours_are_shown():
    """Each with what is known here in place of names, and its numbers."""
    line = "dpngram.transforms.randomness.noise_key.NoiseKeyError: noise_key: "
    line += "file:/x/a key must hold 32 bytes or 64 hexadecimal digits, "
    line += "got 7 bytes. [while running 'Step']"
    assert failure_line(RuntimeError(line), None, "a.key") == (
        "noise_key: a.key must hold 32 bytes or 64 hexadecimal digits, got 7 bytes."
    )
    line = "noise_key: /tmp/k cannot be read on this worker (FileNotFoundError). [while running 'Step']"
    assert failure_line(RuntimeError(line)) == (
        "noise_key: the fresh key cannot be read on this worker (FileNotFoundError)."
    )
    with pytest.raises(reading.TooManyBadRecords) as caught:
        list(reading._CheckDoFn(0.01).process((0, (12345, 1234))))
    assert failure_line(RuntimeError(f"x: {caught.value}")) == str(caught.value)
    pipeline = beam.Pipeline()
    pipeline | "Read" >> beam.Create([1]) | "Step" >> beam.Map(str)
    line = "x\nKeyError: 1 [while running 'Step/Inner']"
    assert (
        failure_line(RuntimeError(line), pipeline)
        == "the run failed in step Step (KeyError); --verbose shows the traceback."
    )


@pytest.mark.parametrize(
    "place",
    [
        "pipelines.io.parsing._json_block",
        "transforms.prepare_posts.make_posts",
        "transforms.group_users.concatenate_posts",
        "transforms.policies.plus.clip_grams",
        "transforms.noisy_threshold.threshold_cells",
        "transforms.add_spurious_grams.collect_tokens",
    ],
)
def test_a_run_that_dies_of_text_shows_none(tmp_path, monkeypatch, capfd, place):
    """Other people's code fails, and quotes what it failed on in our words: not without --verbose."""

    def quoting(*_args, **_more):
        raise TypeError(
            f"{C}\nParameterError: user must {C}\nNoiseKeyError: noise_key {C}\n{C}Error: [while running '{C}']"
        )

    monkeypatch.setattr(f"dpngram.{place}", quoting)
    (tmp_path / "in.jsonl").write_bytes(body(small_corpus(30)))
    assert extract(tmp_path / "out", "--input", tmp_path / "in.jsonl", "--max_n", "1") == 1
    said = capfd.readouterr()
    assert traces(said.out + said.err) == []
    # Which exception it was, a text can pretend; but only the name of one that exists is shown.
    assert re.search(r"the run failed in step \S+ \((TypeError|ParameterError|NoiseKeyError)\)", said.err)
    assert not (tmp_path / "out" / "manifest.json").exists()


class Panic(BaseException):
    """As Rust's panics are for Python: no Exception."""


def fragile(text):
    if text.startswith(MARK):
        raise (Panic, SystemExit, RecursionError)[len(text) % 3](f"cannot take {text}")
    return text.split()


def test_a_tokenizer_that_panics_on_a_text(tmp_path, monkeypatch, capfd):
    """One record must not fail the run, nor be quoted by it."""
    rows = small_corpus(40)
    hostile = [{"user": f"h{i}", "text": f"{CANARIES[i]}{'x' * i}"} for i in range(6)]
    (tmp_path / "in.jsonl").write_bytes(body([*rows, *hostile]))
    monkeypatch.setattr("json.fragile", fragile, raising=False)
    assert (
        extract(tmp_path / "out", "--input", tmp_path / "in.jsonl", "--tokenizer", "json:fragile", "--max_n", "1") == 0
    )
    notes = json.loads((tmp_path / "out" / "operator.json").read_text())
    assert notes["bad_records"] == {"tokenizer_failed": 6}
    said = capfd.readouterr()
    assert traces(said.out + said.err) == []

"""A failed run in one line: our sentences, and nothing of anybody's text."""

import apache_beam as beam
import pytest
from helpers.canaries import CANARIES, traces

from dpngram.pipelines.launch.failures import failure_line
from dpngram.transforms.messages import Message

C = CANARIES[0]


HOSTILE = [
    "{c}",
    "ParameterError: user must {c}",
    "dpngram.transforms.randomness.noise_key.NoiseKeyError: noise_key {c}",
    "NoiseKeyError: noise_key: {c} was already used",
    "TooManyBadRecords: max_bad_fraction must {c}",
    "max_bad_fraction must be at least the share of users with bad records (by a noisy count), got {c}; --bad_records",
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
    said = Message.TOO_MANY_BAD_RECORDS.format(allowed=0.01)
    assert failure_line(RuntimeError(f"x: {said}")) == said
    pipeline = beam.Pipeline()
    pipeline | "Read" >> beam.Create([1]) | "Step" >> beam.Map(str)
    line = "x\nKeyError: 1 [while running 'Step/Inner']"
    assert (
        failure_line(RuntimeError(line), pipeline)
        == "the run failed in step Step (KeyError); --verbose shows the traceback."
    )

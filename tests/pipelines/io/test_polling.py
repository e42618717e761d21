"""A directory that grows, as a stream of lines."""

import gzip
import json

import apache_beam as beam
import pytest
from apache_beam.io.restriction_trackers import OffsetRange
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from dpngram.pipelines.io import polling
from dpngram.pipelines.io.polling import PollFiles, _OneAfterAnother


class _NoteLines(beam.DoFn):
    def __init__(self, path):
        self._path = path

    def process(self, line, timestamp=beam.DoFn.TimestampParam):
        with open(self._path, "a") as file:
            file.write(json.dumps([line[0].decode(), line[1], timestamp.micros / 1e6]) + "\n")


class _Clock:
    """In place of the module `time`: goes on by a tenth of a second whenever it is asked, and at one time calls."""

    def __init__(self, start, moment, call):
        self._now, self._moment, self._call = start, moment, call

    def time(self):
        before, self._now = self._now, self._now + 0.1
        if before < self._moment <= self._now:
            self._call()
        return self._now


def test_files_that_appear(tmp_path, monkeypatch):
    """Each line once, whatever the file is like; a line holds the watermark back until it has its own time."""
    (tmp_path / "in").mkdir()
    whole = gzip.compress(b"b1\nb2\n")
    (tmp_path / "in" / "a.jsonl").write_bytes(b"a1\n\n  \na2")
    (tmp_path / "in" / "b.jsonl.gz").write_bytes(whole)
    (tmp_path / "in" / "c.jsonl.gz").write_bytes(gzip.compress(b"".join(b"%d\n" % i for i in range(9)))[:-4])
    (tmp_path / "in" / "d.jsonl.gz").write_bytes(b"no gzip at all")
    (tmp_path / "in" / "other.txt").write_bytes(b"not asked for\n")

    def appear():
        (tmp_path / "in" / "part").write_bytes(b"e1\n")
        (tmp_path / "in" / "part").rename(tmp_path / "in" / "e.jsonl")

    begin = 1000.0
    monkeypatch.setattr(polling, "time", _Clock(begin, begin + 1.5, appear))
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        lines = pipeline | PollFiles(str(tmp_path / "in" / "*.jsonl*"), interval=0.5, delay=7, stop=begin + 3)
        lines | beam.ParDo(_NoteLines(str(tmp_path / "lines")))
    found = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
    texts = sorted(line for line, _, _ in found if not line.isdigit())
    assert texts == ["a1", "a2", "b1", "b2", "e1"]
    for _, arrival, stamp in found:
        assert begin <= arrival <= begin + 3
        assert stamp == pytest.approx(arrival - 7)
    arrivals = {line: arrival for line, arrival, _ in found}
    assert arrivals["a1"] <= begin + 1
    assert arrivals["e1"] > begin + 1


def test_polls_are_not_split():
    tracker = _OneAfterAnother(OffsetRange(3, 1 << 60))
    assert tracker.try_claim(3)
    assert tracker.try_split(0.5) is None
    assert tracker.try_split(0)[1].start == 4

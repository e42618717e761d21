"""A directory that grows, as a stream of lines."""

import gzip
import json
import os

import apache_beam as beam
from apache_beam.io.restriction_trackers import OffsetRange
from apache_beam.metrics import MetricsFilter
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from dpngram.pipelines.io import polling
from dpngram.pipelines.io.polling import PollFiles, _OneAfterAnother


class _NoteLines(beam.DoFn):
    def __init__(self, path):
        self._path = path

    def process(self, block, timestamp=beam.DoFn.TimestampParam):
        with open(self._path, "a") as file:
            for line, arrival in zip(block.messages, block.arrivals.tolist(), strict=True):
                file.write(json.dumps([line.decode(), arrival / 1000, timestamp.micros / 1e6]) + "\n")


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
    """Each line once, whatever the file is like. It arrives when its file was changed, whenever it was found; a file
    that comes into its place long after its last change arrives at the watermark.
    """
    (tmp_path / "in").mkdir()
    whole = gzip.compress(b"b1\nb2\n")
    (tmp_path / "in" / "a.jsonl").write_bytes(b"a1\n\n  \na2")
    (tmp_path / "in" / "b.jsonl.gz").write_bytes(whole)
    (tmp_path / "in" / "c.jsonl.gz").write_bytes(gzip.compress(b"".join(b"%d\n" % i for i in range(9)))[:-4])
    (tmp_path / "in" / "d.jsonl.gz").write_bytes(b"no gzip at all")
    (tmp_path / "in" / "other.txt").write_bytes(b"not asked for\n")

    begin = 1000.0

    def appear():
        for name, changed in (("e", begin + 1), ("f", begin - 7)):
            (tmp_path / "in" / "part").write_bytes(name.encode() + b"1\n")
            os.utime(tmp_path / "in" / "part", (0, changed))
            (tmp_path / "in" / "part").rename(tmp_path / "in" / f"{name}.jsonl")

    for number, path in enumerate(sorted((tmp_path / "in").iterdir())):
        os.utime(path, (0, begin - 100 - number))
    monkeypatch.setattr(polling, "time", _Clock(begin, begin + 1.5, appear))
    pipeline = beam.Pipeline(runner=FnApiRunner())
    lines = pipeline | PollFiles(str(tmp_path / "in" / "*.jsonl*"), interval=0.5, stop=begin + 3)
    lines | beam.ParDo(_NoteLines(str(tmp_path / "lines")))
    ran = pipeline.run()
    ran.wait_until_finish()
    found = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
    texts = sorted(line for line, _, _ in found if not line.isdigit())
    assert texts == ["a1", "a2", "b1", "b2", "e1", "f1"]
    assert all(stamp == arrival for _, arrival, stamp in found)
    arrivals = {line: arrival for line, arrival, _ in found}
    known = {"a1": begin - 100, "a2": begin - 100, "b1": begin - 101, "b2": begin - 101, "e1": begin + 1}
    assert {line: arrivals[line] for line in known} == known
    assert begin - polling.SETTLE <= arrivals["f1"] <= begin + 2 - polling.SETTLE
    (late,) = ran.metrics().query(MetricsFilter().with_name("late_files"))["counters"]
    assert late.committed == 1


def test_polls_are_not_split():
    tracker = _OneAfterAnother(OffsetRange(3, 1 << 60))
    assert tracker.try_claim(3)
    assert tracker.try_split(0.5) is None
    assert tracker.try_split(0)[1].start == 4

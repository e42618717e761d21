"""A directory that grows, as a stream of lines: the simplest source that can be tried on one machine."""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.metrics import Metrics
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Duration, Timestamp

from dpngram.pipelines.lines import MAX_RECORD_BYTES
from dpngram.pipelines.reading import match_files

__all__ = ["PollFiles"]


class _Source(NamedTuple):
    """What to look for. Poll number p is due at p * interval of the clock, so a restored job goes on in time."""

    pattern: str
    interval: float
    delay: float
    last: int  # the number of the last poll


class PollFiles(beam.PTransform):
    """Root: every line of every file that appears under a pattern, once, at the time of the poll that found it.

    Files must appear whole (be renamed into place); one that changes later is not read again. The watermark is
    the time of the poll less `delay`: it follows this clock, not the times that users write into their messages.
    """

    def __init__(self, pattern: str, *, interval: float, delay: float, stop: float | None = None) -> None:
        super().__init__()
        last = 1 << 60 if stop is None else int(stop // interval)
        self._source = _Source(pattern, interval, delay, last)

    def expand(self, pbegin: Any) -> beam.PCollection[bytes]:
        return (
            pbegin
            | "Source" >> beam.Create([tuple(self._source)])
            | "Poll"
            >> beam.ParDo(_PollDoFn()).with_output_types(tuple[str, str])  # (path, path), all of them, at every poll
            | "OnlyNew" >> beam.ParDo(_OnlyNewDoFn())  # path
            | "Lines" >> beam.ParDo(_LinesDoFn())
        )


class _Polls(RestrictionProvider):
    """The numbers of the polls to make, from the one that is due when the job starts."""

    def initial_restriction(self, element: Any) -> OffsetRange:
        source = _Source(*element)
        return OffsetRange(min(int(time.time() // source.interval), source.last), source.last + 1)

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, element: Any, restriction: OffsetRange) -> int:
        return 1

    def truncate(self, element: Any, restriction: OffsetRange) -> None:
        return None  # a job that is drained makes no more polls


class _PollDoFn(beam.DoFn):
    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]
    def process(
        self,
        element: Any,
        tracker: Any = beam.DoFn.RestrictionParam(_Polls()),  # noqa: B008 (Beam's way to ask for it)
        watermark: Any = beam.DoFn.WatermarkEstimatorParam(ManualWatermarkEstimator.default_provider()),  # noqa: B008
    ) -> Iterator[TimestampedValue]:
        source = _Source(*element)
        number = tracker.current_restriction().start
        while True:
            due = number * source.interval
            wait = due - time.time()
            if wait > 0:
                tracker.defer_remainder(Duration(wait))
                return
            if not tracker.try_claim(number):
                return
            for path in match_files([source.pattern]):
                yield TimestampedValue((path, path), Timestamp(due))
            watermark.set_watermark(Timestamp(due - source.delay))  # after what was found: it is not late
            number += 1


class _OnlyNewDoFn(beam.DoFn):
    SEEN = ReadModifyWriteStateSpec("seen", beam.coders.BytesCoder())

    def process(self, named: tuple[str, str], state: Any = beam.DoFn.StateParam(SEEN)) -> Iterator[str]:  # noqa: B008
        if not state.read():
            state.write(b"1")
            yield named[1]


class _LinesDoFn(beam.DoFn):
    def __init__(self) -> None:
        self._bad = Metrics.counter("dpngram", "bad_too_long")

    def process(self, path: str) -> Iterator[bytes]:
        with FileSystems.open(path) as file:
            while line := file.readline():
                if len(line) > MAX_RECORD_BYTES:
                    self._bad.inc()
                elif not line.isspace():
                    yield line

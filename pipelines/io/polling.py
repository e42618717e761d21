"""A directory that grows, as a stream of lines: the simplest source that can be tried on one machine."""

import os
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.io.filesystem import CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.metrics import Metrics
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Duration, Timestamp

from dpngram.pipelines.io.input_formats import split_lines
from dpngram.pipelines.io.lines import is_damage, read_pieces
from dpngram.pipelines.io.messages import MessageBlock
from dpngram.pipelines.io.reading import match_metadata

__all__ = ["SETTLE", "PollFiles"]

# Seconds from the last change of a file to the moment at which it must be in its place.
SETTLE = 5.0


class _Source(NamedTuple):
    """What to look for. Poll number p is due when the clock shows p * interval."""

    pattern: str
    interval: float
    last: int  # the number of the last poll


class PollFiles(beam.PTransform):
    """Root: MessageBlock: every line of every file that appears under a pattern, once.

    Files must appear whole (be renamed into place), each under a new name; a file that changes later is not read again.
    Arrival is the time at which the file was last changed, so it is a property of the directory and not of the speed of
    this job: a second job over the same files sees the same arrivals. (Where a filesystem does not tell that time, it
    is the time of the poll.) The watermark is the time of a poll minus SETTLE: it follows clocks, not the times that
    users write into their messages. Lines have the time of their arrival, which is never behind the watermark: a file
    that appears later than SETTLE after its last change is counted as `late_files`, and arrives at the watermark.

    A file has the time of its arrival, and so holds the watermark back, until its lines are read: reading a large file
    slowly does not make its lines late.

    Why not `fileio.MatchContinuously`: its watermark is the time of the poll, so it does not wait for slow files.

    Args:
        pattern: of the files, on any Beam filesystem.
        interval: seconds between two polls.
        stop: the time of the last poll; None: never.
    """

    def __init__(self, pattern: str, *, interval: float, stop: float | None = None) -> None:
        super().__init__()
        last = 1 << 60 if stop is None else int(stop // interval)
        self._source = _Source(pattern, interval, last)

    def expand(self, pbegin: Any) -> beam.PCollection[MessageBlock]:
        return (
            pbegin
            | "Source" >> beam.Create([tuple(self._source)])
            # All, at every poll:
            | "Poll" >> beam.ParDo(_PollDoFn()).with_output_types(tuple[str, tuple[int, int, bool]])
            | "OnlyNew" >> beam.ParDo(_OnlyNewDoFn())  # the same, once
            | "Lines" >> beam.ParDo(_LinesDoFn())
        )


class _OneAfterAnother(OffsetRestrictionTracker):
    """What is read in order: the range is not split, only put off."""

    def try_split(self, fraction_of_remainder: float) -> Any:
        return super().try_split(fraction_of_remainder) if fraction_of_remainder == 0 else None


class _Polls(RestrictionProvider):
    """The numbers of the polls to make, from the one that is due when the job starts."""

    def initial_restriction(self, element: Any) -> OffsetRange:
        source = _Source(*element)
        return OffsetRange(min(int(time.time() // source.interval), source.last), source.last + 1)

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return _OneAfterAnother(restriction)

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
        """Makes one poll in each call, so that its files are passed on. Polls that a job missed are skipped."""
        source = _Source(*element)
        number = tracker.current_restriction().start
        wait = number * source.interval - time.time()
        if wait > 0:
            tracker.defer_remainder(Duration(wait))
            return
        number = max(number, min(int(time.time() // source.interval), source.last))
        if not tracker.try_claim(number):
            return
        due = number * source.interval
        passed = watermark.current_watermark()  # None before the first poll
        for path, file in match_metadata([source.pattern]).items():
            changed = Timestamp(_last_change(file, due))
            arrival = max(changed, passed or changed)  # later than the change for those that earlier polls have found
            yield TimestampedValue((path, (file.size_in_bytes, arrival.micros // 1000, arrival > changed)), arrival)
        watermark.set_watermark(max(Timestamp(due - SETTLE), passed or MIN_TIMESTAMP))  # after what was found
        tracker.defer_remainder(Duration(max(0.0, due + source.interval - time.time())))


def _last_change(file: FileMetadata, otherwise: float) -> float:
    """Unix time, in whole milliseconds: engines carry no finer times."""
    if FileSystems.get_scheme(file.path) is None:
        try:
            return os.stat(file.path).st_mtime_ns // 10**6 / 1000
        except OSError:
            return otherwise  # gone since it was found: reading it says so
    return file.last_updated_in_seconds // 0.001 / 1000 or otherwise


class _OnlyNewDoFn(beam.DoFn):
    """(path, (size, arrival, whether that is later than the last change)), the first time that a path comes."""

    SEEN = ReadModifyWriteStateSpec("seen", beam.coders.BytesCoder())

    def __init__(self) -> None:
        self._late = Metrics.counter("dpngram", "late_files")

    def process(
        self,
        file: tuple[str, tuple[int, int, bool]],
        state: Any = beam.DoFn.StateParam(SEEN),  # noqa: B008 (Beam's way to ask for it)
    ) -> Iterator[tuple[str, tuple[int, int, bool]]]:
        if not state.read():
            state.write(b"1")
            self._late.inc(int(file[1][2]))
            yield file


class _LinesDoFn(beam.DoFn):
    """A file that is damaged or gone counts as one bad record: it must not stop the stream."""

    def __init__(self) -> None:
        self._long = Metrics.counter("dpngram", "bad_too_long")
        self._unreadable = Metrics.counter("dpngram", "bad_unreadable")

    def process(self, file: tuple[str, tuple[int, int, bool]]) -> Iterator[MessageBlock]:
        path, (size, arrival, _) = file
        compression = CompressionTypes.detect_compression_type(path)
        try:
            for extent in split_lines(path, size, 0):
                for piece in read_pieces(extent, 0):
                    if piece.data is None:
                        self._long.inc()
                        continue
                    lines = [line for line in piece.data.split(b"\n") if line and not line.isspace()]
                    if lines:
                        yield MessageBlock.of(lines, [arrival] * len(lines))
        except Exception as error:
            if FileSystems.exists(path) and not is_damage(error, compression):
                raise  # a failure of the filesystem: the runner tries again
            self._unreadable.inc()

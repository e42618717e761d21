"""How far a run is: for local runs a live line on a terminal, or plain lines; for jobs elsewhere their metrics."""

import contextlib
import html
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.utils.interactive_utils import is_in_notebook

from dpngram.pipelines.launch.beam_internals import FnApiRunner
from dpngram.pipelines.launch.operator_notes import read_counters

__all__ = ["show_bar", "show_metrics", "show_progress"]

_EVERY = 0.2  # seconds between updates of the live line
_POLL = 15.0  # seconds between two looks at a remote runner's metrics


_LEVEL = re.compile(r"(?:ExtractNgrams|(Run\d+))/Level(\d+)/")
_UNIONS = "/ReleaseUnions/"
_PLAIN_LINES = 40  # at most so many for levels, where there is no terminal


class _Progress:
    def __init__(self, levels: int, size: int, disk: Callable[[], int], runs: int | None) -> None:
        self._total, self._size, self._disk, self._runs = levels * (runs or 1), size, disk, runs
        self._start = time.monotonic()
        self._reached: dict[str, int] = {}  # {run: level}
        self._read_seconds, self._said, self._writes = 0.0, 0, False

    def enter(self, names: str) -> str | None:
        """Notes that a stage starts, by the names of its steps. Returns the line to print if there is news."""
        before, wrote = self._reached.copy(), self._writes
        lowest: dict[str, int] = {}
        for run, level in _LEVEL.findall(names):  # a stage may also prepare later levels, so the lowest level counts
            lowest[run] = min(int(level), lowest.get(run, int(level)))
        if _UNIONS in names:
            lowest["unions"] = 0
        for run, level in lowest.items():
            self._reached[run] = max(level, self._reached.get(run, 0))
        self._writes = wrote or "Write/Files" in names or "WriteResults" in names
        if self._reached == before and self._writes == wrote:
            return None
        self._read_seconds = self._read_seconds or time.monotonic() - self._start
        done = sum(self._reached.values())
        if before and self._writes == wrote and (done - self._said) * _PLAIN_LINES < self._total:
            return None
        self._said = done
        return self.line()

    def _stage(self) -> str:
        done = sum(self._reached.values())
        if self._writes:
            return "writing"
        if done:
            return f"level {done} of {self._total}" if self._runs is None else f"{done} of {self._total} levels"
        return "set unions" if self._reached else "reading"

    def share(self) -> float:
        """How much is done: levels that are begun, of one more than there are."""
        return 1.0 if self._writes else sum(self._reached.values()) / (self._total + 1)

    def seconds(self) -> float:
        return time.monotonic() - self._start

    def line(self) -> str:
        elapsed = self.seconds()
        seconds = self._read_seconds or elapsed
        rate = f"read at {self._size / 1e6 / seconds:,.1f} MB/s" if seconds > 0.5 and self._read_seconds else ""
        disk = self._disk()
        used = f"{disk / 1e6:,.0f} MB on disk" if disk else ""
        return f"{elapsed:7.1f} s  {self._stage():<16} {rate:<20} {used}".rstrip()


@contextlib.contextmanager
def show_progress(
    pipeline: beam.Pipeline, levels: int, size: int, *, quiet: bool, runs: int | None = None
) -> Iterator[None]:
    """While the body runs `pipeline`, shows on stderr which level it is at. Shows nothing if quiet or not local.

    The local runner works stage by stage. A stage is known by the names of its steps, so nothing of the data is shown.

    Args:
        pipeline: what the body runs.
        levels: the number of levels.
        size: bytes of input, for the speed.
        quiet: show nothing.
        runs: of a comparison: how many extractions there are, each with all levels. They take turns.
    """
    runner = pipeline.runner
    if quiet or not isinstance(runner, FnApiRunner):
        yield
        return
    progress = _Progress(levels, size, lambda: 0 if runner.scratch is None else runner.scratch.used, runs)
    live = sys.stderr.isatty()

    def watch(names: str) -> None:
        line = progress.enter(names)
        if line is not None and not live:
            print(line, file=sys.stderr, flush=True)

    runner.watch = watch
    done = threading.Event()

    def draw() -> None:
        while not done.wait(_EVERY):
            print(f"\r\x1b[2K{progress.line()}", end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=draw, daemon=True)
    if live:
        thread.start()
    try:
        yield
    finally:
        done.set()
        if live:
            thread.join()
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
        runner.watch = None


class _Bar:
    """What a notebook shows: a bar with the line beside it. A front end without HTML shows the line."""

    def __init__(self, share: float, line: str) -> None:
        self._share, self._line = share, line

    def __repr__(self) -> str:
        return self._line

    def _repr_html_(self) -> str:
        bar = f"<progress max='1' value='{self._share:.3f}' style='vertical-align:middle'></progress>"
        return f"<div>{bar} <code>{html.escape(self._line)}</code></div>"


@contextlib.contextmanager
def show_bar(pipeline: beam.Pipeline, levels: int) -> Iterator[None]:
    """While the body runs `pipeline` in a notebook, shows a bar there. Shows nothing elsewhere.

    Args:
        pipeline: what the body runs, in this process.
        levels: the number of levels.
    """
    runner = pipeline.runner
    if not is_in_notebook() or not isinstance(runner, FnApiRunner):
        yield
        return
    from IPython.display import display  # there is one in a notebook only

    progress = _Progress(levels, 0, lambda: 0, None)
    shown = display(_Bar(0.0, progress.line()), display_id=True)

    def watch(names: str) -> None:
        if progress.enter(names) is not None:
            shown.update(_Bar(progress.share(), progress.line()))

    runner.watch = watch
    try:
        yield
        shown.update(_Bar(1.0, f"{progress.seconds():7.1f} s  done"))
    finally:
        runner.watch = None


@contextlib.contextmanager
def show_metrics(result: Any, *, quiet: bool) -> Iterator[None]:
    """While the body waits for a job elsewhere, shows its state and the records read on stderr from time to time.

    This is for the operator: the counts are exact. A local run is over when the body begins, and shows nothing here.
    """
    done = threading.Event()
    start = time.monotonic()

    def poll() -> None:
        while not done.wait(_POLL):
            counters = read_counters(result)
            records = f"  {counters['records']:,} records" if "records" in counters else ""
            print(f"{time.monotonic() - start:7.0f} s  {result.state}{records}", file=sys.stderr, flush=True)

    thread = threading.Thread(target=poll, daemon=True)
    if not quiet:
        thread.start()
    try:
        yield
    finally:
        done.set()
        if not quiet:
            thread.join()

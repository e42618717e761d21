"""How far a run is: for local runs a live line on a terminal, or plain lines; for jobs elsewhere their metrics."""

import contextlib
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam

from dpngram.pipelines.launch.beam_internals import FnApiRunner
from dpngram.pipelines.launch.operator_notes import read_counters

__all__ = ["show_metrics", "show_progress"]

_EVERY = 0.2  # seconds between updates of the live line
_POLL = 15.0  # seconds between two looks at a remote runner's metrics


class _Progress:
    def __init__(self, levels: int, size: int, disk: Callable[[], int]) -> None:
        self._levels, self._size, self._disk = levels, size, disk
        self._start = time.monotonic()
        self._level, self._read_seconds = 0, 0.0

    def enter(self, names: str) -> str | None:
        """Notes that a stage starts, by the names of its steps. Returns the line to print if a new level is reached."""
        # A stage may also prepare later levels, so the lowest level counts.
        reached = min((int(level) for level in re.findall(r"ExtractNgrams/Level(\d+)/", names)), default=0)
        if "Write/Files" in names:
            reached = self._levels + 1
        if reached <= self._level:
            return None
        if not self._level:
            self._read_seconds = time.monotonic() - self._start
        self._level = reached
        return self.line()

    def line(self) -> str:
        elapsed = time.monotonic() - self._start
        seconds = self._read_seconds or elapsed
        rate = f"read at {self._size / 1e6 / seconds:,.1f} MB/s" if seconds > 0.5 else ""
        stage = f"level {self._level} of {self._levels}"
        if not 0 < self._level <= self._levels:
            stage = "writing" if self._level else "reading"
        disk = self._disk()
        used = f"{disk / 1e6:,.0f} MB on disk" if disk else ""
        return f"{elapsed:7.1f} s  {stage:<16} {rate if self._level else '':<20} {used}".rstrip()


@contextlib.contextmanager
def show_progress(pipeline: beam.Pipeline, levels: int, size: int, *, quiet: bool) -> Iterator[None]:
    """While the body runs `pipeline`, shows on stderr which level it is at. Shows nothing if quiet or not local.

    The local runner works stage by stage. A stage is known by the names of its steps, so nothing of the data is shown.

    Args:
        pipeline: what the body runs.
        levels: the number of levels.
        size: bytes of input, for the speed.
        quiet: show nothing.
    """
    runner = pipeline.runner
    if quiet or not isinstance(runner, FnApiRunner):
        yield
        return
    progress = _Progress(levels, size, lambda: 0 if runner.scratch is None else runner.scratch.used)
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

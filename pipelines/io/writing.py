"""A finished release on disk: one file per length, sorted, and the manifest last.

Privacy: files are written from the sorted tables of the release, one for each length even if it is empty. So neither
the number nor the order of files tells more than the release does. An empty input gives the same bytes as an input from
which nothing was released.
"""

import contextlib
import dataclasses
import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any, cast

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.utils.timestamp import Duration

from dpngram import __version__
from dpngram.accounting import ExtractionPlan, ParameterError, guarantee_in_words, plan_document
from dpngram.pipelines.io.deny_list import NOTHING_DENIED, DenyList
from dpngram.pipelines.io.encoding import OUTPUT_FORMATS
from dpngram.pipelines.io.release_files import (
    MANIFEST,
    Manifest,
    ManifestLevel,
    ManifestWindow,
    OfWindow,
    Origin,
    rows_name,
    without_plan,
)
from dpngram.transforms.beam_workarounds import as_iter, check_main_input
from dpngram.transforms.blocks.grams import EMPTY_TABLE, GramTable, empty_table, in_order
from dpngram.transforms.messages import Message
from dpngram.transforms.randomness.noise_key import ALGORITHM_VERSION, NoiseKeyError
from dpngram.transforms.whole_files import open_whole, read_whole, write_whole
from dpngram.transforms.windowing import check_delay

__all__ = ["WriteRelease", "WriteWindows"]

MANIFEST_VERSION = 1


class WriteRelease(beam.PTransform):
    """{n: PCollection[GramTable]} in the global window -> files in `directory`, and their manifest.

    Files are written when all tables are there. Tables come after the verdict of the gate: a run that it stops writes
    nothing.

    Args:
        directory: where the files go; it must exist.
        plan: the plan of the release.
        settings: those of the transform that made it, for the manifest.
        output_format: one of `OUTPUT_FORMATS`.
        origin: what the release is made from, for the manifest.
        deny: what is left out of the files.
    """

    def __init__(
        self,
        directory: str,
        plan: ExtractionPlan,
        settings: dict[str, Any],
        output_format: str = "jsonl",
        *,
        origin: Origin | None = None,
        deny: DenyList = NOTHING_DENIED,
    ) -> None:
        super().__init__()
        self._write = _WriteDoFn(_Writer(directory, plan, settings, output_format, origin, deny))

    def expand(self, tables: dict[int, beam.PCollection[GramTable]]) -> beam.PCollection[str]:
        start = tables[1].pipeline | "Start" >> beam.Impulse()  # also if nothing was released
        return start | "Files" >> beam.ParDo(self._write, **_sides(tables, start))


class WriteWindows(beam.PTransform):
    """{n: PCollection[GramTable]} in windows -> a directory for each window in which something was released.

    Privacy: a window without a release has no table of level 1, so it gets no directory and no manifest. The name of a
    directory is made from the bounds of its window, which do not depend on the data. If a window has a release already,
    the job stops: there is never a second one.

    Args:
        directory: gets a directory for each window.
        plan, settings, output_format, origin, deny: as for `WriteRelease`.
        stream: what the manifest says about the stream that the windows are from.
        window_delay: seconds by which the windows are shifted; names and manifests are without it.
    """

    def __init__(
        self,
        directory: str,
        plan: ExtractionPlan,
        settings: dict[str, Any],
        output_format: str = "jsonl",
        *,
        origin: Origin | None = None,
        deny: DenyList = NOTHING_DENIED,
        stream: str | None = None,
        window_delay: float = 0.0,
    ) -> None:
        super().__init__()
        writer = _Writer(directory, plan, settings, output_format, origin, deny)
        self._write = _WriteWindowDoFn(writer, stream, check_delay(window_delay))

    def expand(self, tables: dict[int, beam.PCollection[GramTable]]) -> beam.PCollection[str]:
        start = tables[1] | "Start" >> beam.Filter(_is_first)  # once for each window with a release
        return start | "Files" >> check_main_input(beam.ParDo(self._write, **_sides(tables, start)), GramTable)


def _sides(tables: dict[int, beam.PCollection[GramTable]], start: beam.PCollection[Any]) -> dict[str, Any]:
    return {f"n{n}": as_iter(table, start, EMPTY_TABLE, f"Level{n}") for n, table in tables.items()}


def _is_first(table: GramTable) -> bool:
    return table.first == 0


class _Writer:
    """Writes the files of one release, and the manifest when all others are there."""

    def __init__(
        self,
        directory: str,
        plan: ExtractionPlan,
        settings: dict[str, Any],
        output_format: str,
        origin: Origin | None = None,
        deny: DenyList = NOTHING_DENIED,
    ) -> None:
        if type(plan) is not ExtractionPlan:
            raise ParameterError(f"plan must be one that gives privacy, got {type(plan).__name__}.")
        self._directory, self._plan, self._format = directory, plan, output_format
        self._settings, self._deny = without_plan(settings), deny
        self._origin = origin or Origin()
        listed = self._settings.get("vocabulary")
        self._listed = int(listed["words"]) if listed else 0
        if listed:
            self._origin = {**self._origin, "words": _public_words(listed)}
        if deny.phrases:
            self._origin = {**self._origin, "denied": deny.in_words()}

    def write(self, name: str, tables: Mapping[str, Iterable[GramTable]], more: OfWindow, *, once: bool = False) -> str:
        """Writes one release. With `once`, a different release under this name is an error and is not replaced."""
        directory = FileSystems.join(self._directory, name) if name else self._directory
        path = str(FileSystems.join(directory, MANIFEST))
        there = once and FileSystems.exists(path)
        if not there and not FileSystems.exists(directory):
            with contextlib.suppress(FileExistsError, BeamIOError):  # another try of the same release made it
                FileSystems.mkdirs(directory)
        levels: list[ManifestLevel] = []
        previous = EMPTY_TABLE
        for n in range(1, self._plan.max_n + 1):
            target = FileSystems.join(directory, rows_name(n, self._format))
            with contextlib.nullcontext(_Nowhere()) if there else open_whole(target) as file:
                level, previous = self._level(n, tables[f"n{n}"], previous, file)
            levels.append(level)
        manifest: Manifest = {
            "format_version": MANIFEST_VERSION,
            "dpngram": __version__,
            "algorithm": ALGORITHM_VERSION,
            "guarantee": guarantee_in_words(self._plan),
            "policy": self._plan.spec.summary,
            "released": sum(level["released"] for level in levels),
            "levels": levels,
            **more,
            "format": self._format,
            "origin": self._origin,
            "settings": self._settings,
            "plan": plan_document(self._plan),
        }
        data = (json.dumps(manifest, indent=2, ensure_ascii=False) + "\n").encode()
        if not there:
            write_whole(path, data)  # the last file
        elif not _is_same_release(read_whole(path), data):
            raise NoiseKeyError(Message.WINDOW_RELEASED_BEFORE.format())
        return path

    def _level(
        self, n: int, tables: Iterable[GramTable], previous: GramTable, file: Any
    ) -> tuple[ManifestLevel, GramTable]:
        """Writes one length; says what the manifest says of it, and hands on figures that the next length needs."""
        seen, summed = _Seen(), _Summed(file)
        OUTPUT_FORMATS[self._format].write(self._shown(n, tables, seen), cast(IO[bytes], summed))
        table, valid = seen.table, int(previous.next_valid)
        before = self._listed if n == 2 and self._listed else previous.total
        rho = float(table.rho) if table.total else self._plan.threshold(n, before, valid)
        level: ManifestLevel = {
            "n": n,
            "released": seen.shown,
            "sigma": self._plan.level(n).sigma,
            "rho": None if n < self._plan.first_n else rho,
            "valid": valid if n > 1 else None,
            "file": rows_name(n, self._format),
            "bytes": summed.size,
            "sha256": summed.digest.hexdigest(),
        }
        return level, table

    def _shown(self, n: int, tables: Iterable[GramTable], seen: "_Seen") -> Iterator[GramTable]:
        """The tables without what is denied, one at least; what the manifest needs of them is noted on the way."""
        for table in in_order(seen.note(tables)):
            shown = self._deny.filter(table)
            if len(shown):
                seen.shown += len(shown)
                yield shown
        if not seen.shown:
            yield empty_table(n)


@dataclasses.dataclass
class _Seen:
    """What is known of a length when its tables are written."""

    table: GramTable = EMPTY_TABLE  # its figures, without rows
    shown: int = 0

    def note(self, tables: Iterable[GramTable]) -> Iterator[GramTable]:
        """The same tables. Those without rows may have figures, too; markers have no length."""
        for table in tables:
            if table.n:
                self.table = dataclasses.replace(
                    EMPTY_TABLE, total=table.total, rho=table.rho, next_valid=table.next_valid
                )
            yield table


class _Nowhere(io.RawIOBase):
    """A file that keeps nothing."""

    def write(self, data: Any) -> int:
        return memoryview(data).nbytes

    def writable(self) -> bool:
        return True


class _Summed(io.RawIOBase):
    """Hands on what is written, and knows its size and checksum."""

    def __init__(self, file: Any) -> None:
        super().__init__()
        self._file = file
        self.size, self.digest = 0, hashlib.sha256()

    def write(self, data: Any) -> int:
        self.size += memoryview(data).nbytes
        self.digest.update(data)
        self._file.write(data)
        return memoryview(data).nbytes

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size


def _public_words(listed: dict[str, Any]) -> str:
    return (
        f"a public list of {listed['words']:,} tokens (sha256 {listed['sha256']}). They were not found in the data, so "
        "no row of length 1 is released; longer n-grams are made of them."
    )


def _is_same_release(stored: bytes, asked: bytes) -> bool:
    """Whether two manifests are of one release; which start of a stream made it may differ."""
    if stored == asked:
        return True
    try:
        first, second = ({**json.loads(manifest), "stream": None} for manifest in (stored, asked))
    except (ValueError, TypeError, RecursionError):
        return False
    return first == second


class _WriteDoFn(beam.DoFn):
    def __init__(self, writer: _Writer) -> None:
        self._writer = writer

    def process(self, _start: bytes, **tables: Iterable[GramTable]) -> Iterator[str]:
        yield self._writer.write("", tables, {})


class _WriteWindowDoFn(beam.DoFn):
    def __init__(self, writer: _Writer, stream: str | None, delay: int) -> None:
        self._writer, self._delay = writer, Duration(micros=1000 * delay)
        self._more: OfWindow = {} if stream is None else {"stream": stream}

    def process(self, _start: GramTable, window: Any = beam.DoFn.WindowParam, **tables: Any) -> Iterator[str]:
        start, end = window.start - self._delay, window.end - self._delay
        bounds: ManifestWindow = {"start": start.to_rfc3339(), "end": end.to_rfc3339()}
        name = f"{bounds['start']}--{bounds['end']}".replace(":", "-")
        yield self._writer.write(name, tables, {"window": bounds, **self._more}, once=True)

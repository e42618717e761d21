"""A finished release on disk: one file per length, sorted, and the manifest last.

Privacy: files are written from the sorted tables of the release, one for each length even if it is empty. So neither
the number nor the order of files tells more than the release does. An empty input gives the same bytes as an input from
which nothing was released.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

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
from dpngram.transforms import GramTable
from dpngram.transforms.beam_workarounds import as_side, check_main_input
from dpngram.transforms.blocks.grams import EMPTY_TABLE, empty_table
from dpngram.transforms.messages import Message
from dpngram.transforms.randomness.noise_key import ALGORITHM_VERSION, NoiseKeyError
from dpngram.transforms.whole_files import read_whole, write_whole

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
        return start | "Files" >> beam.ParDo(self._write, **_sides(tables))


class WriteWindows(beam.PTransform):
    """{n: PCollection[GramTable]} in windows -> a directory for each window in which something was released.

    Privacy: a window without a release has no table of level 1, so it gets no directory and no manifest. The name of a
    directory is made from the bounds of its window, which do not depend on the data. If a window has a release already,
    the job stops: there is never a second one.

    Args:
        directory: gets a directory for each window.
        plan, settings, output_format, origin, deny: as for `WriteRelease`.
        stream: what the manifest says about the stream that the windows are from.
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
    ) -> None:
        super().__init__()
        self._write = _WriteWindowDoFn(_Writer(directory, plan, settings, output_format, origin, deny), stream)

    def expand(self, tables: dict[int, beam.PCollection[GramTable]]) -> beam.PCollection[str]:
        later = {n: table for n, table in tables.items() if n > 1}
        return tables[1] | "Files" >> check_main_input(beam.ParDo(self._write, **_sides(later)), GramTable)


def _sides(tables: dict[int, beam.PCollection[GramTable]]) -> dict[str, Any]:
    return {f"n{n}": as_side(table, f"Level{n}", EMPTY_TABLE) for n, table in tables.items()}


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
        if deny.phrases:
            self._origin = {**self._origin, "denied": deny.in_words()}

    def write(self, name: str, tables: dict[str, GramTable], more: OfWindow, *, once: bool = False) -> str:
        """Writes one release. With `once`, a different release under this name is an error and is not replaced."""
        directory = FileSystems.join(self._directory, name) if name else self._directory
        contents: dict[str, bytes] = {}
        levels: list[ManifestLevel] = []
        previous = EMPTY_TABLE
        for n in range(1, self._plan.max_n + 1):
            level, data = self._level(n, tables[f"n{n}"], previous)
            contents[level["file"]] = data
            levels.append(level)
            previous = tables[f"n{n}"]
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
        contents[MANIFEST] = (json.dumps(manifest, indent=2, ensure_ascii=False) + "\n").encode()
        path = str(FileSystems.join(directory, MANIFEST))
        if once and FileSystems.exists(path):
            if not _is_same_release(read_whole(path), contents[MANIFEST]):
                raise NoiseKeyError(Message.WINDOW_RELEASED_BEFORE.format())
            return path  # it was the last file to be written, so all others are there
        if not FileSystems.exists(directory):
            with contextlib.suppress(FileExistsError, BeamIOError):  # another try of the same release made it
                FileSystems.mkdirs(directory)
        for file, data in contents.items():  # the manifest is the last
            write_whole(FileSystems.join(directory, file), data)
        return path

    def _level(self, n: int, table: GramTable, previous: GramTable) -> tuple[ManifestLevel, bytes]:
        shown = self._deny.filter(table)
        data = OUTPUT_FORMATS[self._format].encode(shown if len(shown) else empty_table(n))
        valid = int(previous.next_valid)
        level: ManifestLevel = {
            "n": n,
            "released": len(shown),
            "sigma": self._plan.level(n).sigma,
            "rho": float(table.rho) if len(table) else self._plan.threshold(n, len(previous), valid),
            "valid": valid if n > 1 else None,
            "file": rows_name(n, self._format),
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        return level, data


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

    def process(self, _start: bytes, **tables: GramTable) -> Iterator[str]:
        yield self._writer.write("", tables, {})


class _WriteWindowDoFn(beam.DoFn):
    def __init__(self, writer: _Writer, stream: str | None) -> None:
        self._writer = writer
        self._more: OfWindow = {} if stream is None else {"stream": stream}

    def process(self, n1: GramTable, window: Any = beam.DoFn.WindowParam, **tables: Any) -> Iterator[str]:
        bounds: ManifestWindow = {"start": window.start.to_rfc3339(), "end": window.end.to_rfc3339()}
        name = f"{bounds['start']}--{bounds['end']}".replace(":", "-")
        yield self._writer.write(name, {"n1": n1, **tables}, {"window": bounds, **self._more}, once=True)

"""A finished release on disk: one file per length, sorted, and the manifest last.

Privacy: files are written from the sorted tables of the release, one per length whatever they hold, so neither their
number nor their order tells more than the release does. An input in which nothing passed and an empty input
give the same bytes.
"""

import hashlib
import importlib.metadata
import json
import secrets
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from dpngram.accounting import POLICIES, ExtractionPlan, ParameterError, guarantee_in_words
from dpngram.pipelines.encoding import OUTPUT_FORMATS
from dpngram.transforms import GramTable
from dpngram.transforms.released import EMPTY_TABLE, empty_table

__all__ = ["MANIFEST", "WriteRelease", "read_manifest", "read_whole", "write_whole"]

MANIFEST = "manifest.json"
MANIFEST_VERSION = 1


def write_whole(path: str, data: bytes) -> None:
    """Writes under another name first: the final name appears only with all of its bytes."""
    temporary = f"{path}.{secrets.token_hex(8)}.tmp"
    with FileSystems.create(temporary, compression_type="uncompressed") as file:
        file.write(data)
    FileSystems.rename([temporary], [path])


def read_whole(path: str) -> bytes:
    with FileSystems.open(path, compression_type="uncompressed") as file:
        return bytes(file.read())


def read_manifest(directory: str) -> Any:
    """The manifest of a finished release."""
    return json.loads(read_whole(FileSystems.join(directory, MANIFEST)))


class WriteRelease(beam.PTransform):
    """{n: PCollection[GramTable]} in the global window -> files in `directory`, and their manifest.

    Nothing is written before `gate` has its element: a run whose input is refused releases nothing.
    """

    def __init__(
        self,
        directory: str,
        plan: ExtractionPlan,
        settings: dict[str, Any],
        gate: beam.PCollection[int],
        output_format: str = "jsonl",
    ) -> None:
        super().__init__()
        self._gate, self._format = gate, output_format
        if type(plan) is not ExtractionPlan:
            raise ParameterError(f"plan must be one that gives privacy, got {type(plan).__name__}.")
        self._directory, self._plan, self._settings = directory, plan, settings

    def expand(self, tables: dict[int, beam.PCollection[GramTable]]) -> beam.PCollection[str]:
        written = []
        for n, table in tables.items():
            sides = {"table": beam.pvalue.AsSingleton(table, default_value=EMPTY_TABLE)}
            if n > 1:
                sides["previous"] = beam.pvalue.AsSingleton(tables[n - 1], default_value=EMPTY_TABLE)
            write = _WriteLevelDoFn(self._directory, self._plan, n, self._format)
            written.append(self._gate | f"Level{n}" >> beam.ParDo(write, **sides))
        return (
            written
            | "All" >> beam.Flatten()
            | "Together" >> beam.GroupByKey()
            | "Manifest" >> beam.ParDo(_WriteManifestDoFn(self._directory, self._plan, self._settings, self._format))
        )


class _WriteLevelDoFn(beam.DoFn):
    def __init__(self, directory: str, plan: ExtractionPlan, n: int, output_format: str) -> None:
        self._directory, self._plan, self._n, self._format = directory, plan, n, output_format

    def process(self, once: int, table: Any = None, previous: Any = EMPTY_TABLE) -> Iterator[tuple[int, str]]:
        n = self._n
        encoding = OUTPUT_FORMATS[self._format]
        name = f"ngrams-{n:02d}.{encoding.suffix}"
        data = encoding.encode(table if len(table) else empty_table(n))
        write_whole(FileSystems.join(self._directory, name), data)
        valid = int(previous.next_valid)
        entry = {
            "n": n,
            "released": len(table),
            "sigma": self._plan.level(n).sigma,
            "rho": float(table.rho) if len(table) else self._plan.threshold(n, len(previous), valid),
            "valid": valid if n > 1 else None,
            "file": name,
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        yield once, json.dumps(entry)


class _WriteManifestDoFn(beam.DoFn):
    def __init__(self, directory: str, plan: ExtractionPlan, settings: dict[str, Any], output_format: str) -> None:
        self._directory, self._plan, self._settings, self._format = directory, plan, settings, output_format

    def process(self, gathered: tuple[int, Any]) -> Iterator[str]:
        levels = sorted((json.loads(entry) for entry in gathered[1]), key=lambda entry: entry["n"])
        manifest = {
            "format_version": MANIFEST_VERSION,
            "dpngram": importlib.metadata.version("dpngram"),
            "guarantee": guarantee_in_words(self._plan),
            "policy": POLICIES[self._plan.policy].summary,
            "released": sum(level["released"] for level in levels),
            "levels": levels,
            "format": self._format,
            "settings": self._settings,
            "plan": json.loads(self._plan.to_json()),
        }
        path = FileSystems.join(self._directory, MANIFEST)
        write_whole(path, (json.dumps(manifest, indent=2, ensure_ascii=False) + "\n").encode())
        yield path

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
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.io.filesystems import FileSystems

from dpngram.accounting import POLICIES, ExtractionPlan, ParameterError, guarantee_in_words
from dpngram.transforms import GramTable
from dpngram.transforms.released import EMPTY_TABLE

__all__ = ["MANIFEST", "OUTPUT_FORMATS", "WriteRelease", "json_lines", "write_whole"]

MANIFEST = "manifest.json"
MANIFEST_VERSION = 1
OUTPUT_FORMATS = ("jsonl",)


def json_lines(table: GramTable) -> bytes:
    """{"n": ..., "tokens": [...], "weight": ...} a line, built in columns."""
    if not len(table):
        return b""
    words = pa.array([json.dumps(word, ensure_ascii=False) for word in table.vocabulary.to_pylist()], pa.large_string())
    columns = [words.take(pa.array(column)) for column in table.tokens.T]
    tokens = (
        columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, pa.scalar(", ", pa.large_string()))
    )
    lines = pc.binary_join_element_wise(
        pa.scalar(f'{{"n": {int(table.n)}, "tokens": [', pa.large_string()),
        tokens,
        pa.scalar('], "weight": ', pa.large_string()),
        pa.array(table.weight).cast(pa.large_string()),
        pa.scalar("}\n", pa.large_string()),
        pa.scalar("", pa.large_string()),
    )
    return bytes(lines.buffers()[2])


def write_whole(path: str, data: bytes) -> None:
    """Writes under another name first: the final name appears only with all of its bytes."""
    temporary = f"{path}.{secrets.token_hex(8)}.tmp"
    with FileSystems.create(temporary, compression_type="uncompressed") as file:
        file.write(data)
    FileSystems.rename([temporary], [path])


class WriteRelease(beam.PTransform):
    """{n: PCollection[GramTable]} in the global window -> files in `directory`, and their manifest."""

    def __init__(self, directory: str, plan: ExtractionPlan, settings: dict[str, Any]) -> None:
        super().__init__()
        if type(plan) is not ExtractionPlan:
            raise ParameterError(f"plan must be one that gives privacy, got {type(plan).__name__}.")
        self._directory, self._plan, self._settings = directory, plan, settings

    def expand(self, tables: dict[int, beam.PCollection[GramTable]]) -> beam.PCollection[str]:
        once = tables[1].pipeline | "Once" >> beam.Create([0])
        written = []
        for n, table in tables.items():
            sides = {"table": beam.pvalue.AsSingleton(table, default_value=EMPTY_TABLE)}
            if n > 1:
                sides["previous"] = beam.pvalue.AsSingleton(tables[n - 1], default_value=EMPTY_TABLE)
            written.append(once | f"Level{n}" >> beam.ParDo(_WriteLevelDoFn(self._directory, self._plan, n), **sides))
        return (
            written
            | "All" >> beam.Flatten()
            | "Together" >> beam.GroupByKey()
            | "Manifest" >> beam.ParDo(_WriteManifestDoFn(self._directory, self._plan, self._settings))
        )


class _WriteLevelDoFn(beam.DoFn):
    def __init__(self, directory: str, plan: ExtractionPlan, n: int) -> None:
        self._directory, self._plan, self._n = directory, plan, n

    def process(self, once: int, table: Any = None, previous: Any = EMPTY_TABLE) -> Iterator[tuple[int, str]]:
        n = self._n
        name = f"ngrams-{n:02d}.jsonl"
        data = json_lines(table)
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
    def __init__(self, directory: str, plan: ExtractionPlan, settings: dict[str, Any]) -> None:
        self._directory, self._plan, self._settings = directory, plan, settings

    def process(self, gathered: tuple[int, Any]) -> Iterator[str]:
        levels = sorted((json.loads(entry) for entry in gathered[1]), key=lambda entry: entry["n"])
        manifest = {
            "format_version": MANIFEST_VERSION,
            "dpngram": importlib.metadata.version("dpngram"),
            "guarantee": guarantee_in_words(self._plan),
            "policy": POLICIES[self._plan.policy].summary,
            "released": sum(level["released"] for level in levels),
            "levels": levels,
            "settings": self._settings,
            "plan": json.loads(self._plan.to_json()),
        }
        path = FileSystems.join(self._directory, MANIFEST)
        write_whole(path, (json.dumps(manifest, indent=2, ensure_ascii=False) + "\n").encode())
        yield path

"""Finished rounds kept beside a run, so that one that died goes on from them.

Privacy: a checkpoint is S_k so far, which is released anyway when the run ends well; it holds nothing else. A run that
dies and is never finished must have its checkpoints deleted or published: they were made with this budget.
It is used only by a run with the same key, data and settings: the key refuses other data (`KeySource.bind`), and
the settings are part of the name.
"""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from dpngram.transforms.columns import Block
from dpngram.transforms.levels import Level
from dpngram.transforms.rounds import Round

__all__ = ["Checkpoints"]


class Checkpoints:
    """The checkpoints of a directory that were there when the graph was built."""

    def __init__(self, directory: str, settings: str) -> None:
        self._directory, self._settings = directory, settings
        pattern = FileSystems.join(directory, "checkpoint-*.block")
        self._found = {file.path for file in FileSystems.match([pattern])[0].metadata_list}

    def load(self, round_: Round, pipeline: beam.Pipeline) -> beam.PCollection[Level] | None:
        """S_k after this round, if it is known; otherwise None."""
        path = self._path(round_)
        if path not in self._found:
            return None
        name = f"Known{round_.n}-{round_.number + 1}"
        return pipeline | f"{name}/Path" >> beam.Create([path]) | f"{name}/Load" >> beam.ParDo(_LoadDoFn())

    def save(self, round_: Round) -> beam.PTransform:
        """Level -> nothing: writes it down."""
        return beam.ParDo(_SaveDoFn(self._path(round_)))

    def _path(self, round_: Round) -> str:
        name = f"checkpoint-{self._settings[:16]}-{round_.n:02d}-{round_.number + 1}.block"
        return str(FileSystems.join(self._directory, name))


class _LoadDoFn(beam.DoFn):
    def process(self, path: str) -> Iterator[Level]:
        with FileSystems.open(path, compression_type="uncompressed") as file:
            level = Block.from_bytes(bytes(file.read()))
        if not isinstance(level, Level):
            raise ValueError("a checkpoint must hold a level.")
        yield level


class _SaveDoFn(beam.DoFn):
    """Under another name first, so that the final name appears only with all of its bytes."""

    def __init__(self, path: str) -> None:
        self._path = path

    def process(self, level: Level) -> Iterator[Any]:
        temporary = f"{self._path}.tmp"
        with FileSystems.create(temporary, compression_type="uncompressed") as file:
            file.write(level.to_bytes())
        FileSystems.rename([temporary], [self._path])
        yield from ()

"""Finished rounds kept beside a run, so that one that died goes on from them.

Privacy: a checkpoint is S_k so far, which is released anyway when the run ends well; it holds nothing else. A run that
dies and is never finished must have its checkpoints deleted or published: they were made with this budget.
It opens with a MAC over its bytes, the content of the data, the settings and the round, under the run's key: a run with
another key, on other data or with other parameters stops instead of mixing two releases.
"""

import hmac
import secrets
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from dpngram.transforms.blocks.columns import Block
from dpngram.transforms.blocks.levels import Level
from dpngram.transforms.keyed_dofn import RoundDoFn
from dpngram.transforms.messages import Message
from dpngram.transforms.policies.base import Round
from dpngram.transforms.randomness.noise_key import NoiseKeyError

__all__ = ["Checkpoints"]

_MAC_BYTES = 32


class Checkpoints:
    """The checkpoints of a directory that were there when the graph was built; none if nobody is to look."""

    def __init__(self, directory: str, settings: str, *, look: bool = True) -> None:
        self._directory, self._settings = directory, settings
        pattern = FileSystems.join(directory, "checkpoint-*.block")
        self._found = {file.path for file in FileSystems.match([pattern])[0].metadata_list} if look else set()

    def load(self, round_: Round, binding: beam.PCollection[bytes]) -> beam.PCollection[Level] | None:
        """S_k after this round, if it is known; otherwise None."""
        path = self._path(round_)
        if path not in self._found:
            return None
        name = f"Known{round_.n}-{round_.number + 1}"
        return (
            binding.pipeline
            | f"{name}/Start" >> beam.Impulse()
            | f"{name}/Load" >> beam.ParDo(_LoadDoFn(round_, path), **round_.sides(binding))
        )

    def save(self, round_: Round, binding: beam.PCollection[bytes]) -> beam.PTransform:
        """Level -> nothing: writes it down."""
        return beam.ParDo(_SaveDoFn(round_, self._path(round_)), **round_.sides(binding))

    def _path(self, round_: Round) -> str:
        name = f"checkpoint-{self._settings[:16]}-{round_.n:02d}-{round_.number + 1}.block"
        return str(FileSystems.join(self._directory, name))


class _LoadDoFn(RoundDoFn):
    def __init__(self, round_: Round, path: str) -> None:
        super().__init__(round_)
        self._path = path

    def process(self, _start: bytes, binding: bytes = b"") -> Iterator[Level]:
        with FileSystems.open(self._path, compression_type="uncompressed") as file:
            stored = bytes(file.read())
        mac, data = stored[:_MAC_BYTES], stored[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._source.seal(_name(self._round), binding, data)):
            raise NoiseKeyError(Message.OTHER_CHECKPOINTS.format())
        level = Block.from_bytes(data)
        if isinstance(level, Level):
            yield level


class _SaveDoFn(RoundDoFn):
    """Under another name first, so that the final name appears only with all of its bytes."""

    def __init__(self, round_: Round, path: str) -> None:
        super().__init__(round_)
        self._path = path

    def process(self, level: Level, binding: bytes = b"") -> Iterator[Any]:
        data = level.to_bytes()
        temporary = f"{self._path}.{secrets.token_hex(8)}.tmp"
        with FileSystems.create(temporary, compression_type="uncompressed") as file:
            file.write(self._source.seal(_name(self._round), binding, data) + data)
        FileSystems.rename([temporary], [self._path])
        yield from ()


def _name(round_: Round) -> str:
    return f"checkpoint {round_.n} {round_.number}"

"""Blocks of columns, and the one coder that carries them between workers.

A block is a frozen dataclass whose fields are numpy arrays. Its bytes are a magic word with a format version, a
JSON header (class, and name, dtype and shape of each column) and the raw buffers, each aligned to eight bytes.
Decoding copies nothing and runs no code from the bytes: a runner, a restart or another worker reads the same.
"""

import dataclasses
import json
import struct
from typing import Any, TypeVar

import apache_beam as beam
import numpy as np
import pyarrow as pa

__all__ = ["Block", "BlockCoder", "binary_array", "register_block", "split_binary"]

_MAGIC = b"DPNG\x01\x00\x00\x00"
_CLASSES: dict[str, type["Block"]] = {}
_ALIGN = 8


class Block:
    """Base of all blocks. Subclasses are frozen dataclasses of numpy arrays, registered by `register_block`."""

    def to_bytes(self) -> bytes:
        fields = [(name, np.asarray(getattr(self, name), order="C")) for name in self._column_names()]
        header = json.dumps(
            [type(self).__name__, [[name, array.dtype.str, array.shape] for name, array in fields]]
        ).encode()
        header += b" " * (-(len(header) + 4) % _ALIGN)
        parts: list[Any] = [_MAGIC, struct.pack("<I", len(header)), header]
        for _, array in fields:
            parts.append(array.reshape(-1).data.cast("B") if array.size else b"")
            parts.append(b"\0" * (-array.nbytes % _ALIGN))
        return b"".join(parts)

    @staticmethod
    def from_bytes(data: bytes) -> "Block":
        if data[: len(_MAGIC)] != _MAGIC:
            raise ValueError("not a dpngram block, or one of another format version.")
        start = len(_MAGIC) + 4
        (length,) = struct.unpack_from("<I", data, len(_MAGIC))
        name, columns = json.loads(data[start : start + length])
        offset = start + length
        arrays = {}
        for column, dtype, shape in columns:
            count = int(np.prod(shape, dtype=np.int64))
            arrays[column] = np.frombuffer(data, np.dtype(dtype), count, offset).reshape(shape)
            nbytes = arrays[column].nbytes
            offset += nbytes + (-nbytes % _ALIGN)
        return _CLASSES[name](**arrays)

    @property
    def nbytes(self) -> int:
        return sum(getattr(self, name).nbytes for name in self._column_names())

    def _column_names(self) -> list[str]:
        return [field.name for field in dataclasses.fields(self)]  # type: ignore[arg-type]


class BlockCoder(beam.coders.Coder):
    """Encodes any registered block; deterministic, since equal columns give equal bytes."""

    def encode(self, value: Block) -> bytes:
        return value.to_bytes()

    def decode(self, encoded: bytes) -> Block:
        return Block.from_bytes(encoded)

    def is_deterministic(self) -> bool:
        return True

    def estimate_size(self, value: Block) -> int:
        return value.nbytes

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))


_BlockType = TypeVar("_BlockType", bound=type[Block])


def register_block(cls: _BlockType) -> _BlockType:
    """Class decorator: Beam carries this block with `BlockCoder`."""
    _CLASSES[cls.__name__] = cls
    beam.coders.registry.register_coder(cls, BlockCoder)
    return cls


def binary_array(offsets: np.ndarray[Any, Any], data: np.ndarray[Any, Any]) -> pa.Array:
    """Two columns (int64 offsets of n+1 strings, their bytes) as an Arrow array, without a copy."""
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def split_binary(array: pa.Array) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The inverse of `binary_array` for any Arrow string array without nulls; offsets start at zero."""
    if array.offset or not pa.types.is_large_binary(array.type):
        array = pa.concat_arrays([array.cast(pa.large_binary())])
        if array.offset:
            array = array.take(pa.array(np.arange(len(array))))
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(array) + 1) if offsets else np.zeros(1, np.int64)
    payload = np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8)
    return bounds - bounds[0], payload[bounds[0] : bounds[-1]]

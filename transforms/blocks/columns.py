"""Blocks of columns, and the one coder that carries them between workers.

A block is a frozen dataclass whose fields are numpy arrays, or plain ints and floats. Its bytes are a magic word with a
format version, a JSON header (class; name, dtype, shape and packed size of each column; the plain values) and the
buffers, each aligned to eight bytes. Decoding runs no code from the bytes: a runner, a restart or another worker reads
the same.
"""

import dataclasses
import json
import math
import struct
from collections.abc import Collection
from typing import Any, TypeVar

import apache_beam as beam
import numpy as np
import pyarrow as pa

from dpngram.transforms.blocks.scratch import REFERENCE, current_scratch, find_scratch
from dpngram.transforms.messages import Message

__all__ = [
    "Array",
    "Block",
    "BlockCoder",
    "binary_array",
    "empty_column",
    "find_keys",
    "register_block",
    "run_starts",
    "split_binary",
]

# The last byte that is not 0 is the format version: 3 since policy `plus` has its second edition.
_MAGIC = b"DPNG\x03\x00\x00\x00"
_CLASSES: dict[str, type["Block"]] = {}
_ALIGN = 8
_MOST_PACKED = 255
_PACK_BYTES = 1 << 15  # smaller columns move as fast as they are
Array = np.ndarray[Any, Any]


def find_keys(known: Array, wanted: Array) -> Array:
    """The row of each wanted key among sorted ones, int32; -1 where it is not there. Sorted keys are found fastest.

    >>> find_keys(np.array([2, 5], np.uint64), np.array([5, 3, 9], np.uint64))
    array([ 1, -1, -1], dtype=int32)
    """
    if not len(known):
        return np.full(len(wanted), -1, np.int32)
    rows = np.searchsorted(known, wanted).astype(np.int32)
    np.minimum(rows, len(known) - 1, out=rows)
    rows[known[rows] != wanted] = -1
    return rows


def empty_column(dtype: Any, *, shape: tuple[int, ...] = (0,)) -> Any:
    """The default of an optional column: a field of a block that is empty unless it is given."""
    empty = np.zeros(shape, dtype)
    empty.setflags(write=False)
    return dataclasses.field(default_factory=lambda: empty)


class Block:
    """Base of all blocks: frozen dataclasses of arrays and plain numbers, registered by `register_block`.

    A column with a default is optional, and costs no byte where it is empty.
    """

    def to_bytes(self) -> bytes:
        columns, values, buffers = [], {}, []
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if not isinstance(value, np.ndarray):
                if isinstance(value, bool) or not isinstance(value, (int, float)):
                    raise TypeError(f"{field.name} must be a column or a plain number, got {type(value).__name__}.")
                values[field.name] = value
                continue
            if field.default_factory is not dataclasses.MISSING and _is_default(value, field.default_factory()):
                continue
            array = np.asarray(value, order="C")
            buffer, packed = _pack(array)
            columns.append([field.name, array.dtype.str, array.shape, len(buffer) if packed else -1])
            buffers.append(buffer)
        header = json.dumps([type(self).__name__, columns, values]).encode()
        header += b" " * (-(len(header) + 4) % _ALIGN)
        parts: list[Any] = [_MAGIC, struct.pack("<I", len(header)), header]
        for buffer in buffers:
            parts += (buffer, b"\0" * (-len(buffer) % _ALIGN))
        return b"".join(parts)

    @staticmethod
    def from_bytes(data: bytes | memoryview, columns: Collection[str] | None = None) -> "Block":
        """The block, or a ValueError: damaged bytes make no other error, and never an array of objects.

        With `columns`, all others are left empty.

        MemoryError is passed through: a block may decompress to at most 255 times its size, so running out of memory
        does not mean that it is damaged.
        """
        if data[: len(_MAGIC)] != _MAGIC:
            raise ValueError(Message.OTHER_BLOCK_FORMAT.format())
        try:
            return _decode(data, columns)
        except MemoryError:  # Arrow's is a subclass
            raise
        except _DAMAGE as error:
            raise ValueError(Message.DAMAGED_BLOCK.format(kind=type(error).__name__)) from None

    @property
    def nbytes(self) -> int:
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return sum(getattr(getattr(self, field.name), "nbytes", 8) for field in fields)

    def __repr__(self) -> str:
        """Nothing of the columns: Beam writes elements into its log at level DEBUG, and into some errors."""
        return f"<{type(self).__name__}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Where a runner pickles after all, the same bytes: Dataflow does it to whatever is a side input."""
        return Block.from_bytes, (self.to_bytes(),)


_DAMAGE = (
    *(ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError),
    *(SyntaxError, ValueError, struct.error, pa.ArrowException),  # np.dtype raises the first
)


def _decode(data: bytes | memoryview, wanted: Collection[str] | None) -> Block:
    start = len(_MAGIC) + 4
    (length,) = struct.unpack_from("<I", data, len(_MAGIC))
    name, columns, values = json.loads(bytes(data[start : start + length]))
    offset = start + length
    fields: dict[str, Any] = {}
    for column, dtype_name, shape, packed in columns:
        dtype = np.dtype(dtype_name)
        count = math.prod(shape)
        if dtype.kind not in "biuf" or count < 0:
            raise ValueError("a damaged dpngram block: a column is not numeric.")
        if wanted is not None and column not in wanted:
            size = count * dtype.itemsize if packed < 0 else packed
        elif packed < 0:
            fields[column] = np.frombuffer(data, dtype, count, offset).reshape(shape)
            size = count * dtype.itemsize
        else:
            fields[column] = _unpack(memoryview(data)[offset : offset + packed], dtype, count).reshape(shape)
            size = packed
        offset += size + (-size % _ALIGN)
    fields |= values
    kind = _CLASSES[name]
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        expected = (int, float) if field.type in (int, float) else (np.ndarray,)
        if field.name in fields and type(fields[field.name]) not in expected:
            raise ValueError("a damaged dpngram block: a column is a number, or a number is none.")
    return kind(**fields)


def _is_default(column: Array, default: Array) -> bool:
    return column.shape == default.shape and not column.any()  # defaults are empty, or zero


def _pack(array: Array) -> tuple[Any, bool]:
    """The bytes of a column, and whether they are packed.

    Integers that need fewer bits than they have, or ascend, have bytes that hardly change: laid byte by byte, LZ4
    shrinks them two to six times at a fifth of what a runner spends on moving them.
    """
    flat = array.reshape(-1)
    raw = flat.data.cast("B") if flat.size else b""
    if flat.nbytes < _PACK_BYTES or flat.itemsize == 1 or flat.dtype.kind == "f":
        return raw, False
    planes = np.ascontiguousarray(flat.view(np.uint8).reshape(len(flat), -1).T)
    packed = pa.compress(planes, codec="lz4_raw", asbytes=True)
    return (packed, True) if len(packed) < 0.9 * flat.nbytes else (raw, False)


def _unpack(packed: Any, dtype: np.dtype[Any], count: int) -> Array:
    size = count * dtype.itemsize
    if size > _MOST_PACKED * (len(packed) + 1):
        raise ValueError("LZ4 packs no more than 255 bytes into one.")
    planes = np.frombuffer(pa.decompress(packed, decompressed_size=size, codec="lz4_raw"), np.uint8)
    array = np.empty((count, dtype.itemsize), np.uint8)
    for place, plane in enumerate(
        planes.reshape(dtype.itemsize, count)
    ):  # two to four times as fast as a transposition
        array[:, place] = plane
    return array.reshape(-1).view(dtype)


class BlockCoder(beam.coders.Coder):
    """Encodes any registered block.

    In a run with a scratch, large blocks go to disk and are encoded as references (`scratch.py`). The runner of such a
    run translates its graph while the scratch is the current one, so the coders of that graph, and of no other, have
    its name. A process in which that scratch is not open encodes whole blocks.

    Deterministic, since equal columns give equal bytes; not so with references. No block is a key of ours, and Beam
    refuses to group by a key whose coder is not deterministic.
    """

    def __init__(self) -> None:
        self._scratch = current_scratch()

    def encode(self, value: Block) -> bytes:
        scratch = find_scratch(self._scratch)
        return value.to_bytes() if scratch is None else scratch.store(value.to_bytes())

    def decode(self, encoded: bytes) -> Block:
        if encoded.startswith(REFERENCE):
            scratch = find_scratch(self._scratch)
            if scratch is None or encoded[len(REFERENCE) :][: len(self._scratch)] != self._scratch:
                raise ValueError(Message.SCRATCH_CLOSED.format())
            encoded = scratch.load(encoded)
        return Block.from_bytes(encoded)

    def is_deterministic(self) -> bool:
        return not self._scratch

    def estimate_size(self, value: Block) -> int:
        return value.nbytes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BlockCoder) and self._scratch == other._scratch

    def __hash__(self) -> int:
        return hash((BlockCoder, self._scratch))


_BlockType = TypeVar("_BlockType", bound=type[Block])


def register_block(cls: _BlockType) -> _BlockType:
    """Class decorator: Beam carries this block with `BlockCoder`."""
    _CLASSES[cls.__name__] = cls
    cls.__repr__ = Block.__repr__  # type: ignore[method-assign]  # not the one that dataclasses make
    beam.coders.registry.register_coder(cls, BlockCoder)
    return cls


beam.coders.registry.register_coder(Block, BlockCoder)  # for collections of several kinds


def run_starts(values: Array) -> Array:
    """Where a run of equal values begins.

    >>> run_starts(np.array([3, 3, 5, 3]))
    array([ True, False,  True,  True])
    """
    starts = np.ones(len(values), bool)
    starts[1:] = values[1:] != values[:-1]
    return starts


def binary_array(offsets: Array, data: Array) -> pa.Array:
    """Two columns (int64 offsets of n+1 strings, their bytes) as an Arrow array, without a copy."""
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def split_binary(array: pa.Array) -> tuple[Array, Array]:
    """The inverse of `binary_array` for any Arrow string array without nulls; offsets start at zero."""
    if array.offset or not pa.types.is_large_binary(array.type):
        array = pa.concat_arrays([array.cast(pa.large_binary())])
        if array.offset:
            array = array.take(pa.array(np.arange(len(array))))
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(array) + 1) if offsets else np.zeros(1, np.int64)
    payload = np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8)
    return bounds - bounds[0], payload[bounds[0] : bounds[-1]]

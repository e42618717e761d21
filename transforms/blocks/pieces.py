"""A block in pieces: what may be too large for one element of a runner travels as several.

No runner carries an element of gigabytes, and some only 80 MB; S_k or a survey may be larger. So such a block is cut
into pieces of its encoded bytes, and whoever reads it puts them together. An empty block is one piece: a window that
has data always has a piece.

Privacy: which pieces there are is a function of the block's bytes, so pieces are as public as the block. A piece that
is missing is an error, and never a smaller block: a worker with a part of S_{k-1} would prune with another V_k.
"""

import dataclasses
import zlib
from collections.abc import Collection, Iterable, Iterator

import numpy as np

from dpngram.transforms.blocks.columns import Array, Block, register_block
from dpngram.transforms.blocks.levels import Level
from dpngram.transforms.blocks.surveys import Survey
from dpngram.transforms.messages import Message

__all__ = ["PIECE_BYTES", "Piece", "cut_block", "join_pieces"]

PIECE_BYTES = 32 << 20


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class Piece(Block):
    """Some consecutive bytes of an encoded block."""

    data: Array  # uint8
    start: int  # of the data in the block's bytes
    size: int  # all bytes of the block
    name: int  # a checksum of them: pieces of different blocks are not put together
    rows: int  # of the block

    @property
    def is_first(self) -> bool:
        return self.start == 0


def cut_block(block: Level | Survey) -> Iterator[Piece]:
    """The pieces of a block, at least one."""
    encoded = block.to_bytes()
    every, name = np.frombuffer(encoded, np.uint8), zlib.crc32(encoded)
    for start in range(0, len(every), PIECE_BYTES):
        data = every[start : start + PIECE_BYTES]
        yield Piece(data=data, start=start, size=len(every), name=name, rows=len(block))


def join_pieces(pieces: Iterable[Piece], columns: Collection[str] | None = None) -> Block:
    """The block again, from its pieces in any order.

    Args:
        pieces: all of them, each once.
        columns: the other columns are left empty.

    Raises:
        ValueError: if a piece is missing, or one of another block is among them.
    """
    encoded = np.empty(0, np.uint8)
    found: dict[int, int] = {}  # how many bytes begin where
    names = set()
    for piece in pieces:
        if not found:
            encoded = np.empty(piece.size, np.uint8)
        names.add((piece.size, piece.name))
        if len(names) > 1 or piece.start in found:
            raise ValueError(Message.PIECES_MISSING.format())
        encoded[piece.start : piece.start + len(piece.data)] = piece.data
        found[piece.start] = len(piece.data)
    if not found or sum(found.values()) != len(encoded):
        raise ValueError(Message.PIECES_MISSING.format())
    return Block.from_bytes(encoded.data, columns)

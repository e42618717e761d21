"""All n-grams of a block of users, with nothing pruned: for set unions and exact counts.

A gram is named by a keyed 128-bit digest, rolled from that of its prefix and that of its last token, under a key of its
own for each length. Two of N grams agree with probability N^2/2^129, and nobody without the key can look for such a
pair. For 10^12 n-grams the probability of any collision is below 10^-14. Grams themselves are never written out.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from dpngram.transforms.blocks.candidates import CandidateBlock, all_tokens, make_postings
from dpngram.transforms.blocks.columns import Array, Block, binary_array, register_block, split_binary
from dpngram.transforms.blocks.grams import GramTable
from dpngram.transforms.blocks.levels import unpack_keys
from dpngram.transforms.blocks.users import UserBlock
from dpngram.transforms.keyed_dofn import KeyedDoFn
from dpngram.transforms.randomness.noise_key import KeySource, Randomness
from dpngram.transforms.randomness.prf import Prf

__all__ = ["NamedGrams", "NamingDoFn", "digest_table", "drop_long_users", "gram_digests", "join_lengths", "name_grams"]


@register_block
@dataclasses.dataclass(frozen=True, kw_only=True)
class NamedGrams(Block):
    """Released grams of one length by their digests, to be found again among the users' grams."""

    digests: Array  # (grams, 2) uint64

    def __len__(self) -> int:
        return len(self.digests)


def gram_digests(source: KeySource, max_n: int) -> list[Prf]:
    """The keyed functions that name grams of 2, 3, ..., max_n tokens."""
    return [source.digest(f"gram {n}") for n in range(2, max_n + 1)]


class NamingDoFn(KeyedDoFn):
    """A DoFn that names grams of up to `max_n` tokens, by `self._prfs`."""

    _prfs: list[Prf]

    def __init__(self, naming: Randomness, max_n: int) -> None:
        super().__init__(naming)
        self._max_n = max_n

    def setup(self) -> None:
        super().setup()
        self._prfs = gram_digests(self._source, self._max_n)


def name_grams(block: UserBlock, prfs: Sequence[Prf]) -> Iterator[CandidateBlock]:
    """For n = 1, 2, ..., len(prfs) + 1 the postings of every n-gram of the block. No gram crosses the end of a post."""
    first = all_tokens(block)
    grams = dataclasses.replace(first, token_offsets=np.zeros(1, np.int64), token_bytes=np.zeros(0, np.uint8))
    yield grams
    for n, prf in enumerate(prfs, 2):
        at = np.full(grams.length, -1, np.int32)
        rows = np.arange(len(grams.grams), dtype=np.int32)
        at[grams.positions] = np.repeat(rows, np.diff(grams.gram_start))
        # A gram of n tokens starts at p when grams of n - 1 tokens start at p and at p + 1.
        positions = np.flatnonzero((at[:-1] >= 0) & (at[1:] >= 0)).astype(np.int32)
        keys, gram_start, starts = make_postings(
            np.take(at, positions),
            np.take(block.ids, positions + (n - 1)),
            positions,
            prefixes=len(grams.grams),
            lasts=len(block.digests),
            length=grams.length,
        )
        prefix, last = unpack_keys(keys)
        digests = prf.pairs(np.take(grams.digests, prefix, axis=0), np.take(block.digests, last, axis=0))
        grams = dataclasses.replace(
            grams, grams=digests[:, 0], gram_start=gram_start, positions=starts, digests=digests
        )
        yield grams


def join_lengths(blocks: Sequence[CandidateBlock]) -> CandidateBlock:
    """The grams of several lengths as candidates of one histogram, in the order given."""
    sizes = np.cumsum([0, *(len(block.positions) for block in blocks)], dtype=np.int64)
    starts = [block.gram_start[:-1] + size for block, size in zip(blocks, sizes, strict=False)]
    digests = np.concatenate([block.digests for block in blocks])
    return dataclasses.replace(
        blocks[0],
        grams=digests[:, 0],
        gram_start=np.append(np.concatenate(starts), sizes[-1]),
        positions=np.concatenate([block.positions for block in blocks]),
        digests=digests,
    )


def digest_table(table: GramTable, tokens: Prf, prfs: Sequence[Prf]) -> NamedGrams:
    """Released grams under the names that `name_grams` gives them. `tokens` names single tokens."""
    words = tokens.strings(table.token_offsets, table.token_bytes)
    digests = np.take(words, table.tokens[:, 0], axis=0)
    for place, prf in enumerate(prfs[: table.n - 1], 1):
        digests = prf.pairs(digests, np.take(words, table.tokens[:, place], axis=0))
    return NamedGrams(digests=digests)


def drop_long_users(block: UserBlock, most: int) -> UserBlock | None:
    """The users with at most `most` tokens in all their posts; None if nobody is left.

    Privacy: whether a user stays depends on the user's own text.
    """
    occupied = block.occupied()
    tokens = np.add.reduceat(occupied, block.user_start[:-1], dtype=np.int64)
    kept = tokens <= most
    if kept.all():
        return block
    if not kept.any():
        return None
    lengths = np.diff(block.user_start)
    mine = np.repeat(kept, lengths)
    ids = block.ids[mine].astype(np.int64)
    present = np.zeros(len(block.digests) + 1, bool)
    present[ids] = True
    present[-1] = False  # the end of a post is not a token
    rows = np.flatnonzero(present)
    renumbered = np.full(len(present), len(rows), np.int64)
    renumbered[rows] = np.arange(len(rows))
    offsets, data = split_binary(binary_array(block.token_offsets, block.token_bytes).take(pa.array(rows)))
    return dataclasses.replace(
        block,
        user=block.user[kept],
        user_start=np.append(0, np.cumsum(lengths[kept])).astype(np.int32),
        ids=renumbered[ids].astype(np.min_scalar_type(len(rows))),
        digests=block.digests[rows],
        token_offsets=offsets,
        token_bytes=data,
        budget=block.budget[kept] if len(block.budget) else block.budget,
        allowance=block.allowance[kept] if len(block.allowance) else block.allowance,
    )

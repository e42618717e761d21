"""Text into tokens, a column at a time; for the built-in tokenizers without a Python object per token.

`words` and `whitespace` classify every byte of a column as part of a token or not; runs of token bytes are the tokens.
ASCII is classified through a table of 256 entries; a stretch of other text is normalised and classified once for each
distinct stretch. Tokens are bytes, kept apart by offsets: no separator could be confused with them.

A record with a token of more than MAX_TOKEN_BYTES, or with more than MAX_RECORD_TOKENS tokens, is left out and counted.
Cutting it would make n-grams that nobody wrote, and one record must not decide how much memory a worker needs. A record
on which the tokenizer fails is left out and counted, too.
"""

import abc
import dataclasses

import numpy as np
import pyarrow as pa

from dpngram.transforms.blocks.columns import Array, binary_array, split_binary

__all__ = ["MAX_RECORD_TOKENS", "MAX_TOKEN_BYTES", "TokenColumn", "Tokenizer", "encode_tokens"]


MAX_TOKEN_BYTES = 4096
MAX_RECORD_TOKENS = 20_000_000


@dataclasses.dataclass(frozen=True)
class TokenColumn:
    """Tokenised records: `ids[bounds[i]:bounds[i+1]]` index `vocabulary`, and `record[i]` is which record that is.

    Records without a token are left out, and so are those over a cap, which `over` counts.
    """

    vocabulary: pa.Array  # large_binary, distinct
    ids: Array  # int32
    bounds: Array  # int64
    record: Array  # int64; with `sentences`, several runs may belong to one record
    over: int = 0
    failed: int = 0  # records on which a third-party tokenizer failed


class Tokenizer(abc.ABC):
    """How text becomes tokens."""

    @property
    @abc.abstractmethod
    def spec(self) -> str:
        """Names all that the tokens depend on; in the manifest, and in the derivation of the noise."""

    @abc.abstractmethod
    def tokenize(self, texts: pa.Array) -> TokenColumn:
        """Tokenises a column of UTF-8 texts without nulls."""

    def vocabulary(self) -> list[str] | None:
        """All tokens that it can make, if it has such a list."""
        return None


def encode_tokens(offsets: Array, data: Array, bounds: Array) -> TokenColumn:
    """A column of records given as tokens already; `bounds` are the records' token ranges."""
    lengths = np.diff(offsets)
    counts = np.diff(bounds)
    long_tokens = np.flatnonzero(lengths > MAX_TOKEN_BYTES)
    fits = counts <= MAX_RECORD_TOKENS
    fits[np.searchsorted(bounds, long_tokens, side="right") - 1] = False
    if not fits.all():
        kept = binary_array(offsets, data).filter(pa.array(np.repeat(fits, counts)))
        offsets, data = split_binary(kept)
        bounds = np.append(0, np.cumsum(np.where(fits, counts, 0)))
    encoded = binary_array(offsets, data).dictionary_encode()
    record = np.flatnonzero(np.diff(bounds))
    ids = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    over = int(np.count_nonzero(~fits))
    return TokenColumn(encoded.dictionary, ids, np.concatenate([bounds[record], bounds[-1:]]), record, over)

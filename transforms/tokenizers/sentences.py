"""Sentences: no n-gram crosses the end of one."""

import dataclasses

import numpy as np
import pyarrow as pa

from dpngram.transforms.blocks.columns import Array, binary_array, split_binary
from dpngram.transforms.tokenizers.base import TokenColumn, Tokenizer
from dpngram.transforms.tokenizers.words import WHITE_BYTES

__all__ = ["SentenceTokenizer"]


@dataclasses.dataclass(frozen=True)
class SentenceTokenizer(Tokenizer):
    """Another tokenizer on each sentence by itself: no n-gram crosses the end of one.

    A sentence ends with . ! or ? (or their East Asian forms, or an ellipsis) before white space, and at a line's end.
    """

    inner: Tokenizer

    @property
    def spec(self) -> str:
        return f"sentences:{self.inner.spec}"

    def tokenize(self, texts: pa.Array) -> TokenColumn:
        offsets, data = split_binary(texts)
        cuts = np.unique(np.concatenate([offsets, _sentence_ends(data)]))
        column = self.inner.tokenize(binary_array(cuts, data))
        record = np.searchsorted(offsets, cuts[column.record], side="right") - 1
        return dataclasses.replace(column, record=record)

    def vocabulary(self) -> list[str] | None:
        return self.inner.vocabulary()


_WIDE_STOPS = tuple(stop.encode() for stop in "\u3002\uff01\uff1f\u2026")


def _sentence_ends(data: Array) -> Array:
    """Where sentences end in a column of bytes: after the stop, or after the line break."""
    if len(data) < 2:
        return np.zeros(0, np.int64)
    white = np.frombuffer(data.tobytes().translate(WHITE_BYTES), bool)
    stops = np.isin(data[:-1], np.frombuffer(b".!?", np.uint8)) & white[1:]
    ends = [np.flatnonzero(stops) + 1, np.flatnonzero(data == ord("\n")) + 1]
    for stop in _WIDE_STOPS:
        match = np.ones(max(len(data) - len(stop) + 1, 0), bool)
        for place, byte in enumerate(stop):
            match &= data[place : place + len(match)] == byte
        ends.append(np.flatnonzero(match) + len(stop))
    return np.concatenate(ends)

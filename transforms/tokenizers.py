"""Text into tokens, a column at a time: no Python object per token.

A tokenizer classifies every byte of a column as part of a token or not; runs of token bytes are the tokens. ASCII is
classified through a table of 256 entries; a stretch of other text is normalised and classified once for each
distinct stretch. Tokens are bytes, kept apart by offsets: no separator could be confused with them.
"""

import dataclasses
import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from dpngram.accounting import ParameterError
from dpngram.transforms.columns import binary_array, split_binary

__all__ = ["TOKENIZERS", "TokenColumn", "Tokenizer", "encode_tokens", "make_tokenizer"]

Array = np.ndarray[Any, Any]
_APOSTROPHE = ord("'")
_WHITE = bytes(code in b" \t\n\r" for code in range(256))


@dataclasses.dataclass(frozen=True)
class TokenColumn:
    """Tokenised records: `ids[bounds[i]:bounds[i+1]]` index `vocabulary`, and `record[i]` is which record that is.

    Records without a token are left out.
    """

    vocabulary: pa.Array  # large_binary, distinct
    ids: Array  # int32
    bounds: Array  # int64
    record: Array  # int64


@dataclasses.dataclass(frozen=True)
class Tokenizer:
    """How text becomes tokens. `spec` is recorded in the manifest and enters the derivation of the noise."""

    name: str
    normalize: Callable[[str], str]
    is_token_character: Callable[[str], bool]
    inner_apostrophes: bool

    @property
    def spec(self) -> str:
        """Names the tokenizer and the Unicode tables it used."""
        return f"{self.name}/unicode-{unicodedata.unidata_version}"

    def tokenize(self, texts: pa.Array) -> TokenColumn:
        """Tokenises a column of UTF-8 texts without nulls."""
        offsets, data = split_binary(texts)
        raw = data.tobytes()
        normal, classes = raw.translate(self._ascii_bytes()), raw.translate(self._ascii_classes())
        if not raw.isascii():
            offsets, normal, classes = self._splice_unicode(offsets, data, raw, normal, classes)
        return _cut(offsets, np.frombuffer(normal, np.uint8), np.frombuffer(classes, bool), self.inner_apostrophes)

    def _splice_unicode(
        self, offsets: Array, data: Array, raw: bytes, normal: bytes, classes: bytes
    ) -> tuple[Array, bytes, bytes]:
        """Replaces every stretch between white space that is not ASCII by its normal form and classes.

        White space cuts tokens, and normal forms do not look across it, so each stretch stands alone.
        """
        wide = np.flatnonzero(data >= 0x80)
        record = np.searchsorted(offsets, wide, side="right") - 1
        spaces = np.flatnonzero(np.frombuffer(raw.translate(_WHITE), bool))
        after = np.searchsorted(spaces, wide)
        starts = np.maximum(offsets[record], np.append(-1, spaces)[after] + 1)
        ends = np.minimum(offsets[record + 1], np.append(spaces, len(raw))[after])
        once = np.append(True, starts[1:] != starts[:-1])
        starts, ends = starts[once], ends[once]
        known: dict[bytes, tuple[bytes, bytes]] = {}
        new_normal: list[bytes] = []
        new_classes: list[bytes] = []
        growth, at = np.zeros(len(starts) + 1, np.int64), 0
        for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            piece = raw[start:end]
            if piece not in known:
                known[piece] = self._normalize_piece(piece)
            new_normal += (normal[at:start], known[piece][0])
            new_classes += (classes[at:start], known[piece][1])
            growth[row + 1] = len(known[piece][0]) - (end - start)
            at = end
        new_normal.append(normal[at:])
        new_classes.append(classes[at:])
        moved = offsets + np.cumsum(growth)[np.searchsorted(ends, offsets, side="right")]
        return moved, b"".join(new_normal), b"".join(new_classes)

    def _normalize_piece(self, piece: bytes) -> tuple[bytes, bytes]:
        characters = self.normalize(piece.decode())
        classes = b"".join(
            (b"\1" if self.is_token_character(character) else b"\0") * len(character.encode())
            for character in characters
        )
        return characters.encode(), classes

    def _ascii_bytes(self) -> bytes:
        # Every ASCII character normalises to one ASCII character, so a table does for whole columns.
        return bytes(ord(self.normalize(chr(code))) if code < 0x80 else code for code in range(256))

    def _ascii_classes(self) -> bytes:
        return bytes(code < 0x80 and self.is_token_character(chr(code)) for code in range(256))


def encode_tokens(offsets: Array, data: Array, bounds: Array) -> TokenColumn:
    """A column of records given as tokens already; `bounds` are the records' token ranges."""
    encoded = binary_array(offsets, data).dictionary_encode()
    record = np.flatnonzero(np.diff(bounds))
    ids = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    return TokenColumn(encoded.dictionary, ids, np.concatenate([bounds[record], bounds[-1:]]), record)


def make_tokenizer(name: str) -> Tokenizer:
    """The tokenizer of that name, or a ParameterError that lists them."""
    if name not in TOKENIZERS:
        raise ParameterError(f"tokenizer must be one of {', '.join(TOKENIZERS)}, got {name!r:.80}.")
    return TOKENIZERS[name]


def _cut(offsets: Array, data: Array, inside: Array, inner_apostrophes: bool) -> TokenColumn:
    """Cuts a column of bytes into tokens: the runs of `inside`, which never cross a record."""
    heads = offsets[:-1][np.diff(offsets) > 0]
    if inner_apostrophes and len(data) > 2:
        inner = np.zeros(len(data), bool)
        inner[1:-1] = (data[1:-1] == _APOSTROPHE) & inside[:-2] & inside[2:]
        inner[heads] = False
        inner[heads[1:] - 1] = False
        inside = inside | inner
    starts = inside.copy()
    starts[1:] &= ~inside[:-1]
    starts[heads] = inside[heads]
    token_offsets = np.append(np.flatnonzero(starts[inside]), np.count_nonzero(inside)).astype(np.int64)
    return encode_tokens(token_offsets, data[inside], np.searchsorted(np.flatnonzero(starts), offsets))


def _fold(text: str) -> str:
    """NFKC and case folding, applied until stable, with the typographic apostrophe as the plain one."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return folded.replace("\u2019", "'")


def _is_word_character(character: str) -> bool:
    """Letters, digits and the marks that belong to them (vowel signs, accents)."""
    return character.isalnum() or unicodedata.category(character).startswith("M")


def _is_not_space(character: str) -> bool:
    return not character.isspace()


def _identity(text: str) -> str:
    return text


TOKENIZERS = {
    "words": Tokenizer("words", _fold, _is_word_character, inner_apostrophes=True),
    "whitespace": Tokenizer("whitespace", _identity, _is_not_space, inner_apostrophes=False),
}

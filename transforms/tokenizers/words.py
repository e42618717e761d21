"""Built-in tokenizers: runs of characters, cut a column at a time."""

import dataclasses
import functools
import unicodedata
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from dpngram.transforms.blocks.columns import Array, run_starts, split_binary
from dpngram.transforms.tokenizers.base import TokenColumn, Tokenizer, encode_tokens
from dpngram.transforms.tokenizers.characters import CharacterClasses, order_marks

__all__ = ["WHITESPACE", "WHITE_BYTES", "WORDS", "WordTokenizer"]


_APOSTROPHE = ord("'")
# A table for bytes.translate: 1 for white space.
WHITE_BYTES = bytes(code in b" \t\n\r" for code in range(256))


@dataclasses.dataclass(frozen=True)
class WordTokenizer(Tokenizer):
    """Runs of characters of one kind, after a normal form."""

    name: str
    normalize: Callable[[str], str]
    is_token_character: Callable[[str], bool]
    inner_apostrophes: bool

    @property
    def spec(self) -> str:
        return f"{self.name}/unicode-{unicodedata.unidata_version}"

    def tokenize(self, texts: pa.Array) -> TokenColumn:
        offsets, data = split_binary(texts)
        raw = data.tobytes()
        to_normal, to_class = _ascii_tables(self.normalize, self.is_token_character)
        normal, classes = raw.translate(to_normal), raw.translate(to_class)
        if not raw.isascii():
            offsets, normal, classes = self._splice_unicode(offsets, data, raw, normal, classes)
        return _cut(offsets, np.frombuffer(normal, np.uint8), np.frombuffer(classes, bool), self.inner_apostrophes)

    def _splice_unicode(
        self, offsets: Array, data: Array, raw: bytes, normal: bytes, classes: bytes
    ) -> tuple[Array, bytes, bytes]:
        """Replaces every stretch between white space that is not ASCII by its normal form and classes.

        White space cuts tokens, and normal forms do not look across it, so each stretch stands alone.
        """
        is_wide = data >= 0x80
        heads = is_wide & ~np.append(False, is_wide[:-1])
        begins = offsets[:-1][offsets[:-1] < len(data)]
        heads[begins] = is_wide[begins]
        wide = np.flatnonzero(heads)  # where a run begins: a column of them is much shorter than one of bytes
        record = np.searchsorted(offsets, wide, side="right") - 1
        spaces = np.flatnonzero(np.frombuffer(raw.translate(WHITE_BYTES), bool))
        after = np.searchsorted(spaces, wide)
        starts = np.maximum(offsets[record], np.append(-1, spaces)[after] + 1)
        ends = np.minimum(offsets[record + 1], np.append(spaces, len(raw))[after])
        once = run_starts(starts)
        starts, ends = starts[once], ends[once]
        known: dict[bytes, tuple[bytes, bytes]] = {}
        characters = CharacterClasses(self.is_token_character)
        new_normal: list[bytes] = []
        new_classes: list[bytes] = []
        growth, at = np.zeros(len(starts) + 1, np.int64), 0
        for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            piece = raw[start:end]
            if piece not in known:
                known[piece] = self._normalize_piece(piece, characters)
            new_normal += (normal[at:start], known[piece][0])
            new_classes += (classes[at:start], known[piece][1])
            growth[row + 1] = len(known[piece][0]) - (end - start)
            at = end
        new_normal.append(normal[at:])
        new_classes.append(classes[at:])
        moved = offsets + np.cumsum(growth)[np.searchsorted(ends, offsets, side="right")]
        return moved, b"".join(new_normal), b"".join(new_classes)

    def _normalize_piece(self, piece: bytes, classes: CharacterClasses) -> tuple[bytes, bytes]:
        characters = self.normalize(piece.decode())
        parts = (characters[start : start + (1 << 16)] for start in range(0, len(characters), 1 << 16))
        return characters.encode(), b"".join(b"".join(map(classes.__getitem__, part)) for part in parts)


@functools.cache
def _ascii_tables(normalize: Callable[[str], str], is_token_character: Callable[[str], bool]) -> tuple[bytes, bytes]:
    """Two tables for `bytes.translate`: the normal form of each ASCII character, and whether it is part of a token.

    Every ASCII character normalises to one ASCII character, so a table does for whole columns. Other bytes stay.
    """
    normal = bytes(ord(normalize(chr(code))) if code < 0x80 else code for code in range(256))
    return normal, bytes(code < 0x80 and is_token_character(chr(code)) for code in range(256))


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
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", order_marks(text)).casefold())
    return folded.replace("\u2019", "'")


def _is_word_character(character: str) -> bool:
    """Letters, digits and the marks that belong to them (vowel signs, accents)."""
    return character.isalnum() or unicodedata.category(character).startswith("M")


def _is_not_space(character: str) -> bool:
    return not character.isspace()


def _identity(text: str) -> str:
    return text


WORDS = WordTokenizer("words", _fold, _is_word_character, inner_apostrophes=True)
WHITESPACE = WordTokenizer("whitespace", _identity, _is_not_space, inner_apostrophes=False)

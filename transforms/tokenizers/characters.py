"""What tokenizers ask of single characters, for texts of any length: in time and memory that grow with the text."""

import unicodedata
from collections.abc import Callable

import numpy as np

__all__ = ["CharacterClasses", "order_marks"]

_SHORT_RUN = 256  # marks in a row that Python may sort


class CharacterClasses(dict[str, bytes]):
    """For each character a 1 or a 0 for each of its bytes: whether it is a part of tokens. Each is looked at once."""

    def __init__(self, is_token_character: Callable[[str], bool]) -> None:
        super().__init__()
        self._is_token_character = is_token_character

    def __missing__(self, character: str) -> bytes:
        inside = b"\1" if self._is_token_character(character) else b"\0"
        self[character] = inside * len(character.encode())
        return self[character]


def order_marks(text: str) -> str:
    """Puts long runs of combining marks into the order that every normal form gives them; the same text to Unicode.

    Python sorts them by insertion, in time that grows with the square of the run: a megabyte of marks would take
    hours. Runs that are in order take it no time.
    """
    if len(text) <= _SHORT_RUN:
        return text
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    distinct, at = np.unique(codes, return_inverse=True)
    parts = [_mark_codes(code) for code in distinct.tolist()]
    is_mark = np.array([bool(part) for part in parts])[at]
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_mark, [False]])))
    if (edges[1::2] - edges[::2]).max(initial=0) <= _SHORT_RUN:
        return text
    parts = [part or [code] for part, code in zip(parts, distinct.tolist(), strict=True)]
    lengths = np.array([len(part) for part in parts])
    flat = np.array([code for part in parts for code in part], np.uint32)
    classes = np.array([unicodedata.combining(chr(code)) for code in flat.tolist()], np.uint8)
    ends = np.cumsum(lengths[at])
    rows = np.arange(ends[-1]) + np.repeat((np.cumsum(lengths) - lengths)[at] - (ends - lengths[at]), lengths[at])
    order = np.lexsort((classes[rows], np.cumsum(classes[rows] == 0)))
    return str(flat[rows[order]].tobytes(), "utf-32-le")


def _mark_codes(code: int) -> list[int]:
    """What a combining mark decomposes into; nothing for any other character."""
    parts = unicodedata.normalize("NFKD", chr(code))
    return [ord(part) for part in parts] if all(map(unicodedata.combining, parts)) else []

"""Text into tokens, a column at a time; for the built-in tokenizers without a Python object per token.

`words` and `whitespace` classify every byte of a column as part of a token or not; runs of token bytes are the tokens.
ASCII is classified through a table of 256 entries; a stretch of other text is normalised and classified once for each
distinct stretch. Tokens are bytes, kept apart by offsets: no separator could be confused with them.

A record with a token of more than MAX_TOKEN_BYTES, or with more than MAX_RECORD_TOKENS tokens, is left out and counted:
cutting it would make grams that nobody wrote, and one record must not decide how much memory a worker needs. So is
one that the tokenizer itself fails on.
"""

import abc
import contextlib
import dataclasses
import hashlib
import importlib
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from apache_beam.io.filesystems import FileSystems

from dpngram.accounting import ParameterError
from dpngram.transforms.characters import CharacterClasses, order_marks
from dpngram.transforms.columns import binary_array, split_binary

__all__ = [
    "MAX_RECORD_TOKENS",
    "MAX_TOKEN_BYTES",
    "TOKENIZERS",
    "CallableTokenizer",
    "HuggingFaceTokenizer",
    "RegexTokenizer",
    "SentenceTokenizer",
    "TokenColumn",
    "Tokenizer",
    "WordTokenizer",
    "encode_tokens",
    "make_tokenizer",
]

Array = np.ndarray[Any, Any]
MAX_TOKEN_BYTES = 4096
MAX_RECORD_TOKENS = 20_000_000
_APOSTROPHE = ord("'")
_WHITE = bytes(code in b" \t\n\r" for code in range(256))


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
    failed: int = 0  # records on which a tokenizer of somebody else's failed


class Tokenizer(abc.ABC):
    """How text becomes tokens."""

    @property
    @abc.abstractmethod
    def spec(self) -> str:
        """Names all that the tokens depend on; in the manifest, and in the derivation of the noise."""

    @abc.abstractmethod
    def tokenize(self, texts: pa.Array) -> TokenColumn:
        """Tokenises a column of UTF-8 texts without nulls."""


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
        is_wide = data >= 0x80
        heads = is_wide & ~np.append(False, is_wide[:-1])
        begins = offsets[:-1][offsets[:-1] < len(data)]
        heads[begins] = is_wide[begins]
        wide = np.flatnonzero(heads)  # where a run begins: a column of them is much shorter than one of bytes
        record = np.searchsorted(offsets, wide, side="right") - 1
        spaces = np.flatnonzero(np.frombuffer(raw.translate(_WHITE), bool))
        after = np.searchsorted(spaces, wide)
        starts = np.maximum(offsets[record], np.append(-1, spaces)[after] + 1)
        ends = np.minimum(offsets[record + 1], np.append(spaces, len(raw))[after])
        once = np.append(True, starts[1:] != starts[:-1])
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

    def _ascii_bytes(self) -> bytes:
        # Every ASCII character normalises to one ASCII character, so a table does for whole columns.
        return bytes(ord(self.normalize(chr(code))) if code < 0x80 else code for code in range(256))

    def _ascii_classes(self) -> bytes:
        return bytes(code < 0x80 and self.is_token_character(chr(code)) for code in range(256))


class _ByRecord(Tokenizer):
    """Tokenizers that take one text at a time."""

    @abc.abstractmethod
    def _splitter(self) -> Callable[[str], Iterable[str]]:
        """From a text to its tokens. What a worker lacks for it fails the run, not every record."""

    def tokenize(self, texts: pa.Array) -> TokenColumn:
        split = self._splitter()
        tokens: list[bytes] = []
        bounds, failed = [0], 0
        for text in texts.cast(pa.large_string()).to_pylist():
            start = len(tokens)
            try:
                tokens += [token.encode() for token in split(text)]
            except (KeyboardInterrupt, GeneratorExit, MemoryError):
                raise
            except BaseException:  # somebody else's code, on somebody's text: counted, its message shown to nobody
                # A panic in Rust code, as tokenizers have, and sys.exit are no `Exception`.
                del tokens[start:]
                failed += 1
            bounds.append(len(tokens))
        column = encode_tokens(*split_binary(pa.array(tokens, pa.large_binary())), np.array(bounds))
        return dataclasses.replace(column, failed=failed)


@dataclasses.dataclass(frozen=True)
class RegexTokenizer(_ByRecord):
    """The matches of a pattern of Python's `re`, as they stand; its first group, if it has one."""

    pattern: str

    def __post_init__(self) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what a pattern may mean in a future Python
                compiled = re.compile(self.pattern)
        except (re.error, RecursionError, OverflowError):
            raise ParameterError(
                f"tokenizer regex must be a pattern of Python's re, got {self.pattern!r:.80}."
            ) from None
        if not self.pattern or compiled.groups > 1:
            raise ParameterError(f"tokenizer regex must have at most one group, got {self.pattern!r:.80}.")

    @property
    def spec(self) -> str:
        return f"regex:{self.pattern}/unicode-{unicodedata.unidata_version}"

    def _splitter(self) -> Callable[[str], Iterable[str]]:
        return lambda text: filter(None, re.findall(self.pattern, text))


@dataclasses.dataclass(frozen=True)
class CallableTokenizer(_ByRecord):
    """Any importable function from a text to its tokens, `module:function`. It must be the same on every worker."""

    name: str

    def __post_init__(self) -> None:
        self._splitter()

    @property
    def spec(self) -> str:
        module = self.name.partition(":")[0]
        version = getattr(importlib.import_module(module.partition(".")[0]), "__version__", "")
        return f"callable:{self.name}" + (f"/{version}" if version else "")

    def _splitter(self) -> Callable[[str], Iterable[str]]:
        module, _, path = self.name.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for part in path.split("."):
                found = getattr(found, part)
        except Exception:  # a module that fails when it is imported may raise anything
            found = None
        if not callable(found):
            raise ParameterError(f"tokenizer must be an importable module:function, got {self.name!r:.80}.")
        function: Callable[[str], Iterable[str]] = found
        return function


@dataclasses.dataclass(frozen=True)
class HuggingFaceTokenizer(_ByRecord):
    """The tokens of a `tokenizer.json` of Hugging Face's tokenizers, without special tokens; on any Beam filesystem.

    Privacy: a vocabulary that was learned from the private data is outside the guarantee.
    """

    path: str
    digest: str = ""

    def __post_init__(self) -> None:
        try:
            with _no_panic():
                _load_hugging_face(self.path, self.digest)
        except ImportError:
            raise ParameterError(
                "tokenizer huggingface needs the package tokenizers: pip install 'dpngram[hf]'."
            ) from None
        except Exception:
            raise ParameterError(
                f"tokenizer huggingface must be a readable tokenizer.json, got {self.path!r:.80}."
            ) from None
        object.__setattr__(self, "digest", hashlib.sha256(_read(self.path)).hexdigest())

    @property
    def spec(self) -> str:
        return f"huggingface:sha256-{self.digest}"

    def _splitter(self) -> Callable[[str], Iterable[str]]:
        loaded = _load_hugging_face(self.path, self.digest)
        return lambda text: loaded.encode(text, add_special_tokens=False).tokens


@contextlib.contextmanager
def _no_panic() -> Iterator[None]:
    """The library is written in Rust. Where it panics Python sees what is no Exception, and would end the worker."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise RuntimeError("the tokenizer gave up") from None  # its message may quote the text


_LOADED: dict[tuple[str, str], Any] = {}


def _load_hugging_face(path: str, digest: str) -> Any:
    """Once in a process; a file that is not the one of the launch is refused."""
    if (path, digest) not in _LOADED:
        from tokenizers import Tokenizer as Loaded

        content = _read(path)
        if digest and hashlib.sha256(content).hexdigest() != digest:
            raise ParameterError("tokenizer huggingface must be the same file on every worker.")
        _LOADED[path, digest] = Loaded.from_str(content.decode())
    return _LOADED[path, digest]


def _read(path: str) -> bytes:
    with FileSystems.open(path, compression_type="uncompressed") as file:
        return bytes(file.read())


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


_WIDE_STOPS = tuple(stop.encode() for stop in "\u3002\uff01\uff1f\u2026")


def _sentence_ends(data: Array) -> Array:
    """Where sentences end in a column of bytes: after the stop, or after the line break."""
    if len(data) < 2:
        return np.zeros(0, np.int64)
    white = np.frombuffer(data.tobytes().translate(_WHITE), bool)
    stops = np.isin(data[:-1], np.frombuffer(b".!?", np.uint8)) & white[1:]
    ends = [np.flatnonzero(stops) + 1, np.flatnonzero(data == ord("\n")) + 1]
    for stop in _WIDE_STOPS:
        match = np.ones(max(len(data) - len(stop) + 1, 0), bool)
        for place, byte in enumerate(stop):
            match &= data[place : place + len(match)] == byte
        ends.append(np.flatnonzero(match) + len(stop))
    return np.concatenate(ends)


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


def make_tokenizer(name: str, sentences: bool = False) -> Tokenizer:
    """The tokenizer of that name, or a ParameterError that lists them."""
    tokenizer = _named_tokenizer(name)
    return SentenceTokenizer(tokenizer) if sentences else tokenizer


def _named_tokenizer(name: str) -> Tokenizer:
    if name in TOKENIZERS:
        return TOKENIZERS[name]
    kind, colon, rest = name.partition(":")
    if kind == "regex" and colon:
        return RegexTokenizer(rest)
    if kind == "huggingface" and colon:
        return HuggingFaceTokenizer(rest)
    if colon and rest:
        return CallableTokenizer(name)
    raise ParameterError(
        f"tokenizer must be one of {', '.join(TOKENIZERS)}, regex:PATTERN, huggingface:FILE or module:function, "
        f"got {name!r:.80}."
    )


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


TOKENIZERS = {
    "words": WordTokenizer("words", _fold, _is_word_character, inner_apostrophes=True),
    "whitespace": WordTokenizer("whitespace", _identity, _is_not_space, inner_apostrophes=False),
}

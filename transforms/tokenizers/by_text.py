"""Tokenizers that take one text at a time: a regular expression, a function, a file of Hugging Face."""

import abc
import dataclasses
import hashlib
import importlib
import json
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from apache_beam.io.filesystems import FileSystems

from dpngram.accounting import ParameterError
from dpngram.transforms.blocks.columns import split_binary
from dpngram.transforms.messages import Message
from dpngram.transforms.tokenizers.base import TokenColumn, Tokenizer, encode_tokens

__all__ = ["CallableTokenizer", "HuggingFaceTokenizer", "RegexTokenizer"]


class ByText(Tokenizer):
    """Tokenizers that take one text at a time."""

    @abc.abstractmethod
    def _splitter(self) -> Callable[[str], Iterable[str]]:
        """A function from a text to its tokens. If a worker cannot make it, the run fails, and not every record."""

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
            except BaseException:  # third-party code on private text: counted, and its message is never shown
                # BaseException, because a panic in Rust code and sys.exit are not an `Exception`.
                del tokens[start:]
                failed += 1
            bounds.append(len(tokens))
        column = encode_tokens(*split_binary(pa.array(tokens, pa.large_binary())), np.array(bounds))
        return dataclasses.replace(column, failed=failed)


@dataclasses.dataclass(frozen=True)
class RegexTokenizer(ByText):
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
class CallableTokenizer(ByText):
    """Any importable function from a text to its tokens, `module:function`. It must be the same on every worker.

    Privacy: it must be a pure function of one text: no state, no chance, no clock, no other record. Otherwise one
    user's text could change what is counted of another, and a bundle that runs twice would hold other data.
    """

    name: str

    def __post_init__(self) -> None:
        try:
            self._splitter()
        except RuntimeError:
            raise ParameterError(f"tokenizer must be an importable module:function, got {self.name!r:.80}.") from None

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
        except Exception as error:  # a module that fails when it is imported may raise anything
            raise RuntimeError(Message.TOKENIZER_NOT_IMPORTED.format(kind=type(error).__name__)) from None
        if not callable(found):
            raise RuntimeError(Message.TOKENIZER_NOT_IMPORTED.format(kind=TypeError.__name__))
        function: Callable[[str], Iterable[str]] = found
        return function


@dataclasses.dataclass(frozen=True)
class HuggingFaceTokenizer(ByText):
    """The tokens of a `tokenizer.json` of Hugging Face's tokenizers, without special tokens; on any Beam filesystem.

    Privacy: a vocabulary that was learned from the private data is outside the guarantee. A model with `dropout` draws
    lots, and is refused: tokens must be a function of the text.
    """

    path: str
    digest: str = ""

    def __post_init__(self) -> None:
        try:
            _load_hugging_face(self.path, self.digest)
        except ImportError:
            raise ParameterError(
                "tokenizer huggingface needs the package tokenizers: pip install 'dpngram[hf]'."
            ) from None
        except Exception:
            raise ParameterError(
                f"tokenizer huggingface must be a readable tokenizer.json, got {self.path!r:.80}."
            ) from None
        content = _read(self.path)
        if (json.loads(content).get("model") or {}).get("dropout"):
            raise ParameterError(
                "tokenizer huggingface must have no dropout in its model: it would draw other tokens every time."
            )
        object.__setattr__(self, "digest", hashlib.sha256(content).hexdigest())

    @property
    def spec(self) -> str:
        return f"huggingface:sha256-{self.digest}"

    def _splitter(self) -> Callable[[str], Iterable[str]]:
        loaded = _load_hugging_face(self.path, self.digest)
        return lambda text: loaded.encode(text, add_special_tokens=False).tokens

    def vocabulary(self) -> list[str] | None:
        return sorted(_load_hugging_face(self.path, self.digest).get_vocab(with_added_tokens=True))


_LOADED: dict[tuple[str, str], Any] = {}


def _load_hugging_face(path: str, digest: str) -> Any:
    """Once in a process; a file that is not the one of the launch is refused."""
    if (path, digest) not in _LOADED:
        try:
            from tokenizers import Tokenizer as Loaded
        except ImportError:
            raise ImportError(Message.TOKENIZER_NEEDS_PACKAGE.format()) from None
        try:
            content = _read(path)
        except Exception as error:
            raise RuntimeError(Message.TOKENIZER_UNREADABLE.format(kind=type(error).__name__)) from None
        if digest and hashlib.sha256(content).hexdigest() != digest:
            raise RuntimeError(Message.TOKENIZERS_DIFFER.format())
        try:
            _LOADED[path, digest] = Loaded.from_str(content.decode())
        except BaseException as error:
            # The library is written in Rust: a panic is not an `Exception`, and would end the worker.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise RuntimeError(Message.TOKENIZER_UNREADABLE.format(kind=type(error).__name__)) from None
    return _LOADED[path, digest]


def _read(path: str) -> bytes:
    with FileSystems.open(path, compression_type="uncompressed") as file:
        return bytes(file.read())

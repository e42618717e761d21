"""Text into tokens. `TOKENIZERS` is the one list of them: flags, help, templates and docs are made from it.

A new tokenizer is a class with `spec` and `tokenize` (see `base.Tokenizer`), one entry here, and its test.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterable
from typing import Any

from dpngram.accounting import ParameterError
from dpngram.transforms.tokenizers.base import Tokenizer
from dpngram.transforms.tokenizers.by_text import CallableTokenizer, HuggingFaceTokenizer, RegexTokenizer
from dpngram.transforms.tokenizers.sentences import SentenceTokenizer
from dpngram.transforms.tokenizers.words import WHITESPACE, WORDS

__all__ = [
    "TOKENIZERS",
    "Splitter",
    "Tokenizer",
    "TokenizerKind",
    "make_tokenizer",
    "tokenizer_file",
    "tokenizer_forms",
    "tokenizer_help",
    "tokenizer_pattern",
]

Splitter = Callable[[str], Iterable[str]]  # a function from a text to its tokens


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerKind:
    """One way to make tokens.

    Args:
        form: what a person types, as help shows it: `words`, or `regex:PATTERN`.
        help: one line that says what the tokens are.
        make: the tokenizer, from the text after the colon (empty if `form` has no colon).
        argument: a regular expression for the text after the colon; None if there is no colon.
        reads_file: whether that text names a file, which every worker must be able to read.
    """

    form: str
    help: str
    make: Callable[[str], Tokenizer]
    argument: str | None = None
    reads_file: bool = False


_ANY_MODULE = "module"  # the entry for any word before a colon that has no entry

# By the word before the colon.
TOKENIZERS = {
    "words": TokenizerKind(
        form="words", help="letters, digits and inner apostrophes; NFKC, case folded", make=lambda _: WORDS
    ),
    "whitespace": TokenizerKind(
        form="whitespace", help="everything between white space, unchanged", make=lambda _: WHITESPACE
    ),
    "regex": TokenizerKind(
        form="regex:PATTERN",
        help="the matches of a pattern of Python's re, or its one group",
        make=RegexTokenizer,
        argument=r".+",
    ),
    "huggingface": TokenizerKind(
        form="huggingface:FILE",
        help="a tokenizer.json of Hugging Face's tokenizers",
        make=HuggingFaceTokenizer,
        argument=r".+",
        reads_file=True,
    ),
    _ANY_MODULE: TokenizerKind(
        form="module:function",
        help="an importable function from a text to its tokens",
        make=CallableTokenizer,
        argument=r"[\w.]+",
    ),
}


def tokenizer_forms() -> str:
    """All forms in one line, for help and errors."""
    *first, last = (kind.form for kind in TOKENIZERS.values())
    return f"{', '.join(first)} or {last}"


def tokenizer_help() -> str:
    """All forms in one line, each with what its tokens are."""
    return ", ".join(f"{kind.form} ({kind.help})" for kind in TOKENIZERS.values())


def tokenizer_pattern(file: str) -> str:
    """A regular expression for all forms, where a file must match the regular expression `file`."""
    forms = []
    for name, kind in TOKENIZERS.items():
        before = r"[\w.]+" if name == _ANY_MODULE else name
        forms.append(before if kind.argument is None else f"{before}:{file if kind.reads_file else kind.argument}")
    return "|".join(forms)


def tokenizer_file(name: str) -> str | None:
    """The file that this tokenizer reads on every worker, if it reads one."""
    before, colon, rest = name.partition(":")
    kind = TOKENIZERS.get(before)
    return rest if colon and kind is not None and kind.reads_file else None


def make_tokenizer(name: str | Splitter, sentences: bool = False) -> Tokenizer:
    """The tokenizer of that name, or a ParameterError that lists them.

    Args:
        name: one of the forms of `TOKENIZERS`, or a function that workers can import from a module, which stands for
            its `module:function`.
        sentences: n-grams do not cross the end of a sentence.
    """
    tokenizer = _named_tokenizer(name if isinstance(name, str) else _name_of(name))
    return SentenceTokenizer(tokenizer) if sentences else tokenizer


def _named_tokenizer(name: str) -> Tokenizer:
    before, colon, rest = name.partition(":")
    kind = TOKENIZERS.get(before)
    if kind is not None and before != _ANY_MODULE and bool(colon) == (kind.argument is not None):
        return kind.make(rest)
    if colon and rest:
        return TOKENIZERS[_ANY_MODULE].make(name)
    raise ParameterError(f"tokenizer must be one of {tokenizer_forms()}, got {name!r:.80}.")


def _name_of(function: Any) -> str:
    """`module:function` of a function; a ParameterError if workers could not import it, or it is no function."""
    wanted = f"tokenizer must be a name ({tokenizer_forms()}) or a function of a module"
    if not callable(function):
        raise ParameterError(f"{wanted}, got {type(function).__name__}.")
    module, path = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not module or not path:
        raise ParameterError(f"{wanted}, got a {type(function).__name__} without one.")
    if module == "__main__" or "<" in path:  # <lambda>, <locals>
        raise ParameterError(
            f"{wanted} that every worker can import, got {module}:{path}; put the function into a module, at its top."
        )
    found: Any = sys.modules.get(module)  # who has the function has imported its module
    for part in path.split("."):
        found = getattr(found, part, None)
    if found is not function and found != function:  # a bound method is a new object every time
        raise ParameterError(f"{wanted}, got one that {module}:{path} does not name.")
    return f"{module}:{path}"

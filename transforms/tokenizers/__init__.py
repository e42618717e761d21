"""Text into tokens. `TOKENIZERS` is the one list of them: flags, help, templates and docs are made from it.

A new tokenizer is a class with `spec` and `tokenize` (see `base.Tokenizer`), one entry here, and its test.
"""

import dataclasses
from collections.abc import Callable

from dpngram.accounting import ParameterError
from dpngram.transforms.tokenizers.base import Tokenizer
from dpngram.transforms.tokenizers.by_text import CallableTokenizer, HuggingFaceTokenizer, RegexTokenizer
from dpngram.transforms.tokenizers.sentences import SentenceTokenizer
from dpngram.transforms.tokenizers.words import WHITESPACE, WORDS

__all__ = ["TOKENIZERS", "Tokenizer", "TokenizerKind", "make_tokenizer", "tokenizer_file", "tokenizer_forms"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerKind:
    """One way to make tokens.

    Args:
        form: what a person types, as help shows it: `words`, or `regex:PATTERN`.
        help: one line that says what the tokens are.
        make: the tokenizer, from the text behind the colon (empty where `form` has no colon).
        argument: a regular expression for the text behind the colon; None where there is no colon.
        reads_file: whether that text names a file, which every worker must be able to read.
    """

    form: str
    help: str
    make: Callable[[str], Tokenizer]
    argument: str | None = None
    reads_file: bool = False


# By what stands before the colon. "module" is for all other words with a colon.
TOKENIZERS = {
    "words": TokenizerKind(
        form="words", help="letters, digits and inner apostrophes; NFKC, case folded", make=lambda _: WORDS
    ),
    "whitespace": TokenizerKind(
        form="whitespace", help="whatever stands between white space, unchanged", make=lambda _: WHITESPACE
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
    "module": TokenizerKind(
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


def tokenizer_file(name: str) -> str | None:
    """The file that this tokenizer reads on every worker, if it reads one."""
    before, colon, rest = name.partition(":")
    kind = TOKENIZERS.get(before)
    return rest if colon and kind is not None and kind.reads_file else None


def make_tokenizer(name: str, sentences: bool = False) -> Tokenizer:
    """The tokenizer of that name, or a ParameterError that lists them.

    Args:
        name: one of the forms of `TOKENIZERS`.
        sentences: n-grams do not cross the end of a sentence.
    """
    tokenizer = _named_tokenizer(name)
    return SentenceTokenizer(tokenizer) if sentences else tokenizer


def _named_tokenizer(name: str) -> Tokenizer:
    before, colon, rest = name.partition(":")
    kind = TOKENIZERS.get(before)
    if kind is not None and before != "module" and bool(colon) == (kind.argument is not None):
        return kind.make(rest)
    if colon and rest:
        return TOKENIZERS["module"].make(name)
    raise ParameterError(f"tokenizer must be one of {tokenizer_forms()}, got {name!r:.80}.")

"""A vocabulary that is public already: how it is read, and S_1 made of it."""

import dataclasses
import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.io.filesystems import FileSystems
from apache_beam.transforms.window import GlobalWindows

from dpngram.accounting import ParameterError
from dpngram.transforms.blocks.columns import split_binary
from dpngram.transforms.blocks.levels import Level
from dpngram.transforms.blocks.pieces import Piece, cut_block
from dpngram.transforms.keyed_dofn import KeyedDoFn
from dpngram.transforms.randomness.noise_key import Randomness
from dpngram.transforms.randomness.prf import Prf
from dpngram.transforms.tokenizers import make_tokenizer
from dpngram.transforms.tokenizers.base import Tokenizer
from dpngram.transforms.whole_files import read_whole

__all__ = ["OF_TOKENIZER", "PublicVocabulary", "VocabularyLevel", "read_vocabulary", "vocabulary_level"]

OF_TOKENIZER = "tokenizer"  # instead of a file: the tokenizer's own vocabulary
_MOST_WORDS = 1 << 20  # the list travels in the graph
_MOST_BYTES = 16 << 20


@dataclasses.dataclass(frozen=True)
class PublicVocabulary:
    """Distinct tokens, as the tokenizer makes them, in the order of their bytes.

    Privacy: the list must be public, and chosen without looking at the private data: all of it is S_1, so it is known
    to everybody who sees the release. Its digest is part of the settings, so noise is bound to the list.
    """

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        try:
            words = sorted({word.encode() for word in self.words})
        except (AttributeError, UnicodeEncodeError, TypeError):
            raise ParameterError("vocabulary must be tokens, each a text.") from None
        if not words or not words[0]:
            raise ParameterError("vocabulary must have at least one token, and none that is empty.")
        if len(words) > _MOST_WORDS or sum(map(len, words)) > _MOST_BYTES:
            raise ParameterError(
                f"vocabulary must have at most {_MOST_WORDS:,} tokens and {_MOST_BYTES >> 20} MiB, got {len(words):,}."
            )
        object.__setattr__(self, "words", tuple(word.decode() for word in words))

    @classmethod
    def of(cls, given: "str | Sequence[str] | PublicVocabulary", tokenizer: Tokenizer) -> "PublicVocabulary":
        """The vocabulary that somebody named: a list of tokens, a file of words, or "tokenizer" for the tokenizer's.

        The lines of a file are cut into tokens as texts are, and each of their tokens is in the vocabulary.
        """
        if isinstance(given, PublicVocabulary):
            return given
        if not isinstance(given, str):
            return cls(tuple(given))
        if given == OF_TOKENIZER:
            own = tokenizer.vocabulary()
            if own is None:
                raise ParameterError(
                    "vocabulary must be a file with this tokenizer, which has none; huggingface:FILE has one."
                )
            return cls(tuple(own))
        lines = pa.array([line.encode() for line in _lines(given)], pa.large_binary())
        return cls(tuple(tokenizer.tokenize(lines).vocabulary.cast(pa.large_string()).to_pylist()))

    def settings(self) -> dict[str, Any]:
        """What names the list in the settings of a release, and in its manifest."""
        content = json.dumps(self.words, ensure_ascii=False).encode()
        return {"words": len(self.words), "sha256": hashlib.sha256(content).hexdigest()}


def read_vocabulary(
    given: str | None, tokenizer: str, *, tokens_given: bool = False, offline: bool = False
) -> PublicVocabulary | None:
    """What --vocabulary names; None if it is not given.

    Args:
        given: a file, or "tokenizer".
        tokenizer: the name of the tokenizer of the texts.
        tokens_given: the input has lists of tokens; each line of a file is then one token as it stands.
        offline: a file that is not on this machine is not read, since the job is only translated.
    """
    if not given:
        return None
    if offline and given != OF_TOKENIZER and FileSystems.get_scheme(given) is not None:
        return PublicVocabulary(("translated only",))
    if tokens_given and given != OF_TOKENIZER:
        return PublicVocabulary(tuple(filter(None, _lines(given))))
    return PublicVocabulary.of(given, make_tokenizer(tokenizer))


def _lines(path: str) -> list[str]:
    try:
        data = read_whole(path)
        return data.decode().removeprefix("\ufeff").splitlines()
    except Exception as error:
        kind = type(error).__name__
        raise ParameterError(
            f"vocabulary must be a file of UTF-8 text that can be read, got {path!r} ({kind})."
        ) from None


class VocabularyLevel(beam.PTransform):
    """Binding -> Piece: the words of a public vocabulary as S_1, in pieces, for each binding.

    `ExtractLevels` weighs them in a small round (`ReleaseContext.with_vocabulary`). A graph of single parts may also
    use them as they are: `ReleaseContext.after_vocabulary`. Then all words weigh the same, and users bring no budgets
    from level 1, so the policy must be one that needs neither: `paper`.

    Privacy: S_1 is a function of the vocabulary, so level 1 makes no query, and what a plan reserves for level 1 is not
    spent. The vocabulary must not come from the private data. S_1 is there even if the input has no user at all, and
    so are the spurious grams of later levels. Windowing: the global window only. Another window exists only where
    there are users, so that spurious grams in it would tell that somebody was there.

    Args:
        words: distinct tokens, as the tokenizer makes them.
        randomness: the same as for `PreparePosts`.
    """

    def __init__(self, words: Sequence[str], randomness: Randomness) -> None:
        super().__init__()
        if not words or len(set(words)) != len(words):
            raise ParameterError(f"words must be at least one, all different, got {len(words)}.")
        self._words, self._randomness = sorted(word.encode() for word in words), randomness

    def expand(self, binding: beam.PCollection[bytes]) -> beam.PCollection[Piece]:
        if not isinstance(binding.windowing.windowfn, GlobalWindows):
            raise ParameterError(
                "windows must be global with a public vocabulary: spurious grams would tell in which windows users are."
            )
        make = beam.ParDo(_VocabularyDoFn(self._words, self._randomness))
        return binding | make.with_output_types(Piece)


def vocabulary_level(words: Sequence[bytes], tokens: Prf) -> Level:
    """S_1 of these words, which are sorted. `tokens` is the keyed function that names single tokens."""
    offsets, data = split_binary(pa.array(words, pa.large_binary()))
    return Level.first(offsets, data, tokens.strings(offsets, data), np.zeros(len(words), np.int64), 1.0, 0.0)


class _VocabularyDoFn(KeyedDoFn):
    def __init__(self, words: Sequence[bytes], randomness: Randomness) -> None:
        super().__init__(randomness)
        self._packed = zlib.compress(json.dumps([word.decode() for word in words]).encode())  # it is part of the graph

    def process(self, binding: bytes) -> Iterator[Piece]:
        self._source.verify_binding(binding)  # the key and settings of `PreparePosts`, or no word would be found
        words = [word.encode() for word in json.loads(zlib.decompress(self._packed))]
        yield from cut_block(vocabulary_level(words, self._source.digest("token")))

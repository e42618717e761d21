"""VocabularyLevel: S_1 from a vocabulary that is public already."""

from collections.abc import Iterator, Sequence

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindows

from dpngram.accounting import ParameterError
from dpngram.transforms.blocks.columns import split_binary
from dpngram.transforms.blocks.levels import Level
from dpngram.transforms.keyed_dofn import KeyedDoFn
from dpngram.transforms.randomness.noise_key import Randomness
from dpngram.transforms.randomness.prf import Prf

__all__ = ["VocabularyLevel", "vocabulary_level"]


class VocabularyLevel(beam.PTransform):
    """Binding -> Level: the words of a public vocabulary as S_1, one element for each binding.

    For a host who does not want to spend budget on finding words; `ReleaseContext.after_vocabulary` takes it. All words
    weigh the same, and users bring no budgets from level 1, so the policy must be one that needs neither: `paper`.

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

    def expand(self, binding: beam.PCollection[bytes]) -> beam.PCollection[Level]:
        if not isinstance(binding.windowing.windowfn, GlobalWindows):
            raise ParameterError(
                "windows must be global with a public vocabulary: spurious grams would tell in which windows users are."
            )
        return binding | beam.ParDo(_VocabularyDoFn(self._words, self._randomness))


def vocabulary_level(words: Sequence[bytes], tokens: Prf) -> Level:
    """S_1 of these words, which are sorted. `tokens` is the keyed function that names single tokens."""
    offsets, data = split_binary(pa.array(words, pa.large_binary()))
    return Level.first(offsets, data, tokens.strings(offsets, data), np.zeros(len(words), np.int64), 1.0, 0.0)


class _VocabularyDoFn(KeyedDoFn):
    def __init__(self, words: Sequence[bytes], randomness: Randomness) -> None:
        super().__init__(randomness)
        self._words = words

    def process(self, binding: bytes) -> Iterator[Level]:
        self._source.verify_binding(binding)  # the key and settings of `PreparePosts`, or no word would be found
        yield vocabulary_level(self._words, self._source.digest("token"))

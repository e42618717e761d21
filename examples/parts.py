"""The parts of `ExtractNgrams` one by one, for graphs that want only some of them.

    python examples/parts.py posts.jsonl noise.key

posts.jsonl: {"user": ..., "text": ...} a line, private. noise.key: made if it is not there; one key is for one run of
this script on one file. Prints a private histogram of words, and the private two-word phrases of a vocabulary that
was known before.

Each release is (epsilon, delta)-differentially private by its plan; both together cost the sum of the two.
"""

import json
import sys

import apache_beam as beam

from dpngram.accounting import ExtractionPlan, plan_extraction
from dpngram.transforms import (
    AddSpuriousGrams,
    BindRelease,
    ClipAndWeight,
    DecodeGrams,
    ExtractRound,
    GramTable,
    GroupUsers,
    NoisyThreshold,
    PreparePosts,
    ReleaseContext,
    SumCells,
    ValidityFilter,
    VocabularyLevel,
    make_randomness,
    make_rounds,
)

PLAN = plan_extraction(epsilon=4, delta=1e-6, max_n=2, max_contributions=20, policy="paper")
VOCABULARY = ["see", "you", "tomorrow", "thank"]


class HistogramOfWords(beam.PTransform):
    """Documents -> PCollection[GramTable]: level 1 of Algorithm 1, nothing else.

    A word weighs, up to the noise, the sum over its users of 1/sqrt(number of words that the user gives).
    """

    def __init__(self, plan: ExtractionPlan, noise_key: str) -> None:
        super().__init__()
        self._plan, self._noise_key = plan, noise_key
        self._policy = make_rounds(plan)[0][0]  # level 1, its first round: policy paper has one

    def expand(self, documents):
        randomness = make_randomness(documents.pipeline, self._plan, {"tokenizer": "words"}, self._noise_key)
        users = documents | PreparePosts("words", randomness) | GroupUsers(randomness)
        context = ReleaseContext.begin(users | BindRelease(randomness), randomness)
        _, cells = users | ClipAndWeight(self._policy, context)  # what each user gives, by block
        words = (
            cells
            | SumCells()  # the histogram
            | NoisyThreshold(self._policy, context)  # noise, and what reaches the threshold
            | AddSpuriousGrams(self._policy, context)  # the release: at level 1 nothing is spurious
        )
        return ({1: words} | DecodeGrams())[1]


class PhrasesOfVocabulary(beam.PTransform):
    """Documents -> PCollection[GramTable]: two-word phrases of words that were known before.

    No budget is needed for finding words; what the plan gives to level 1 is not spent.
    """

    def __init__(self, plan: ExtractionPlan, noise_key: str, vocabulary: list[str]) -> None:
        super().__init__()
        self._plan, self._noise_key, self._vocabulary = plan, noise_key, vocabulary
        self._policy = make_rounds(plan)[1][0]  # level 2

    def expand(self, documents):
        settings = {"tokenizer": "words", "vocabulary": self._vocabulary}
        randomness = make_randomness(documents.pipeline, self._plan, settings, self._noise_key)
        users = documents | PreparePosts("words", randomness) | GroupUsers(randomness)
        binding = users | BindRelease(randomness)
        words = binding | VocabularyLevel(self._vocabulary, randomness)  # S_1
        context = ReleaseContext.begin(binding, randomness).after_vocabulary(words)
        _, phrases = users | ValidityFilter(self._policy, context) | ExtractRound(self._policy, context)  # S_2
        return ({1: words, 2: phrases} | DecodeGrams())[2]


def main(posts: str, noise_key: str) -> None:
    with beam.Pipeline() as pipeline:
        documents = pipeline | beam.io.ReadFromText(posts) | beam.Map(json.loads)
        words = documents | HistogramOfWords(PLAN, noise_key)
        phrases = documents | PhrasesOfVocabulary(PLAN, noise_key, VOCABULARY)
        (words, phrases) | beam.Flatten() | beam.FlatMap(GramTable.rows) | beam.Map(print)


if __name__ == "__main__":
    main(*sys.argv[1:3])

"""`dpngram synth`: a corpus with a known law, for trying things out and measuring.

Words follow Zipf's law, the lengths of users' texts a log-normal law, and phrases are planted with exact numbers of
users. The seed decides everything. Nothing here is private, so an ordinary random generator is enough.
"""

import contextlib
import dataclasses
import gzip
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpngram.accounting import ParameterError
from dpngram.accounting.parameters import check_integer, check_number
from dpngram.pipelines.launch.flags import Flag, Kind, OneLineParser, print_error

__all__ = ["Corpus", "Phrase", "run", "write_corpus"]

# Users that are drawn together: fewer where they write much, so that a block takes about 2 GB of memory at most.
_USERS_PER_BLOCK = 100_000
_TOKENS_PER_BLOCK = 20_000_000
_POST_TOKENS = 30


@dataclasses.dataclass(frozen=True)
class Phrase:
    """A phrase and how many users have it."""

    tokens: tuple[str, ...]
    users: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corpus:
    """The law that a corpus is drawn from."""

    users: int
    tokens_per_user: float = 50.0
    spread: float = 1.0  # sigma of the log-normal of users' lengths; 0 makes all users equal
    vocabulary: int = 50_000
    zipf: float = 1.05
    phrases: int = 60  # for each number of users below
    phrase_users: tuple[int, ...] = (20, 100, 500)
    seed: int = 0

    def __post_init__(self) -> None:
        check_integer("users", self.users, 1, 1_000_000_000)
        check_number("tokens_per_user", self.tokens_per_user, 1, 1e6)
        check_number("spread", self.spread, 0, 5)
        check_integer("vocabulary", self.vocabulary, 1, 100_000_000)
        check_number("zipf", self.zipf, 0, 10)
        check_integer("phrases", self.phrases, 0, 1_000_000)
        for count in self.phrase_users:
            check_integer("phrase_users", count, 1, self.users)
        check_integer("seed", self.seed, 0, 2**63 - 1)

    def planted(self) -> list[Phrase]:
        """The phrases: 2 to 8 words each, from the common third of the vocabulary."""
        random = np.random.default_rng([self.seed, 1])
        common = max(1, self.vocabulary // 3)
        return [
            Phrase(tuple(f"w{word}" for word in random.integers(0, common, 2 + number % 7)), users)
            for users in self.phrase_users
            for number in range(self.phrases)
        ]

    def blocks(self) -> Iterator[tuple[pa.Array, pa.Array]]:
        """(user, text) columns, some posts at a time. Every user's posts are in one block; phrases are in the last."""
        cumulative = np.cumsum(np.arange(1, self.vocabulary + 1, dtype=np.float64) ** -self.zipf)
        words = pa.array([f"w{word}" for word in range(self.vocabulary)])
        together = max(1, min(_USERS_PER_BLOCK, int(_TOKENS_PER_BLOCK / self.tokens_per_user)))
        for start in range(0, self.users, together):
            random = np.random.default_rng([self.seed, 2, start])
            count = min(together, self.users - start)
            mean = math.log(self.tokens_per_user) - self.spread**2 / 2
            lengths = np.maximum(1, np.exp(random.normal(mean, self.spread, count))).astype(np.int64)
            user = np.repeat(np.arange(start, start + count), -(-lengths // _POST_TOKENS))
            bounds = _post_bounds(lengths)
            drawn = np.searchsorted(cumulative, random.random(int(bounds[-1])) * cumulative[-1])
            yield _names(user), _join(words.take(pa.array(drawn)), bounds)
        planted = self.planted()
        if planted:
            random = np.random.default_rng([self.seed, 3])
            chosen = [random.choice(self.users, phrase.users, replace=False) for phrase in planted]
            texts = pa.array([" ".join(phrase.tokens) for phrase in planted])
            row = np.repeat(np.arange(len(planted)), [len(users) for users in chosen])
            yield _names(np.concatenate(chosen)), texts.take(pa.array(row))


def write_corpus(corpus: Corpus, path: str) -> None:
    """JSON lines {"user", "text"}, gzipped if the name ends in .gz, and what was planted in PATH.truth.json."""
    with _open(path) as file:
        for users, texts in corpus.blocks():
            lines = pc.binary_join_element_wise('{"user": "', users, '", "text": "', texts, '"}\n', "")
            offsets = np.frombuffer(lines.buffers()[1], np.int32)
            file.write(memoryview(lines.buffers()[2])[offsets[0] : offsets[len(lines)]])
    with open(f"{path}.truth.json", "w", encoding="utf-8") as file:
        json.dump(
            {"corpus": dataclasses.asdict(corpus), "phrases": list(map(dataclasses.asdict, corpus.planted()))}, file
        )


@contextlib.contextmanager
def _open(path: str) -> Iterator[Any]:
    if path.endswith(".gz"):
        with open(path, "wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
            yield file
    else:
        with open(path, "wb") as file:
            yield file


def _post_bounds(lengths: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Cuts each user's tokens into posts of _POST_TOKENS; only a user's last post is shorter."""
    posts = -(-lengths // _POST_TOKENS)
    sizes = np.full(int(posts.sum()), _POST_TOKENS, np.int64)
    sizes[np.cumsum(posts) - 1] = lengths - (posts - 1) * _POST_TOKENS
    return np.append(0, np.cumsum(sizes))


def _names(users: np.ndarray[Any, Any]) -> pa.Array:
    return pc.binary_join_element_wise("u", pa.array(users).cast(pa.string()), "")


def _join(tokens: pa.Array, bounds: np.ndarray[Any, Any]) -> pa.Array:
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(bounds.astype(np.int32)), tokens), " ")


def _flags() -> list[Flag]:
    return [
        Flag("users", "number of users", Kind.WHOLE_NUMBER, required=True),
        Flag("output", "file for the JSON lines; .gz compresses", Kind.PATH, required=True, metavar="FILE"),
        Flag("tokens_per_user", "mean number of tokens of a user", Kind.NUMBER, default=50.0),
        Flag("spread", "sigma of the log-normal law of users' lengths", Kind.NUMBER, default=1.0),
        Flag("vocabulary", "number of distinct words", Kind.WHOLE_NUMBER, default=50_000),
        Flag("zipf", "exponent of the law of words", Kind.NUMBER, default=1.05),
        Flag("phrases", "number of phrases planted for each number of users", Kind.WHOLE_NUMBER, default=60),
        Flag("phrase_users", "numbers of users that share a phrase (default 20,100,500)", Kind.WHOLE_NUMBERS),
        Flag("seed", "decides everything", Kind.WHOLE_NUMBER, default=0),
    ]


def run(argv: Sequence[str]) -> int:
    parser = OneLineParser(
        prog="dpngram synth", description="Write a synthetic corpus, to try things out and to measure."
    )
    parser.add_flags(_flags())
    flags = vars(parser.parse_args(argv))
    path = flags.pop("output")
    counts = flags.pop("phrase_users")
    try:
        check_integer("users", flags["users"], 1, 1_000_000_000)
        if counts is None:
            counts = [count for count in (20, 100, 500) if count <= flags["users"]]
        corpus = Corpus(phrase_users=tuple(counts if isinstance(counts, list) else [counts]), **flags)
    except ParameterError as error:
        parser.error(str(error))
    try:
        write_corpus(corpus, path)
    except OSError as error:
        return print_error(parser.prog, f"output cannot be written: {error.strerror} ({path!r}).", status=1)
    return 0

"""Corpora that somebody could write to hurt a run, of any size."""

import dataclasses
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from helpers.runs import jsonl, small_corpus

BUDGET = ["--epsilon=4", "--delta=1e-7", "--max_contributions=100", "--direct_num_workers=1"]
POLICIES = ("paper", "plus")
CHAIN = 100  # tokens of a post in `levels`


def extraction(source: Path, output: Path, *flags: object) -> list[object]:
    """The command; later flags win over the usual ones."""
    program = [sys.executable, "-m", "dpngram.pipelines.cli", "extract", "--quiet"]
    return [*program, "--input", source, "--output", output, *BUDGET, "--max_n=9", *flags]


@dataclasses.dataclass(frozen=True)
class Load:
    """One kind of hostile corpus: what grows, how far, and the lines of a given size."""

    full: int
    unit: str
    lines: Callable[[int], Iterator[bytes]]
    flags: Callable[[int], list[str]] = lambda size: []
    idle: tuple[str, ...] = ()  # flags of the run on ordinary users alone that is taken off

    def write(self, path: Path, size: int) -> int:
        """The corpus, after some ordinary users; its bytes."""
        with path.open("wb") as file:
            file.write(background())
            file.writelines(self.lines(size))
        return path.stat().st_size


def background() -> bytes:
    """2,000 ordinary users, of whom something is released."""
    return jsonl(small_corpus(2000))


def _line(user: str, text: str) -> bytes:
    return json.dumps({"user": user, "text": text}, ensure_ascii=False).encode() + b"\n"


def _plain(user: str, text: str) -> bytes:
    """The same for texts that need no escapes; quicker."""
    return f'{{"user": "{user}", "text": "{text}"}}\n'.encode()


def _one_user(size):
    random = np.random.default_rng(1)
    for _ in range(size // 1000):
        yield _plain("one", " ".join(f"x{word}" for word in random.integers(0, 1_000_000, 1000)))


def _one_post(size):
    yield _plain("one", " ".join(f"{word:x}" for word in np.random.default_rng(1).integers(0, 1 << 16, size)))


def _repeated(size):
    yield _plain("one", "a " * size)


def _everyone(size):
    for user in range(size):
        yield _plain(f"e{user}", f"thank you very much number{user}")


def _vocabulary(size):
    for user in range(size // 10):
        yield _plain(f"v{user}", " ".join(f"{number:07x}" for number in range(10 * user, 10 * user + 10)))


def _empty(size):
    for user, text in zip(range(size), itertools.cycle(["", " ", "...", "\\n\\t"]), strict=False):
        yield _plain(f"m{user}", text)


def _levels(_size):
    chains = [" ".join(f"c{family}x{place}" for place in range(CHAIN)) for family in range(5)]
    for user in range(10_000):
        yield _plain(f"t{user}", chains[user % 5])


def _long_token(size):
    yield _plain("one", "x" * size)


def _spaces(size):
    yield _plain("one", " " * size)


def _same_prefix(size):
    prefix = "user" * 25
    for user in range(size):
        yield _plain(f"{prefix}{user}", f"p{user % 1000}")


def _one_user_records(size):
    for record in range(size):
        yield _plain("one", f"r{record % 5000} r{record % 4999} r{record % 4987}")


def _marks(size):
    yield _line("one", "a" + "\u0301\u0327" * (size // 4))


def _ligatures(size):
    yield _line("one", "\ufdfa" * (size // 3))


def _no_spaces(size):
    yield _line("one", "\u6587\u5b57" * (size // 6))


def _long_id(size):
    yield _plain("u" * size, "hello")


def _long_line(size):
    yield b'{"user": "one", "text": "'
    for _ in range(size >> 20):
        yield b"y " * (1 << 19)
    yield b'"}\n'


def _bad_lines(size):
    for number in range(size):
        yield b'{"user": "b%d", "text": broken}\n' % number


def _common_words(size):
    random = np.random.default_rng(1)
    for user in range(3 * size):
        yield _plain(f"c{user}", " ".join(f"k{word}" for word in random.integers(0, size, 60)))


LOADS = {
    "one_user": Load(10_000_000, "tokens of one user", _one_user),
    "one_post": Load(10_000_000, "tokens of one post", _one_post),
    "repeated": Load(10_000_000, "times the same token in one post", _repeated),
    "everyone": Load(1_000_000, "users with one gram", _everyone),
    "vocabulary": Load(10_000_000, "distinct tokens", _vocabulary),
    "empty": Load(1_000_000, "empty posts", _empty),
    "levels": Load(64, "levels", _levels, lambda size: [f"--max_n={size}"], ("--max_n=1",)),
    "long_token": Load(40_000_000, "bytes of one token", _long_token),
    "spaces": Load(40_000_000, "spaces in one post", _spaces),
    "same_prefix": Load(1_000_000, "users with one token each", _same_prefix),
    "one_user_records": Load(1_000_000, "records of one user", _one_user_records),
    "marks": Load(40_000_000, "bytes of combining marks", _marks),
    "ligatures": Load(8_000_000, "bytes that normalise to 11 times as much", _ligatures),
    "no_spaces": Load(40_000_000, "bytes of text without a space", _no_spaces),
    "long_id": Load(40_000_000, "bytes of a user id", _long_id),
    "long_line": Load(1 << 30, "bytes of one line", _long_line),
    "bad_lines": Load(200_000, "lines that are no JSON", _bad_lines, lambda size: ["--max_bad_fraction=1"]),
    "common_words": Load(50_000, "released tokens", _common_words, lambda size: ["--epsilon=20", "--max_n=3"]),
    "eta_tiny": Load(20_000, "released tokens", _common_words, lambda size: ["--epsilon=20", "--eta=1e-12"]),
    "eta_huge": Load(20_000, "released tokens", _common_words, lambda size: ["--epsilon=20", "--eta=0.999"]),
}

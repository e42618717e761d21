"""A model of what moves between workers, and of their memory, for docs/scaling.md.

Constants are measured (tests/benchmarks/blocks.py; docs/scaling.md has the tables), for text in words: tokens that
follow Heaps' law, policy `plus`, nine levels. tests/pipelines/launch/test_scaling.py compares it with real blocks.
"""

import dataclasses
import math

from dpngram.pipelines.launch.scaling import default_shards
from dpngram.transforms.context import histogram_shards

__all__ = ["Estimate", "Workload", "estimate", "largest_level", "settling_memory"]

# Distinct words among t tokens: Heaps' law. Within 25 % of English posts and of `dpngram synth`, t from 1e3 to 5e5.
_HEAPS = (5.0, 0.69)
# Encoded bytes (LZ4 where it pays): of a block as such, and of each post, user, token, and word of its dictionary.
_POSTS = {"block": 450, "post": 34, "token": 1.8, "word": 7}
_USERS = {"block": 700, "user": 11, "token": 1.8, "word": 26}
# All levels after the first together: each level carries its users' columns; the tokens that are left grow with the
# number of users, since more is released: a + b * log10(users / 20,000) bytes for each token of the input.
_CANDIDATES = {"user": 26, "token": 3.4, "growth": 1.7}
_POSTING = 5  # one position at one level; if every position of every level is valid, that is the bound
# Cells of one block over all levels and rounds, for each token; bytes by the number n of cells in a piece.
_CELLS = 1.0
_CELL_BYTES = (8.5, 16.0, 4000.0, 400.0)  # a + b / (1 + n / c) + d / n
# Memory: a worker's own, that of a block while it is worked on, and of a released gram (decoded) in a side input.
_WORKER_MEMORY = 250e6
_TOKEN_MEMORY = 58
_GRAM_MEMORY = 32
# Bytes of a gram where the end of a step makes a level or a survey from its parts (tests/benchmarks/large_levels.py);
# under `plus` the second look is the largest.
_SETTLED_MEMORY = {"paper": 87, "plus": 177}
# Grams of the largest level (n = 2) of synthetic corpora under `plus`: tests/benchmarks/blocks.py levels.
_LARGEST = {20_000: 2_801, 100_000: 23_081, 250_000: 64_362, 500_000: 132_618, 1_000_000: 215_857, 2_000_000: 388_938}
_TEXT = 5.6  # bytes of a token and the space after it


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """What is to be read."""

    users: float
    tokens_per_user: float = 50.0
    posts_per_user: float = 2.0
    levels: int = 9
    rounds: int = 27  # of all levels together: three at each
    block_tokens: float = (4 << 20) / _TEXT  # of a reader's block

    @property
    def tokens(self) -> float:
        return self.users * self.tokens_per_user


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """Encoded bytes of all blocks of a kind together, and of one block's work in memory."""

    shards: int
    posts: float  # shuffled once, to bring users together
    users: float  # kept for levels 1 and 2
    candidates: float  # of all later levels together; each is kept for its rounds and the next level
    candidates_bound: float  # the same, if nothing were ever pruned
    cells: float  # shuffled; before the runner's lifted combine, which makes it less
    block_memory: float  # bytes in use while one block is worked on

    def worker_memory(self, released: float, threads: int = 1) -> float:
        """Bytes of one worker process with `released` grams in its largest level; two levels are there at a time."""
        return _WORKER_MEMORY + threads * self.block_memory + 2 * _GRAM_MEMORY * released


def estimate(work: Workload, shards: int | None = None) -> Estimate:
    """The model. Without `shards`, those that a run would take by itself."""
    shards = default_shards(int(work.tokens * _TEXT)) if shards is None else shards
    posts, tokens = work.users * work.posts_per_user, work.tokens
    readers = max(tokens / work.block_tokens, 1.0)
    pieces = readers * shards
    block = tokens / shards
    cells = _CELLS * tokens
    per_piece = cells / (shards * histogram_shards(shards) * work.rounds)
    later = work.levels - 1
    bound = (_CANDIDATES["user"] * work.users + _POSTING * tokens) * later
    left = _CANDIDATES["token"] + _CANDIDATES["growth"] * max(math.log10(work.users / 2e4), 0.0)
    return Estimate(
        shards=shards,
        posts=_sum(_POSTS, block=pieces, post=posts, token=tokens, word=pieces * _words(tokens / pieces)),
        users=_sum(_USERS, block=shards, user=work.users, token=tokens + posts, word=shards * _words(block)),
        candidates=min(_CANDIDATES["user"] * work.users * later + left * tokens, bound),
        candidates_bound=bound,
        cells=cells * _cell_bytes(per_piece),
        block_memory=_TOKEN_MEMORY * block,
    )


def largest_level(users: float) -> tuple[float, float]:
    """Grams of the largest level, low and high: between two measured corpora, or beyond the last.

    Beyond the largest measured corpus, low goes on with the growth between the last two of them, and high in
    proportion to the users from the corpus that released the most for each user.
    """
    counts = sorted(_LARGEST)
    below = max([count for count in counts[:-1] if count <= users], default=counts[0])
    above = counts[counts.index(below) + 1]
    power = math.log(_LARGEST[above] / _LARGEST[below]) / math.log(above / below)
    low = _LARGEST[below] * (users / below) ** power
    if users <= counts[-1]:
        return low, low
    return low, users * max(_LARGEST[count] / count for count in counts)


def settling_memory(grams: float, policy: str = "plus") -> float:
    """Bytes of the worker that makes a level of so many grams from its parts."""
    return _WORKER_MEMORY + _SETTLED_MEMORY[policy] * grams


def _words(tokens: float) -> float:
    factor, power = _HEAPS
    return float(min(tokens, factor * tokens**power))


def _cell_bytes(cells: float) -> float:
    """Large pieces are packed, small ones have a header each."""
    packed, loose, turn, header = _CELL_BYTES
    return packed + loose / (1 + cells / turn) + header / max(cells, 1.0)


def _sum(costs: dict[str, float], **counts: float) -> float:
    return sum(costs[name] * count for name, count in counts.items())

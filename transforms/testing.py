"""For tests and experiments: plans without noise, and the algorithm in a plain loop without Beam.

Nothing else in the library imports this module. What it releases under `exact_plan` is *not* private.
"""

import collections
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from dpngram.accounting import ExtractionPlan, LevelPlan, RoundPlan
from dpngram.transforms.add_spurious_grams import complete_level
from dpngram.transforms.blocks.cells import CellBlock, merge_cells, split_cells
from dpngram.transforms.blocks.documents import DocumentBlock
from dpngram.transforms.blocks.grams import EMPTY_TABLE, GramTable
from dpngram.transforms.blocks.levels import EMPTY_LEVEL, Level
from dpngram.transforms.blocks.posts import PostBlock, split_posts
from dpngram.transforms.blocks.users import UserBlock, Users
from dpngram.transforms.clip_and_weight import weigh_users
from dpngram.transforms.decode_grams import decode_level
from dpngram.transforms.group_users import group_users, sum_digests
from dpngram.transforms.noisy_threshold import threshold_cells
from dpngram.transforms.policies import RoundPolicy, make_rounds
from dpngram.transforms.policies.plus import PlusCount
from dpngram.transforms.prepare_posts import PostDigests, block_posts
from dpngram.transforms.randomness.noise_key import KeyReference, KeySource, Randomness, settings_digest
from dpngram.transforms.tokenizers.base import Tokenizer
from dpngram.transforms.validity_filter import filter_valid
from dpngram.transforms.vocabulary import vocabulary_level

__all__ = ["ExactPlan", "exact_plan", "extract_in_memory", "key_source"]


class ExactPlan(ExtractionPlan):
    """A plan that promises no privacy: hardly any noise, and one threshold for all levels."""

    def _check_guarantee(self) -> None:
        pass

    def threshold(self, n: int, previous: int, valid: int) -> float:
        rho = self.levels[0].rho
        assert rho is not None
        return rho


def exact_plan(*, max_n: int, threshold: float, max_contributions: int = 1000, windows: int = 1) -> ExactPlan:
    """Releases exactly the grams whose weight reaches `threshold`: to see what the algorithm does without noise."""
    levels = tuple(
        LevelPlan(
            n=n,
            share=1 / max_n,
            sigma=2.0**-28,
            max_contributions=max_contributions,
            rounds=(RoundPlan(share=1.0, rho=threshold if n == 1 else None),),
        )
        for n in range(1, max_n + 1)
    )
    return ExactPlan(
        policy="paper",
        epsilon=1.0,
        delta=0.5,
        eta=0.01,
        windows=windows,
        threshold_delta=0.25 / windows,
        gate_sigma=2.0**-28,
        levels=levels,
    )


def key_source(key: bytes, settings: object = None, release: str = "", application: str = "ExtractNgrams") -> KeySource:
    """Keyed randomness from key bytes in hand instead of a reference."""
    randomness = Randomness(KeyReference("env", "unused"), release, application, settings_digest(settings))
    return KeySource(randomness, key)


def extract_in_memory(
    documents: Iterable[DocumentBlock],
    plan: ExtractionPlan,
    source: KeySource,
    tokenizer: Tokenizer,
    *,
    pruning: str = "both",
    user_per_document: bool = False,
    shards: int = 1,
    histogram_shards: int = 1,
    vocabulary: Sequence[str] = (),
    observe: Callable[[RoundPolicy, Sequence[Users], Any], None] | None = None,
) -> dict[int, GramTable]:
    """What `ExtractLevels` computes in the global window, by the same functions on arrays, in one process.

    `vocabulary` is for plans with a public one.

    `observe` is shown, after each round, the users with what is left of their budgets, and what the level released.
    """
    digests = PostDigests.of(source)
    pieces: dict[int, list[PostBlock]] = collections.defaultdict(list)
    for document in documents:
        posts, _ = block_posts(document, tokenizer, digests)
        if posts is not None:
            for shard, piece in split_posts(posts, shards):
                pieces[shard].append(piece)
    users: list[UserBlock] = [
        group_users(piece, user_per_document=user_per_document, source=source) for piece in pieces.values()
    ]
    binding = source.binding(_fingerprint(users))

    blocks: Sequence[Users] = users
    first = level = words = EMPTY_LEVEL
    if plan.public_vocabulary:
        words = vocabulary_level(sorted(word.encode() for word in vocabulary), source.digest("token"))
    tables: dict[int, GramTable] = {}
    before: list[Level] = []
    for n, rounds in enumerate(make_rounds(plan, pruning), 1):
        if n > 1:
            blocks = [filter_valid(block, first, level, pruning) for block in blocks] if len(level) else []
        earlier: Any = words if n == 1 else EMPTY_LEVEL
        for policy in rounds:
            draw = source.draws(n, policy.number, b"global", binding, earlier.name or level.name)
            histogram: dict[int, list[CellBlock]] = collections.defaultdict(list)
            clip = source.draws(n, policy.number, b"global", binding)("clip")
            weighed = [weigh_users(block, earlier, policy, clip) for block in blocks]
            blocks = [after for _, after in weighed]
            for cells, _ in weighed:
                for shard, part in split_cells(cells, histogram_shards) if len(cells) else ():
                    histogram[shard].append(part)
            sums = [merge_cells(pieces) for pieces in histogram.values()]
            if n > 1 and not len(level):
                continue
            if isinstance(policy, PlusCount):
                blocks = [policy.pay(block, earlier) for block in blocks]
                earlier = policy.release(sum(map(policy.count, sums)), level, earlier, draw("count"))
            else:
                cutoffs = policy.cutoffs(level, earlier)
                parts = [threshold_cells(cells, cutoffs, draw, past=earlier.name or level.name) for cells in sums]
                earlier = complete_level(parts, level, earlier, policy, draw)
                earlier = earlier if len(earlier) or not isinstance(earlier, Level) else EMPTY_LEVEL
            if observe is not None:
                observe(policy, blocks, earlier)
        level = earlier if len(earlier) else EMPTY_LEVEL
        first = level if n == 1 else first
        table = next(decode_level(level, before, pruning, rows=max(len(level), 1)), EMPTY_TABLE)
        tables[n] = table.without_rows() if n < plan.first_n else table
        before.append(level)
    return tables


def _fingerprint(users: list[UserBlock]) -> bytes:
    total = sum_digests(np.concatenate([block.fingerprint[None, :] for block in users])) if users else np.zeros(2, "u8")
    return total.tobytes()

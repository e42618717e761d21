"""Rounds: what is theirs alone."""

import numpy as np

from dpngram.accounting import plan_extraction
from dpngram.transforms.policies import make_policy
from dpngram.transforms.policies.base import Round
from dpngram.transforms.testing import key_source


def test_rounds_and_levels_draw_apart():
    """No two rounds share a draw: of any level, for any purpose, in any window, on any content."""
    plan = plan_extraction(epsilon=4, delta=1e-3, max_n=3, max_contributions=5, policy="plus")
    source, policy = key_source(b"r" * 32), make_policy(plan, "both")
    rounds = [(level.n, number) for level in plan.levels for number in range(len(level.rounds))]
    assert len(rounds) == 6
    drawn = [
        Round(policy, n, number, source.randomness)
        .draws(source, window, source.binding(content))(purpose)
        .blocks(np.arange(3, dtype=np.uint64), 0)
        .tobytes()
        for n, number in rounds
        for purpose in ("clip", "noise", "zero cells", "zero weights", "zero cells below")
        for window in (b"global", b"0:10")
        for content in (b"f" * 16, b"g" * 16)
    ]
    assert len(set(drawn)) == len(drawn) == 6 * 5 * 2 * 2

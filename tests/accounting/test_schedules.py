"""How a budget is divided over levels."""

import pytest

from dpngram.accounting import plan_extraction


def test_decay_and_shares():
    plan = plan_extraction(epsilon=1, delta=1e-6, max_n=3, max_contributions=[5, 4, 3], decay=0.5, policy="paper")
    ratios = [later.sigma / earlier.sigma for earlier, later in zip(plan.levels, plan.levels[1:], strict=False)]
    assert ratios == pytest.approx([0.5, 0.5])
    assert [level.max_contributions for level in plan.levels] == [5, 4, 3]
    plan = plan_extraction(epsilon=1, delta=1e-6, max_n=3, max_contributions=5, shares=[2, 1, 1], policy="paper")
    assert [level.share for level in plan.levels] == [0.5, 0.25, 0.25]

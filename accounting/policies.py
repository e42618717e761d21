"""The two policies: how a budget is divided, and what a level does with its part.

`paper` is Algorithm 1 of Kim et al. (2021): every level is a Gaussian query of its own, and every user may move each of
them by 1. `plus` is one adaptive Gaussian query in many parts: every user has one budget for the whole run and
spends it where it helps; see docs/privacy.md for the proofs of both.
"""

import dataclasses

__all__ = ["POLICIES", "Policy"]


@dataclasses.dataclass(frozen=True)
class Policy:
    """What the accounting needs to know of a policy. The transforms have their own half."""

    name: str
    summary: str
    individual: bool  # one noise level, and a budget for each user; otherwise one noise level for each n-gram length
    token_share: float  # the part of delta for tokens that only one user has; the rest pays for the noise
    decay: float  # the default schedule: sigma_k (paper), or one over the root of the share (plus), by level
    first_rounds: tuple[float, ...] = (1.0,)  # level 1 in rounds: the part of the level's budget for each
    second_rounds: tuple[float, ...] = (1.0,)

    def rounds(self, n: int) -> tuple[float, ...]:
        """The parts of level n's budget, round by round."""
        return {1: self.first_rounds, 2: self.second_rounds}.get(n, (1.0,))


POLICIES = {
    policy.name: policy
    for policy in (
        Policy(
            name="paper",
            summary="each level has its own noise, and every user may give up to the cap at each",
            individual=False,
            token_share=0.5,
            decay=1.0,
        ),
        # Constants chosen on public corpora. The result is flat around them (5 %).
        Policy(
            name="plus",
            summary="every user has one budget for all levels and spends it on grams that are neither hopeless "
            "nor certain; thresholds follow from noisy tallies of similar grams",
            individual=True,
            token_share=0.05,
            decay=0.8**-0.5,
            first_rounds=(0.05, 0.25, 0.7),
            second_rounds=(0.15, 0.85),
        ),
    )
}

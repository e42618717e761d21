"""The policies: how each divides a budget. `POLICIES` is the one list of them.

`paper` is Algorithm 1 of Kim et al. (2021): every level is a separate Gaussian query, and every user may move each of
them by 1. `plus` is one adaptive Gaussian query in many parts: every user has one budget for the whole run and spends
it where it helps. docs/privacy.md has the proofs of both.

This is the half of a policy that fixes the noise before any data is read. The other half, which says how users weigh
their grams, is in `dpngram.transforms.policies`. Code outside of the two asks for properties, never for a name.
"""

import dataclasses

__all__ = ["POLICIES", "PolicySpec"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicySpec:
    """What the accounting, and everybody who describes a plan, must know of a policy."""

    name: str
    summary: str
    # True: all levels have one sigma, and each user has one budget for the whole run (norm 1 over all queries).
    # False: each level has its own sigma, and a user may move every level by norm 1.
    individual_budgets: bool
    # True: the expected number of spurious grams is at most eta * |S_k|. False: thresholds aim at that share.
    eta_is_bound: bool
    # True: V_k must be the paper's, pruned on both sides.
    both_sides_only: bool
    # The part of delta for tokens that only one user has; the rest pays for the noise.
    token_share: float
    # The default ratio between neighbouring levels: of sigma_k (separate budgets), or of 1/sqrt(share_k).
    decay: float
    # Plans of other editions are refused: they were made for another algorithm.
    edition: int = 1
    # Parts of a level's budget, one for each round: of level 1, and of each later level.
    round_shares: tuple[tuple[float, ...], tuple[float, ...]] = ((1.0,), (1.0,))
    # The same for level 1 where its words are public; none: the policy has no use for such words.
    vocabulary_shares: tuple[float, ...] = ()

    def rounds(self, n: int, *, public_vocabulary: bool = False) -> tuple[float, ...]:
        """The parts of level n's budget, round by round."""
        if n == 1 and public_vocabulary:
            return self.vocabulary_shares
        return self.round_shares[0 if n == 1 else 1]


POLICIES = {
    policy.name: policy
    for policy in (
        PolicySpec(
            name="paper",
            summary="each level has its own noise, and every user may give up to the cap at each",
            individual_budgets=False,
            eta_is_bound=True,
            both_sides_only=False,
            token_share=0.5,
            decay=1.0,
        ),
        # Constants chosen on public corpora. The result is flat around them (5 %).
        PolicySpec(
            name="plus",
            summary="every user has one budget for all levels and spends it on grams that are neither hopeless "
            "nor certain; each level is looked at twice, and released in the order of certainty",
            individual_budgets=True,
            eta_is_bound=False,
            both_sides_only=True,
            token_share=0.05,
            decay=0.8**-0.5,
            edition=2,
            round_shares=((0.05, 0.25, 0.7), (0.4, 0.52, 0.08)),
            vocabulary_shares=(0.02,),
        ),
    )
}

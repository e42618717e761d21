"""How the budget is divided over the levels: shares of 1/sigma*^2 that sum to one."""

import math
from collections.abc import Sequence

from dpngram.accounting.parameters import ParameterError, check_number, check_sequence

__all__ = ["GATE_SHARE", "LEAST_SHARE", "explicit_shares", "geometric_shares", "level_sigmas"]

# Relative increase of every sigma over sigma*/sqrt(share). It absorbs all rounding between here and
# the re-check of the finished plan, so that the check needs no tolerance.
_SLACK = 2.0**-40
LEAST_SHARE = 1e-150  # so that nothing computed from a share overflows
GATE_SHARE = 1e-3  # the part of 1/sigma*^2 for the question whether there is a release at all; levels share the rest


def geometric_shares(max_n: int, decay: float) -> tuple[float, ...]:
    """Shares for sigma_k = decay * sigma_{k-1}; decay 1 is the equal split.

    A level's cost is 1/sigma_k^2 (Proposition 2), so the shares grow as decay^(-2k).
    """
    decay = check_number("decay", decay, 0.1, 10)
    logs = [-2 * level * math.log(decay) for level in range(max_n)]
    top = max(logs)
    return _normalised([math.exp(log - top) for log in logs])


def explicit_shares(max_n: int, shares: object) -> tuple[float, ...]:
    """Shares given by hand, one positive number per level, in any unit."""
    given = check_sequence("shares", shares, max_n, "positive numbers")
    return _normalised([check_number("shares", share, 1e-100, 1e100) for share in given])


def level_sigmas(sigma_star: float, shares: Sequence[float], windows: int) -> tuple[float, ...]:
    """sigma_k = sigma* * sqrt(windows / share_k), rounded up.

    Over all levels of `windows` releases the 1/sigma_k^2 then sum to at most 1/sigma*^2.
    """
    total = math.fsum(shares)
    return tuple(sigma_star * math.sqrt(windows * total / share) * (1 + _SLACK) for share in shares)


def _normalised(weights: Sequence[float]) -> tuple[float, ...]:
    total = math.fsum(weights)
    shares = tuple(weight / total for weight in weights)
    if min(shares) < LEAST_SHARE:
        raise ParameterError(f"shares must be within a factor 1e150 of each other, got a ratio of {min(shares):.1e}.")
    return shares

"""Plans for the baselines: differentially private set union (DPSU) over n-grams, in the paper's three ways.

Set union (Gopi et al. 2020; Algorithm 3 of the paper) is level 1 of our algorithm on other items: each user gives at
most `max_contributions` grams equal weights of L2 norm 1, every cell that somebody has gets Gaussian noise, and what
reaches rho is released. Nothing is pruned, and nothing spurious is added: rho hides cells that only one user has.

Privacy, as for level 1 (docs/privacy.md): the queries of a plan and its gate together are one Gaussian of sigma*, and a
gram that only one user has appears with probability at most d = the sum of their `threshold_delta`; both directions are
checked.
"""

import dataclasses
import math

from dpngram.accounting.gaussian import compose_sigmas
from dpngram.accounting.numerics import rounding_cost
from dpngram.accounting.parameters import (
    MAX_CONTRIBUTIONS,
    MAX_N,
    ParameterError,
    check_delta,
    check_epsilon,
    check_integer,
    check_number,
    check_sigma,
)
from dpngram.accounting.plan import delta_needed, gate_margin, plan_extraction
from dpngram.accounting.thresholds import RHO_1_SLACK, first_level_threshold

__all__ = ["UnionPlan", "UnionQuery", "plan_union_all", "plan_union_even", "plan_union_single"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnionQuery:
    """One set union: the grams of these lengths together."""

    lengths: tuple[int, ...]
    sigma: float
    max_contributions: int  # of all lengths together
    threshold_delta: float  # what a user's own grams may cost
    rho: float

    def __post_init__(self) -> None:
        if not self.lengths or list(self.lengths) != sorted(set(self.lengths)):
            raise ParameterError(f"lengths must be ascending and at least one, got {self.lengths!r:.60}.")
        for n in self.lengths:
            check_integer("lengths", n, 1, MAX_N)
        check_sigma(self.sigma)
        check_integer("max_contributions", self.max_contributions, 1, MAX_CONTRIBUTIONS)
        check_number("threshold_delta", self.threshold_delta, 0.0, 1.0, low_open=True, high_open=True)
        needed = first_level_threshold(self.sigma, self.max_contributions, self.threshold_delta)
        if not self.rho >= needed - abs(needed) * RHO_1_SLACK:
            raise ParameterError(f"rho must be at least {needed:.9g} for this threshold_delta, got {self.rho}.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnionPlan:
    """Set unions that are released together. Unless `as_printed`, a plan that overspends its budget cannot exist."""

    epsilon: float
    delta: float
    queries: tuple[UnionQuery, ...]
    gate_sigma: float  # the noise of the gate, see `ExtractionPlan`
    as_printed: bool = False

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        check_sigma(self.gate_sigma)
        lengths = [n for query in self.queries for n in query.lengths]
        if not lengths or len(set(lengths)) != len(lengths):
            raise ParameterError("queries must be at least one, and no length in two of them.")
        if not self.as_printed and self.delta_spent > self.delta * (1 + 1e-15):
            raise ParameterError(
                f"the noise of these unions does not give ({self.epsilon:g}, {self.delta:g})-differential privacy."
            )

    @property
    def gate_margin(self) -> float:
        """As `ExtractionPlan.gate_margin`."""
        return gate_margin(self.gate_sigma)

    @property
    def delta_spent(self) -> float:
        """The delta that these unions really have at `epsilon`: more than `delta` only if `as_printed`."""
        spent = math.fsum(query.threshold_delta for query in self.queries)
        if spent >= 1:
            return 1.0
        cells = sum(query.max_contributions for query in self.queries) + 1  # and the gate
        cost = rounding_cost(self.epsilon, self.delta, cells)
        sigma_star = compose_sigmas([*(query.sigma for query in self.queries), self.gate_sigma])
        exact = delta_needed(self.epsilon - cost.epsilon, sigma_star, spent)
        return min(1.0, exact / (1 - cost.epsilon) + cost.delta)


def plan_union_all(*, epsilon: float, delta: float, max_n: int, max_contributions: int) -> UnionPlan:
    """DPSU-all: the grams of all lengths are items of one union, Delta = T * Delta_0.

    Args:
        epsilon, delta: the guarantee for one user.
        max_n: T, the length of the longest n-gram.
        max_contributions: Delta_0; a user gives at most T times as many grams, of all lengths together.
    """
    lengths = tuple(range(1, check_integer("max_n", max_n, 1, MAX_N) + 1))
    cap = check_integer("max_contributions", max_contributions, 1, MAX_CONTRIBUTIONS)
    return _plan(epsilon, delta, [lengths], max_n * cap)


def plan_union_even(
    *, epsilon: float, delta: float, max_n: int, max_contributions: int, as_printed: bool = False
) -> UnionPlan:
    """DPSU-even: a union for each length, the budget split evenly: sigma*sqrt(T), and half of delta over T thresholds.

    `as_printed` gives every threshold half of delta by itself, which is what the paper's printed rows fit. That plan
    spends (T + 1)/2 times delta, and says so in `delta_spent`.

    Args:
        epsilon, delta: the guarantee for one user, over all lengths.
        max_n: T, the length of the longest n-gram.
        max_contributions: the most grams of each length that a user gives.
        as_printed: see above.
    """
    lengths: list[tuple[int, ...]] = [(n,) for n in range(1, check_integer("max_n", max_n, 1, MAX_N) + 1)]
    return _plan(epsilon, delta, lengths, max_contributions, as_printed=as_printed)


def plan_union_single(*, epsilon: float, delta: float, n: int, max_contributions: int) -> UnionPlan:
    """DPSU-single: the whole budget on the grams of length n.

    Args:
        epsilon, delta: the guarantee for one user.
        n: the length of the grams.
        max_contributions: the most grams that a user gives.
    """
    return _plan(epsilon, delta, [(check_integer("n", n, 1, MAX_N),)], max_contributions)


def _plan(
    epsilon: float, delta: float, lengths: list[tuple[int, ...]], cap: int, *, as_printed: bool = False
) -> UnionPlan:
    """One query of equal noise for each entry of `lengths`: the levels of a `paper` plan, all like level 1."""
    check_integer("max_contributions", cap, 1, MAX_CONTRIBUTIONS)
    basis = plan_extraction(epsilon=epsilon, delta=delta, max_n=len(lengths), max_contributions=cap, policy="paper")
    part = basis.threshold_delta
    if len(lengths) > 1 and not as_printed:
        part = math.nextafter(part / len(lengths), 0)
    return UnionPlan(
        epsilon=basis.epsilon,
        delta=basis.delta,
        gate_sigma=basis.gate_sigma,
        as_printed=as_printed,
        queries=tuple(
            UnionQuery(
                lengths=together,
                sigma=level.sigma,
                max_contributions=cap,
                threshold_delta=part,
                rho=first_level_threshold(level.sigma, cap, part),
            )
            for together, level in zip(lengths, basis.levels, strict=True)
        ),
    )

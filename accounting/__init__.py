"""The mathematics: a privacy budget becomes a plan. Imports no Beam and knows nothing of text."""

from dpngram.accounting.composition import Budget, Spending, composed_epsilon, fits_budget, spending_of
from dpngram.accounting.explain import explain_plan, guarantee_in_words
from dpngram.accounting.forecast import plan_document, users_needed
from dpngram.accounting.gaussian import compose_sigmas, gaussian_delta, gaussian_epsilon, gaussian_sigma
from dpngram.accounting.least_users import has_user_bounds, least_users
from dpngram.accounting.levels import LevelPlan, RoundPlan
from dpngram.accounting.numerics import RoundingCost, rounding_cost, switching_bound
from dpngram.accounting.parameters import ParameterError
from dpngram.accounting.plan import ExtractionPlan, plan_extraction
from dpngram.accounting.policies import POLICIES, PolicySpec
from dpngram.accounting.thresholds import (
    expected_spurious,
    first_level_threshold,
    level_threshold,
    spurious_probability,
)
from dpngram.accounting.unions import UnionPlan, UnionQuery, plan_union_all, plan_union_even, plan_union_single

__all__ = [
    "POLICIES",
    "Budget",
    "ExtractionPlan",
    "LevelPlan",
    "ParameterError",
    "PolicySpec",
    "RoundPlan",
    "RoundingCost",
    "Spending",
    "UnionPlan",
    "UnionQuery",
    "compose_sigmas",
    "composed_epsilon",
    "expected_spurious",
    "explain_plan",
    "first_level_threshold",
    "fits_budget",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_sigma",
    "guarantee_in_words",
    "has_user_bounds",
    "least_users",
    "level_threshold",
    "plan_document",
    "plan_extraction",
    "plan_union_all",
    "plan_union_even",
    "plan_union_single",
    "rounding_cost",
    "spending_of",
    "spurious_probability",
    "switching_bound",
    "users_needed",
]

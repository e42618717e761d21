"""Mutants of the accounting: too little noise, or thresholds that are too low."""

from mutants.mutant import Edit, Mutant

__all__ = ["PLANS"]

_PLAN = "accounting/plan.py"
_TESTS = "tests/accounting/test_plan.py"

PLANS = (
    Mutant(
        name="sigma_for_the_wrong_t",
        why="Every level gets the noise of a run with one level, and the plan's check agrees: T levels together spend "
        "the square root of T times the budget.",
        edits=(
            Edit(_PLAN, "    parts = (1.0,) if spec.individual_budgets else shares\n", "    parts = (1.0,)\n"),
            Edit(
                _PLAN,
                "    levels = [min(sigmas)] if spec.individual_budgets else sigmas\n",
                "    levels = [min(sigmas)]\n",
            ),
        ),
        tests=(f"{_TESTS}::test_known_points", f"{_TESTS}::test_levels_never_spend_more_than_the_budget"),
        attack="crowd",
    ),
    Mutant(
        name="sigma_of_one_level_in_the_transforms",
        why="The plan is right, but the noise that is drawn is that of the whole budget at each level.",
        edits=(
            Edit(
                "transforms/policies/paper.py",
                "return Cutoffs.fixed(Noise(self.level.sigma), Strata(previous, self.pruning), rho)",
                "return Cutoffs.fixed(Noise(self.plan.sigma_star), Strata(previous, self.pruning), rho)",
            ),
        ),
        tests=("tests/transforms/test_reference.py::test_released_grams_are_identical[0-both]",),
        attack="crowd",
    ),
    Mutant(
        name="delta_not_halved",
        why="The noise is made for the whole of delta, and the lone tokens spend their part on top of it.",
        edits=(
            Edit(_PLAN, "sigma_for(exact_epsilon, exact_delta - spent), ", "sigma_for(exact_epsilon, exact_delta), "),
            Edit(_PLAN, "max(delta_bound(epsilon, sigma) + spent, ", "max(delta_bound(epsilon, sigma), "),
        ),
        tests=(f"{_TESTS}::test_known_points", f"{_TESTS}::test_dp_accounting_agrees"),
    ),
    Mutant(
        name="rho_1_for_twice_its_delta",
        why="Lone tokens appear with twice the probability that the plan sets aside for them.",
        edits=(
            Edit(_PLAN, "        sigma, cap, delta * share, weight=", "        sigma, cap, 2 * delta * share, weight="),
        ),
        tests=(f"{_TESTS}::test_known_points", f"{_TESTS}::test_plus_thresholds_of_level_1_against_mpmath"),
    ),
    Mutant(
        name="rho_1_one_sigma_too_low",
        why="A token that only one user has is released far more often than delta allows: its presence names the user.",
        edits=(
            Edit(
                "accounting/thresholds.py",
                "return float(_raise(candidates.max()))",
                "return float(_raise(candidates.max() - sigma))",
            ),
        ),
        tests=("tests/accounting/test_thresholds.py::test_known_point",),
        attack="lone",
    ),
    Mutant(
        name="rho_1_for_one_token",
        why="rho_1 covers users with one token only; one with many lone tokens has many chances that one is released.",
        edits=(
            Edit(
                "accounting/thresholds.py",
                "tail = -np.expm1(math.log1p(-delta) / t)",
                "tail = -np.expm1(math.log1p(-delta)) + 0 * t",
            ),
        ),
        tests=(
            "tests/accounting/test_thresholds.py::test_the_maximum_may_lie_at_either_end",
            "tests/accounting/test_thresholds.py::test_first_level_threshold_is_safe_and_precise",
        ),
    ),
    Mutant(
        name="every_round_of_level_1_has_the_lowest_rho",
        why="The rounds of `plus` have thresholds for their shares of the weight; the lowest of them in all rounds "
        "lets lone tokens of the heavier rounds through.",
        edits=(
            Edit(
                "transforms/policies/plus.py",
                "if self.round.rho is None else self.round.rho",
                "if self.level.rho is None else self.level.rho",
            ),
        ),
        tests=("tests/transforms/policies/test_plus.py::test_rounds_of_level_1_have_thresholds_of_their_own",),
    ),
    Mutant(
        name="windows_cost_nothing",
        why="With windows=W a user is in W releases, but the noise is that of one, and the plan's check agrees.",
        edits=(
            Edit("accounting/schedules.py", "math.sqrt(windows * total / share)", "math.sqrt(total / share)"),
            Edit(_PLAN, "compose_sigmas([*levels, gate]) / math.sqrt(windows)", "compose_sigmas([*levels, gate])"),
        ),
        tests=(f"{_TESTS}::test_levels_never_spend_more_than_the_budget", f"{_TESTS}::test_dp_accounting_agrees"),
    ),
    Mutant(
        name="rounding_not_paid_for",
        why="The noise is that of exact draws for the whole of epsilon and delta; what bits cannot do comes on top.",
        edits=(
            Edit(
                _PLAN,
                "    return rounding_cost(epsilon, delta, cells, counts).left(epsilon, delta)\n",
                "    return epsilon, delta\n",
            ),
        ),
        tests=(f"{_TESTS}::test_plans_that_the_noise_cannot_honour", f"{_TESTS}::test_known_points"),
    ),
    Mutant(
        name="rounding_of_one_window",
        why="With windows=W the plan pays for the rounding of one release.",
        edits=(
            Edit(
                "accounting/numerics.py",
                "    return windows * (cells + 1 + later), windows * min(",
                "    return cells + 1 + later, min(",
            ),
        ),
        tests=("tests/accounting/test_numerics.py::test_how_many_cells_a_user_touches",),
    ),
    Mutant(
        name="rounding_on_one_side",
        why="Only the way from the code to exact draws is paid for, and not the way back.",
        edits=(Edit("accounting/numerics.py", "RoundingCost(2 * factors * ", "RoundingCost(factors * "),),
        tests=("tests/accounting/test_numerics.py::test_the_cost_against_high_precision",),
    ),
    Mutant(
        name="tails_without_the_factor",
        why="What is beyond the exact range of the other world counts e^epsilon times, and is charged once.",
        edits=(Edit("accounting/numerics.py", "math.exp(min(amplified + math.log(tail), 0.0))", "tail"),),
        tests=("tests/accounting/test_numerics.py::test_what_does_not_fit_is_refused",),
    ),
    Mutant(
        name="tampered_plan_accepted",
        why="A plan from edited JSON promises an epsilon that its noise does not give.",
        edits=(Edit(_PLAN, "        self._check_guarantee()\n", ""),),
        tests=(f"{_TESTS}::test_a_tampered_plan_is_refused",),
    ),
    Mutant(
        name="as_printed_without_asking",
        why="DPSU-even gives every threshold half of delta: the row spends (T + 1)/2 times the delta that it states.",
        edits=(
            Edit("accounting/unions.py", "    if len(lengths) > 1 and not as_printed:\n", "    if not lengths:\n"),
            Edit(
                "accounting/unions.py",
                "if not self.as_printed and self.delta_spent >",
                "if not self.queries and self.delta_spent >",
            ),
        ),
        tests=("tests/accounting/test_unions.py::test_sound_plans_keep_their_budget_and_use_it",),
    ),
)

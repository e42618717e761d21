"""A plan in words and as a table, for people."""

import textwrap

from dpngram.accounting.forecast import CANDIDATES_PER_GRAM, typical_contributions, users_needed
from dpngram.accounting.levels import LevelPlan
from dpngram.accounting.plan import ExtractionPlan

__all__ = ["conclude_plan", "explain_plan", "guarantee_in_words", "tabulate_plan"]


def guarantee_in_words(plan: ExtractionPlan, *, bound_windows: bool = True) -> str:
    """One sentence that a manifest or report can carry.

    Args:
        plan: the plan of the release.
        bound_windows: False for releases in windows whose users are not limited to `plan.windows` of them.
    """
    windows = "" if plan.windows == 1 else f" taking part in at most {plan.windows} windows"
    if not bound_windows:
        windows = " in one window" if plan.windows == 1 else f" in any {plan.windows} windows"
    return (
        f"User-level ({plan.epsilon:g}, {plan.delta:g})-differential privacy: adding or removing all the data of "
        f"one user{windows} changes the probability of any released result by a factor of at most "
        f"e^{plan.epsilon:g}, except with probability {plan.delta:g}."
    )


def explain_plan(plan: ExtractionPlan) -> str:
    """What is protected, what each level spends, what an attacker may see; plain English.

    Args:
        plan: the plan of the release.
    """
    noise_delta = plan.delta - plan.windows * plan.threshold_delta
    paragraphs = [
        "What is protected. " + guarantee_in_words(plan),
        "The unit. A user is whatever the user field says: all posts with the same value are one user, in however "
        "many files they are. Plain-text input without a user field protects one line. The guarantee says nothing "
        "about a person who appears under several user ids.",
        f"How it is spent. One Gaussian of sigma* = {plan.sigma_star:.6g} would cost as much as the whole run, and "
        f"uses {noise_delta:.3g} of delta; "
        + (
            "nothing is needed for tokens that only one user has, since the vocabulary is public."
            if plan.public_vocabulary
            else f"{plan.windows * plan.threshold_delta:.3g} pays for the chance that a token which only one user has "
            "passes the level-1 threshold."
        ),
        _gate_in_words(plan),
        f"The policy, {plan.policy}: {plan.spec.summary}.",
        *map(_level_in_words, plan.levels),
        _spurious_in_words(plan),
        "What an attacker may see. Every released n-gram with its noisy weight, the number released per length, all "
        "thresholds and noise levels, and this plan. Not seen: exact counts, unreleased text, which released grams "
        "are spurious, and the key the noise is drawn with. The noise is a keyed function (AES), so the guarantee "
        "holds against an attacker who cannot break AES.",
        "Not covered. Parameters or tokenisers chosen by looking at the private data, a second release from the same "
        "users (it costs its own epsilon and delta), and how long the run took.",
    ]
    return "\n\n".join(textwrap.fill(paragraph, 100) for paragraph in paragraphs)


def _gate_in_words(plan: ExtractionPlan) -> str:
    cost = 100 * plan.windows * (plan.sigma_star / plan.gate_sigma) ** 2
    return (
        f"Whether there is a release at all. If too many users have bad records, nothing is released. This verdict is "
        f"a noisy query, too: {cost:.2g} % of the budget, noise sigma = {plan.gate_sigma:.6g}. A run stops when the "
        f"noisy number of users with bad records is more than {plan.gate_margin:,.0f} above what --max_bad_fraction "
        "allows, so no single user decides, and on a small input hardly any number of bad records stops a run. The "
        "levels share the rest of the budget."
    )


def _level_in_words(level: LevelPlan) -> str:
    cap, n = level.max_contributions, level.n
    parts = ", ".join(f"{100 * part.share:.3g} %" for part in level.rounds)
    rounds = "" if len(level.rounds) == 1 else f", in {len(level.rounds)} rounds of {parts} of it"
    if n == 1 and level.rho is None:
        return (
            f"Level 1: a public list of words. Each user weighs at most {cap} of them, for {parts} of "
            f"{100 * level.share:.3g} % of the levels' budget, noise sigma = {level.sigma:.6g}; what is left is for "
            "later levels. Nothing of length 1 is released: the list is public already."
        )
    given = f"all valid {n}-grams of each user" if cap is None else f"at most {cap} distinct {n}-gram(s) from each user"
    threshold = (
        "threshold set from what is already public, and noisy tallies"
        if cap is None
        else ("threshold set from the sizes of what is already public")
    )
    if level.rho is not None:
        threshold = "threshold rho = " + ", ".join(f"{part.rho:.6g}" for part in level.rounds)
    return (
        f"Level {n}: {100 * level.share:.3g} % of the levels' budget{rounds}, noise sigma = {level.sigma:.6g}, "
        f"{given}, {threshold}."
    )


def _spurious_in_words(plan: ExtractionPlan) -> str:
    text = "Spurious grams. From level 2 on, grams that nobody has may be released; they hide who has the others. "
    if plan.spec.eta_is_bound:
        return text + f"Their expected number stays at or below {100 * plan.eta:g} % of what is released."
    return text + (
        f"Thresholds are chosen so that their estimated number stays at or below {100 * plan.eta:g} % of what is "
        "released; the estimate uses the same noisy values, so it is an aim, not a bound. Privacy does not depend on "
        "it."
    )


def tabulate_plan(plan: ExtractionPlan) -> str:
    """The plan as an aligned table; `users` are those who must share a gram for it to be released."""
    header = ["n", "share of budget", "noise sigma", "threshold rho", "grams per user", "users for 50 %", "for 99 %"]
    rows = []
    for level in plan.levels:
        if level.n < plan.first_n:
            listed = [str(level.n), f"{100 * level.share:.2f} %", f"{level.sigma:.5f}", "public"]
            rows.append([*listed, f"<= {level.max_contributions:,}", "", ""])
            continue
        rho = plan.threshold(level.n, 1_000_000, 1_000_000 * CANDIDATES_PER_GRAM) if level.rho is None else level.rho
        sizes = typical_contributions(plan, level.n)
        cap = level.max_contributions
        rows.append(
            [
                str(level.n),
                f"{100 * level.share:.2f} %",
                f"{level.sigma:.5f}",
                f"{rho:.4f}" + ("*" if level.rho is None else " "),
                "all" if cap is None else f"<= {cap:,}",
                " / ".join(f"{users_needed(plan, level.n, size, 0.5):,}" for size in sizes),
                " / ".join(f"{users_needed(plan, level.n, size, 0.99):,}" for size in sizes),
            ]
        )
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in [header, *rows]]
    lines.insert(1, "  ".join("-" * width for width in widths))
    sizes = typical_contributions(plan, 1)
    given = ", ".join(f"{size:,}" for size in sizes[:-1])
    notes = [
        f"users: how many must share a gram, if each gives {f'{given} or ' if given else ''}{sizes[-1]:,} grams at "
        "that level (level 1's cap; others likewise)."
    ]
    if plan.public_vocabulary:
        notes.append(
            f"length 1: a public list of words, of which users weigh some for "
            f"{100 * plan.level(1).rounds[0].share:g} % of the share; the rest goes to later lengths."
        )
    if len(plan.levels[0].rounds) > 1:
        notes.append("threshold of level 1: the lowest of its rounds, each with its own share of the level's budget.")
    if plan.max_n > 1:
        notes.append(
            f"*: follows from the release; shown for {CANDIDATES_PER_GRAM:,} valid candidates per released "
            f"(n-1)-gram and eta = {plan.eta:g}."
        )
    notes.append(
        f"gate: noise sigma = {plan.gate_sigma:.5g}; a run stops when about {plan.gate_margin:,.0f} users more than "
        "--max_bad_fraction allows have bad records."
    )
    return "\n".join([*lines, "", *notes])


def conclude_plan(plan: ExtractionPlan) -> str:
    """One line: what this budget buys."""
    size = typical_contributions(plan, 1)[-1]
    first = users_needed(plan, plan.first_n, size, 0.5)
    shortest = "a pair of listed words" if plan.public_vocabulary else "a word"
    text = f"In short: {shortest} needs about {first:,} users to be released"
    if plan.max_n > plan.first_n:
        last = typical_contributions(plan, plan.max_n)[-1]
        text += f", a {plan.max_n}-gram about {users_needed(plan, plan.max_n, last, 0.5):,}"
    return text + f" (even odds, every user at the cap of {size:,})."

"""A plan in words and as a table, for people."""

import textwrap
from typing import TYPE_CHECKING

from dpngram.accounting.forecast import CANDIDATES_PER_GRAM, typical_contributions, users_needed

if TYPE_CHECKING:
    from dpngram.accounting.plan import ExtractionPlan

__all__ = ["conclude_plan", "explain_plan", "guarantee_in_words", "tabulate_plan"]


def guarantee_in_words(plan: "ExtractionPlan") -> str:
    """One sentence that a manifest or report can carry."""
    windows = "" if plan.windows == 1 else f" taking part in at most {plan.windows} windows"
    return (
        f"User-level ({plan.epsilon:g}, {plan.delta:g})-differential privacy: adding or removing all the data of "
        f"one user{windows} changes the probability of any released result by a factor of at most "
        f"e^{plan.epsilon:g}, except with probability {plan.delta:g}."
    )


def explain_plan(plan: "ExtractionPlan") -> str:
    """What is protected, what each level spends, what an attacker may see; plain English."""
    noise_delta = plan.delta - plan.windows * plan.threshold_delta
    paragraphs = [
        "What is protected. " + guarantee_in_words(plan),
        "The unit. A user is whatever the user field says: all posts with the same value are one user, in however "
        "many files they lie. Plain-text input without a user field protects one line. The guarantee says nothing "
        "about a person who appears under several user ids.",
        f"How it is spent. One Gaussian of sigma* = {plan.sigma_star:.6g} would cost as much as the whole run, and "
        f"uses {noise_delta:.3g} of delta; {plan.windows * plan.threshold_delta:.3g} pays for the chance that a "
        "token which only one user has passes the level-1 threshold.",
        *(
            f"Level {level.n}: {100 * level.share:.3g} % of the budget, noise sigma = {level.sigma:.6g}, at most "
            f"{level.max_contributions} distinct {level.n}-gram(s) from each user, "
            + (
                f"threshold rho = {level.rho:.6g}."
                if level.rho is not None
                else "threshold set from the sizes of what is already public."
            )
            for level in plan.levels
        ),
        f"Spurious grams. From level 2 on, grams that nobody has may be released; they hide who has the others. Their "
        f"expected number stays at or below {100 * plan.eta:g} % of what is released.",
        "What an attacker may see. Every released n-gram with its noisy weight, the number released per length, all "
        "thresholds and noise levels, and this plan. Not seen: exact counts, unreleased text, which released grams "
        "are spurious, and the key the noise is drawn with. The noise is a keyed function (AES), so the guarantee "
        "holds against an attacker who cannot break AES.",
        "Not covered. Parameters or tokenisers chosen by looking at the private data, a second release from the same "
        "users (it costs its own epsilon and delta), and how long the run took.",
    ]
    return "\n\n".join(textwrap.fill(paragraph, 100) for paragraph in paragraphs)


def tabulate_plan(plan: "ExtractionPlan") -> str:
    """The plan as an aligned table; `users` are those who must share a gram for it to be released."""
    header = ["n", "share of budget", "noise sigma", "threshold rho", "grams per user", "users for 50 %", "for 99 %"]
    rows = []
    for level in plan.levels:
        rho = plan.threshold(level.n, 1_000_000, 1_000_000 * CANDIDATES_PER_GRAM) if level.rho is None else level.rho
        sizes = typical_contributions(level.max_contributions)
        rows.append(
            [
                str(level.n),
                f"{100 * level.share:.2f} %",
                f"{level.sigma:.5f}",
                f"{rho:.4f}" + ("*" if level.rho is None else " "),
                f"<= {level.max_contributions:,}",
                " / ".join(f"{users_needed(plan, level.n, size, 0.5):,}" for size in sizes),
                " / ".join(f"{users_needed(plan, level.n, size, 0.99):,}" for size in sizes),
            ]
        )
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in [header, *rows]]
    lines.insert(1, "  ".join("-" * width for width in widths))
    sizes = typical_contributions(plan.levels[0].max_contributions)
    given = ", ".join(f"{size:,}" for size in sizes[:-1])
    notes = [
        f"users: how many must share a gram, if each gives {f'{given} or ' if given else ''}{sizes[-1]:,} grams at "
        "that level (level 1's cap; others likewise)."
    ]
    if plan.max_n > 1:
        notes.append(
            f"*: follows from the release; shown for {CANDIDATES_PER_GRAM:,} valid candidates per released "
            f"(n-1)-gram and eta = {plan.eta:g}."
        )
    return "\n".join([*lines, "", *notes])


def conclude_plan(plan: "ExtractionPlan") -> str:
    """One line: what this budget buys."""
    size = typical_contributions(plan.levels[0].max_contributions)[-1]
    first = users_needed(plan, 1, size, 0.5)
    text = f"In short: a word needs about {first:,} users to be released"
    if plan.max_n > 1:
        last = typical_contributions(plan.levels[-1].max_contributions)[-1]
        text += f", a {plan.max_n}-gram about {users_needed(plan, plan.max_n, last, 0.5):,}"
    return text + f" (even odds, every user at the cap of {size:,})."

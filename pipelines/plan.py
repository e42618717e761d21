"""`dpngram plan`: what a budget buys, before any data is touched; or with --users alone, which budget to begin with."""

import json
import textwrap
from collections.abc import Sequence

from dpngram.accounting import ParameterError, guarantee_in_words, plan_document
from dpngram.accounting.advice import TOKENS, propose_plans
from dpngram.accounting.explain import conclude_plan, explain_plan, tabulate_plan
from dpngram.accounting.outlook import LEAST, MIDDLE, MOST, TRIED_TOKENS, TRIED_USERS, Outlook
from dpngram.pipelines.launch.flags import (
    Flag,
    Kind,
    OneLineParser,
    budget_flags,
    plan_from_flags,
    users_flag,
    warn_of_doubts,
)

__all__ = ["run"]


def run(argv: Sequence[str]) -> int:
    needed = [f"--{flag.name}" for flag in budget_flags() if flag.required]
    given = [word.partition("=")[0] for word in argv]
    if "--users" in given and not any(name in given for name in needed):
        return _propose(argv)
    parser = OneLineParser(
        prog="dpngram plan",
        description="Show what a privacy budget buys. With --users alone: propose budgets to begin with.",
    )
    parser.add_flags([*budget_flags(), users_flag()], "budget")
    parser.add_flags([_vocabulary_flag()], "data")
    parser.add_flags([_tokens_flag()], "with --users alone")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the plan as JSON")
    form.add_argument("--explain", action="store_true", help="print the plan in plain English")
    flags = parser.parse_args(argv)
    try:
        if flags.tokens_per_user is not None:
            raise ParameterError("tokens_per_user must be left out when the budget is given: it is for proposals.")
        plan = plan_from_flags(flags)
        warn_of_doubts(parser.prog, flags, plan)
    except ParameterError as error:
        parser.error(str(error))
    if flags.json:
        print(json.dumps(plan_document(plan), indent=2))
    elif flags.explain:
        print(explain_plan(plan))
    else:
        print(guarantee_in_words(plan), tabulate_plan(plan), conclude_plan(plan), sep="\n\n")
    return 0


def _vocabulary_flag() -> Flag:
    return Flag("vocabulary", "the words of the data are known from a public list (extract --vocabulary)", Kind.SWITCH)


def _tokens_flag() -> Flag:
    return Flag("tokens_per_user", "about how many words one user wrote, from public knowledge", Kind.WHOLE_NUMBER)


def _propose(argv: Sequence[str]) -> int:
    parser = OneLineParser(prog="dpngram plan", description="Propose budgets to begin with.")
    parser.add_flags([users_flag(), _tokens_flag()])
    flags = parser.parse_args(argv)
    try:
        proposals = propose_plans(flags.users, flags.tokens_per_user)
    except ParameterError as error:
        parser.error(str(error))
    plan = proposals[0].plan
    cap = plan.level(1).max_contributions or 1
    rows = [["epsilon", "n-grams, about", "users that a word needs", "a word of light users", "a pair of words"]]
    for proposal in proposals:
        pair = "" if proposal.pair is None else f"{proposal.pair:,}"
        about = _round(proposal.outlook.released)
        rows.append([f"{proposal.plan.epsilon:g}", about, f"{proposal.word:,}", f"{proposal.light:,}", pair])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    table = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    budget = f"--delta {plan.delta:g} --max_n {plan.max_n} --max_contributions {cap}"
    print(
        f"For about {flags.users:,} users: {budget}",
        "\n".join(table),
        textwrap.fill(
            f"Users needed at even odds: users of a word have {cap:,} words or more each, light users the square root "
            "of that. delta is at most a tenth of 1/users; max_contributions is the number of words of a user, from 10 "
            "to 300; max_n follows the number of users. These are rules of thumb. Give rough numbers that are public: "
            "a parameter that is chosen by looking at private data is outside the guarantee.",
            100,
        ),
        textwrap.fill(_outlook_in_words(proposals[0].outlook, flags.tokens_per_user), 100),
        f"To begin with:\n  dpngram extract --epsilon 4 {budget} --users {flags.users} \\\n"
        "      --input 'posts-*.jsonl' --user_field user --text_field text --output release/ --ledger posts.ledger",
        sep="\n\n",
    )
    return 0


def _outlook_in_words(outlook: Outlook, tokens: int | None) -> str:
    text = (
        "The number of n-grams is a forecast by a formula that was fitted on posts, tweets, commit messages and "
        f"programs. On four other corpora {LEAST:.1g} to {MOST:.0f} times as many were released, {MIDDLE:g} times in "
        "the middle: it depends on how much your users have in common."
    )
    if tokens is None:
        text += f" It takes a user to have written {TOKENS} words; --tokens_per_user says otherwise."
    if not outlook.tried:
        users, words = ("{:,} to {:,}".format(*limits) for limits in (TRIED_USERS, TRIED_TOKENS))
        text += f" Nothing of this size was tried, only {users} users with {words} words each."
    return text


def _round(count: float) -> str:
    """Two digits: the forecast has no more."""
    return f"{float(f'{count:.2g}'):,.0f}" if count >= 1 else "none"

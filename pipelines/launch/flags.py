"""Command-line flags shared by several programs, and a parser that answers in one line."""

import argparse
import sys
from typing import Any, NoReturn

from dpngram.accounting import POLICIES, ExtractionPlan, plan_extraction

__all__ = [
    "OneLineParser",
    "add_budget_flags",
    "add_guarantee_flags",
    "number_list",
    "number_or_text",
    "plan_from_flags",
    "print_error",
]


class OneLineParser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line on stderr and exit status 2; no abbreviated flags."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise SystemExit(print_error(self.prog, f"{message} (--help lists the flags)", status=2))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Binds a value such as -inf or -1,2 to the flag before it; argparse would take it for a flag."""
        given = list(sys.argv[1:] if args is None else args)
        takes_value = {flag for action in self._actions if action.nargs is None for flag in action.option_strings}
        bound: list[str] = []
        for word in given:
            if bound and bound[-1] in takes_value and word.startswith("-") and not word.startswith("--"):
                bound[-1] = f"{bound[-1]}={word}"
            else:
                bound.append(word)
        return super().parse_known_args(bound, namespace)


def number_or_text(text: str) -> Any:
    """An int, a float, or the text itself, which the parameter's own check then shows in its error."""
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


def number_list(text: str) -> Any:
    """One number, or a list where there is a comma."""
    if "," in text:
        return [number_or_text(part) for part in text.split(",")]
    return number_or_text(text)


def add_budget_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that make a plan; the same for every program that needs one."""
    budget = add_guarantee_flags(parser)
    budget.add_argument("--shares", type=number_list, help="instead of --decay: budget share of each level (1,1,2,...)")
    budget.add_argument(
        "--windows", type=number_or_text, default=1, help="releases that one user may take part in (default 1)"
    )
    budget.add_argument("--policy", default="plus", help=f"one of: {', '.join(POLICIES)} (default plus)")


def add_guarantee_flags(parser: argparse.ArgumentParser) -> Any:
    """The flags that every system understands; gives the group, for more of them."""
    budget = parser.add_argument_group("budget")
    budget.add_argument("--epsilon", type=number_or_text, required=True, help="privacy loss per user, e.g. 4")
    budget.add_argument("--delta", type=number_or_text, required=True, help="failure probability, e.g. 1e-7")
    budget.add_argument("--max_n", type=number_or_text, required=True, help="length of the longest n-gram, e.g. 9")
    budget.add_argument(
        "--max_contributions",
        type=number_list,
        required=True,
        help="most distinct grams a user gives per level: one number, or for paper one per level (300,200,...)",
    )
    budget.add_argument(
        "--eta",
        type=number_or_text,
        default=0.01,
        help="aim for the share of spurious grams; paper: a bound on its mean (default 0.01)",
    )
    budget.add_argument(
        "--decay",
        type=number_or_text,
        help="sigma_k = decay * sigma_(k-1); below 1 favours long grams (default 1.118; paper: 1)",
    )
    return budget


def plan_from_flags(flags: argparse.Namespace) -> ExtractionPlan:
    """The plan that the budget flags ask for; raises ParameterError."""
    shares = flags.shares
    if shares is not None and not isinstance(shares, list):
        shares = [shares]
    return plan_extraction(
        epsilon=flags.epsilon,
        delta=flags.delta,
        max_n=flags.max_n,
        max_contributions=flags.max_contributions,
        eta=flags.eta,
        decay=flags.decay,
        shares=shares,
        windows=flags.windows,
        policy=flags.policy,
    )


def print_error(program: str, message: str, status: int) -> int:
    """One line on stderr; returns the exit status."""
    print(f"{program}: error: {' '.join(message.split())}", file=sys.stderr)
    return status

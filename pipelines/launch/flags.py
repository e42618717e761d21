"""Flags as values: the same list makes a program's parser, its help, and the parameters of its template."""

import argparse
import dataclasses
import difflib
import enum
import re
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

from dpngram.accounting import POLICIES, ExtractionPlan, plan_extraction
from dpngram.accounting.advice import find_doubts
from dpngram.accounting.parameters import check_integer

__all__ = [
    "Flag",
    "Kind",
    "OneLineParser",
    "budget_flags",
    "check_users",
    "guarantee_flags",
    "number_list",
    "number_or_text",
    "plan_from_flags",
    "print_error",
    "show_note",
    "suggestion",
    "users_flag",
    "warn_of_doubts",
]


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


def suggestion(word: str, names: Iterable[str]) -> str:
    """`; did you mean --NAME?` for a flag that nobody knows, or nothing if no flag is spelt like it.

    Args:
        word: as it was given, with dashes and perhaps with a value.
        names: the flags that are known, without dashes.
    """
    name = word.lstrip("-").partition("=")[0].replace("-", "_").lower()
    close = difflib.get_close_matches(name, [*names], 1, 0.7) if word.startswith("-") else []
    return f"; did you mean --{close[0]}?" if close else ""


class Kind(enum.Enum):
    """What the value of a flag is."""

    TEXT = enum.auto()
    PATH = enum.auto()  # of a file or directory
    NUMBER = enum.auto()
    WHOLE_NUMBER = enum.auto()
    NUMBERS = enum.auto()  # with commas between them
    WHOLE_NUMBERS = enum.auto()
    SWITCH = enum.auto()  # has no value


_PARSERS = {
    Kind.NUMBER: number_or_text,
    Kind.WHOLE_NUMBER: number_or_text,
    Kind.NUMBERS: number_list,
    Kind.WHOLE_NUMBERS: number_list,
}


@dataclasses.dataclass(frozen=True)
class Flag:
    """One flag of a program.

    Args:
        name: without the dashes.
        help: one line; the default is added to it unless it says something about a default itself.
        kind: what the value is.
        default: the value if the flag is not given.
        required: whether it must be given.
        several: whether it may be given several times; the value is a list.
        choices: the values that it can have. The program checks them, so that its error is like all others.
        pattern: a regular expression for the value, if it cannot be any text.
        metavar: what help shows in place of the value.
    """

    name: str
    help: str
    kind: Kind = Kind.TEXT
    _: dataclasses.KW_ONLY
    default: Any = None
    required: bool = False
    several: bool = False
    choices: tuple[str, ...] = ()
    pattern: str | None = None
    metavar: str | None = None

    def arguments(self) -> dict[str, Any]:
        """What `argparse` wants to know."""
        shown = self.help.replace("%", "%%")
        if self.kind is Kind.SWITCH:
            return {"action": "store_true", "help": shown}
        if self.default not in (None, "", ()) and "default" not in self.help:
            shown += f" (default {self.default})"
        return {
            "action": "append" if self.several else "store",
            "type": _PARSERS.get(self.kind),
            "default": list(self.default) if self.several and self.default is not None else self.default,
            "required": self.required,
            "metavar": self.metavar,
            "help": shown,
        }


class OneLineParser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line on stderr and exit status 2; no abbreviated flags."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False)
        self.flags: list[Flag] = []
        self._given: list[str] = []

    def add_flags(self, flags: Iterable[Flag], title: str | None = None) -> None:
        """Adds flags, in a group of help if there is a `title`."""
        group = self if title is None else self.add_argument_group(title)
        for flag in flags:
            self.flags.append(flag)
            group.add_argument(f"--{flag.name}", **flag.arguments())

    def error(self, message: str) -> NoReturn:
        needed = [flag.name for flag in self.flags if flag.required and re.search(rf"--{flag.name}\b", message)]
        if message.startswith("the following arguments are required"):  # perhaps one was given, but misspelt
            known = {f"--{flag.name}" for flag in self.flags}
            unknown = [word for word in self._given if word.startswith("--") and word.partition("=")[0] not in known]
            message += next(filter(None, (suggestion(word, needed) for word in unknown)), "")
        hint = "" if "(--" in message else " (--help lists the flags)"  # some say already which flag to use
        raise SystemExit(print_error(self.prog, message + hint, status=2))

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """All words must be known."""
        flags, rest = self.parse_known_args(args, namespace)
        if rest:
            names = [flag.name for flag in self.flags]
            self.error(f"flag must be known, got {rest[0]!r:.80}{suggestion(rest[0], names)}")
        return flags

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Binds a value such as -inf or -1,2 to the flag before it; argparse would take it for a flag."""
        given = list(sys.argv[1:] if args is None else args)
        takes_value = {f"--{flag.name}" for flag in self.flags if flag.kind is not Kind.SWITCH}
        bound: list[str] = []
        for word in given:
            if bound and bound[-1] in takes_value and word.startswith("-") and not word.startswith("--"):
                bound[-1] = f"{bound[-1]}={word}"
            else:
                bound.append(word)
        self._given = bound
        return super().parse_known_args(bound, namespace)


def print_error(program: str, message: str, status: int) -> int:
    """One line on stderr; returns the exit status."""
    print(f"{program}: error: {_one_line(message)}", file=sys.stderr)
    return status


def show_note(message: str) -> None:
    """One line on stderr, about something that does not stop the program."""
    print(f"dpngram: note: {_one_line(message)}", file=sys.stderr, flush=True)


def _one_line(message: str) -> str:
    """Without line ends; other spaces may be part of a command to type."""
    return " ".join(line.strip() for line in message.splitlines())


def guarantee_flags() -> list[Flag]:
    """The flags of a budget that every system understands."""
    decays = ", ".join(f"{name} {spec.decay:.4g}" for name, spec in POLICIES.items())
    return [
        Flag("epsilon", "privacy loss of a user, e.g. 4", Kind.NUMBER, required=True),
        Flag("delta", "failure probability, e.g. 1e-7", Kind.NUMBER, required=True),
        Flag("max_n", "length of the longest n-gram, e.g. 9", Kind.WHOLE_NUMBER, required=True),
        Flag(
            "max_contributions",
            "most distinct n-grams that a user gives at each length: one number, or with policy paper one for each "
            "length (300,200,...)",
            Kind.WHOLE_NUMBERS,
            required=True,
        ),
        Flag(
            "eta",
            "share of spurious n-grams to aim for; with policy paper a bound on its mean",
            Kind.NUMBER,
            default=0.01,
        ),
        Flag(
            "decay",
            "how the noise grows with the length, sigma_k = decay * sigma_(k-1); below 1 favours long n-grams "
            f"(default: {decays})",
            Kind.NUMBER,
        ),
    ]


def budget_flags() -> list[Flag]:
    """The flags that make a plan."""
    return [
        *guarantee_flags(),
        Flag("shares", "instead of --decay: the share of the budget of each length (1,1,2,...)", Kind.NUMBERS),
        Flag("windows", "number of releases that a user may take part in", Kind.WHOLE_NUMBER, default=1),
        Flag("policy", f"one of: {', '.join(POLICIES)}", default="plus", choices=tuple(POLICIES)),
    ]


def users_flag() -> Flag:
    return Flag("users", "about how many users there are, from public knowledge; for advice only", Kind.WHOLE_NUMBER)


def check_users(flags: argparse.Namespace) -> None:
    """Raises ParameterError if `users` is given and is not a number of users."""
    if flags.users is not None:
        check_integer("users", flags.users, 1, 1 << 40)


def warn_of_doubts(program: str, flags: argparse.Namespace, plan: ExtractionPlan) -> None:
    """One line on stderr for each doubt about the budget; raises ParameterError if `users` is not a number of users."""
    for doubt in find_doubts(plan.epsilon, plan.delta, flags.users):
        print(f"{program}: warning: {doubt}", file=sys.stderr)


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
        public_vocabulary=bool(getattr(flags, "vocabulary", None)),
    )

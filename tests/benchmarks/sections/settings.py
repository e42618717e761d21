"""What a section of figures is, and how numbers are written in tables."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

TIMES = "\N{MULTIPLICATION SIGN}"
NONE = "\N{EN DASH}"


@dataclasses.dataclass(frozen=True)
class Settings:
    data: Path  # the data sets that docs/results.md names
    keys: int  # releases of each system
    repeats: int  # of each command that is timed
    words: Path  # a public list of English words
    work: Path  # an empty directory, deleted afterwards
    part: Callable[[str, Callable[[], Any]], Any]  # (name, function): what it gives, or gave before a run was stopped


@dataclasses.dataclass(frozen=True)
class Section:
    """Figures that are made together.

    Attributes:
        title: in a few words.
        minutes: about how long it takes on two idle cores.
        make: gives the figures, as JSON; None: they are made by hand, with the command in the record.
        tables: the tables of the pages by name, from the figures alone; "" is the table that has the section's name.
        timed: whether there are times or memory in it. Then the load of other programs counts.
    """

    title: str
    minutes: float = 0
    make: Callable[[Settings], Any] | None = None
    tables: Callable[[Any], dict[str, Any]] | None = None
    timed: bool = False


def number(value, digits=0):
    return f"{value:,.{digits}f}"


def percent(share, digits=2):
    return f"{100 * share:.{digits}f} %"

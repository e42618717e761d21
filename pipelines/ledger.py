"""`dpngram ledger`: what all releases of a data set have spent together."""

import json
import os
from collections.abc import Sequence

from dpngram.accounting import ParameterError, composed_epsilon
from dpngram.accounting.parameters import check_delta
from dpngram.pipelines.io.ledger_file import Entry, Ledger, summarise
from dpngram.pipelines.launch.flags import Flag, Kind, OneLineParser

__all__ = ["run"]


def run(argv: Sequence[str]) -> int:
    """Shows a ledger; changes nothing. Status 2 if the file is not as it was written."""
    parser = OneLineParser(
        prog="dpngram ledger", description="Show what the releases of a data set have spent together."
    )
    parser.add_argument("file", metavar="FILE", help="the ledger that --ledger of extract or stream wrote")
    parser.add_flags(
        [
            Flag("delta", "the delta at which epsilon is stated (default: the budget's, else the sum)", Kind.NUMBER),
            Flag("json", "print the releases and the sum as JSON", Kind.SWITCH),
        ]
    )
    flags = parser.parse_args(argv)
    try:
        delta = None if flags.delta is None else check_delta(flags.delta)
        ledger = Ledger(flags.file)
        if not os.path.exists(ledger.path):
            ledger.read()  # says if there was one
            raise ParameterError(f"ledger must be a file that is there, got {flags.file!r}.")
        entries, budget = ledger.read()
    except ParameterError as error:
        parser.error(str(error))
    if flags.json:
        at = delta or (budget.delta if budget else min(sum(entry.spending.delta for entry in entries), 0.99)) or 1e-6
        total = composed_epsilon([entry.spending for entry in entries], at)
        document = {
            "releases": [
                {"time": entry.time, "epsilon": entry.spending.epsilon, "delta": entry.spending.delta, **entry.what}
                for entry in entries
            ],
            "budget": None if budget is None else {"epsilon": budget.epsilon, "delta": budget.delta},
            "together": {"epsilon": total if total < float("inf") else None, "delta": at},
        }
        print(json.dumps(document, indent=2))
        return 0
    for line in _table(entries):
        print(line)
    print(summarise(ledger.path, entries, budget, delta))
    if entries:
        plain = sum(entry.spending.epsilon for entry in entries), sum(entry.spending.delta for entry in entries)
        print(f"Added up without composition they would be ({plain[0]:g}, {plain[1]:g}).")
    return 0


def _table(entries: Sequence[Entry]) -> list[str]:
    rows = [["entered (UTC)", "epsilon", "delta", "program", "label", "output"]]
    for entry in entries:
        time = entry.time.removesuffix("+00:00")
        budget = [f"{entry.spending.epsilon:g}", f"{entry.spending.delta:g}"]
        rows.append([time, *budget, *(entry.what.get(name, "") for name in ("program", "release", "output"))])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]

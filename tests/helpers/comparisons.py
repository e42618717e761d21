"""`dpngram compare` in this process."""

import csv
from pathlib import Path

from helpers.runs import BUDGET

from dpngram.pipelines.cli import main

SWEEPS = [
    "--sweep",
    "epsilon=10,20",
    "--sweep",
    "pruning=both,single",
    "--sweep",
    "max_contributions=6,12",
    "--sweep_system",
    "dpne",
]


def exact_of(output):
    """The directory of exact counts, which is beside the output."""
    return Path(f"{output}.exact-counts-NOT-PRIVATE")


def compare(output, *flags, budget=BUDGET):
    try:
        return main(["compare", "--output", str(output), *budget, *map(str, flags)])
    except SystemExit as stop:
        return stop.code


def table(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))

"""The results of a comparison as plain values, for JSON, CSV tables and the page."""

import csv
import io
import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from dpngram import __version__
from dpngram.pipelines.research.comparison_files import Exact, Outline, OutlineRow, Recovery, ResultRow, Results
from dpngram.pipelines.research.systems import SWEEPS, Comparison, Row, round_up

__all__ = [
    "EXACT_WARNING",
    "exact_tables",
    "fill_exact",
    "fill_results",
    "outline",
    "result_tables",
    "spent_in_words",
    "to_json",
]

FORMAT_VERSION = 1
EXACT_WARNING = (
    "NOT PRIVATE. These are exact counts of people's text. They protect nobody, no epsilon covers them, and they must "
    "not be published unless the data are public."
)
Tallies = Mapping[tuple[str, int, int, int], int]  # (what, run, length, K) -> count


def outline(comparison: Comparison, settings: Mapping[str, Any]) -> Outline:
    """What is known before the data are read.

    Args:
        comparison: what is run.
        settings: those of `CompareSystems`.
    """
    return {
        "format_version": FORMAT_VERSION,
        "dpngram": __version__,
        "max_n": comparison.max_n,
        "repeats": comparison.repeats,
        "settings": dict(settings),
        "spent": {
            "epsilon": comparison.epsilon_spent,
            "delta": comparison.delta_spent,
            "words": spent_in_words(comparison),
        },
        "rows": [_row(row) for row in comparison.rows],
        "systems": list(comparison.systems),
        "sweeps": [
            {
                "parameter": sweep.parameter,
                "symbol": SWEEPS[sweep.parameter],
                "system": sweep.system,
                "values": list(sweep.values),
                "rows": list(sweep.rows),
            }
            for sweep in comparison.sweeps
        ],
    }


def spent_in_words(comparison: Comparison) -> str:
    """What a comparison costs: the budgets of all releases add up."""
    runs = sum(1 for _ in comparison.runs())
    epsilon, delta = round_up(comparison.epsilon_spent, 6), round_up(comparison.delta_spent, 3)
    return (
        f"{runs:,} {'release is' if runs == 1 else 'releases are'} made from the same users. "
        f"Each keeps its own (epsilon, delta), but whoever sees "
        f"all of them has the sum: ({epsilon}, {delta})-differential "
        "privacy by basic composition. Comparing is for public and research data; on private data choose one system "
        "and run it once."
    )


def _row(row: Row) -> OutlineRow:
    return {
        "system": row.system,
        "title": row.title,
        "pruning": row.pruning if not row.system.startswith("dpsu") else None,
        "parameters": dict(row.parameters),
        "spent_each": {"epsilon": row.epsilon_spent, "delta": row.delta_spent},
        "overspends": row.overspends,
        "note": row.note,
        "has_total": len(row.plans) == 1,
    }


def fill_results(begun: Outline, comparison: Comparison, tallies: Tallies) -> Results:
    """The outline with what was released: for each row the sizes by length in every repeat, mean and deviation."""
    sizes = [[[0] * comparison.max_n for _ in range(comparison.repeats)] for _ in comparison.rows]
    for run, (row, repeat, _) in enumerate(comparison.runs()):
        for n in range(1, comparison.max_n + 1):
            sizes[row][repeat][n - 1] += tallies.get(("released", run, n, 0), 0)
    rows: list[ResultRow] = []
    for begun_row, found in zip(begun["rows"], sizes, strict=True):
        mean, deviation = _by_length(found)
        totals = [sum(repeat) for repeat in found]
        rows.append(
            {
                **begun_row,
                "released": found,
                "mean": mean,
                "sd": deviation,
                "total": {"mean": _mean(totals), "sd": _deviation(totals)} if begun_row["has_total"] else None,
            }
        )
    return {**begun, "rows": rows}


def fill_exact(results: Results, comparison: Comparison, anonymity: Sequence[int], tallies: Tallies) -> Exact:
    """Exact counts: statistics of the data, and what each system found of the grams that K users have. NOT private."""

    def exact(kind: str, run: int = -1, n: int = 0, k: int = 0) -> int:
        return tallies.get((kind, run, n, k), 0)

    lengths = range(1, comparison.max_n + 1)
    found: dict[int, Recovery] = {}
    for run, (row, repeat, _) in enumerate(comparison.runs()):
        if row not in comparison.systems:
            continue
        mine = found.setdefault(
            row,
            {
                "row": row,
                "title": comparison.rows[row].title,
                "recovered": [[[0] * comparison.max_n for _ in range(comparison.repeats)] for _ in anonymity],
                "spurious": [list(sizes) for sizes in results["rows"][row]["released"]],
                "fraction": [],
            },
        )
        for n in lengths:
            for place, k in enumerate(anonymity):
                mine["recovered"][place][repeat][n - 1] += exact("recovered", run, n, k)
            mine["spurious"][repeat][n - 1] -= exact("present", run, n)
    held = {k: [exact("held", n=n, k=k) for n in lengths] for k in anonymity}
    for mine in found.values():
        mine["fraction"] = [
            [
                statistics.fmean(repeat[n - 1] for repeat in mine["recovered"][place]) / held[k][n - 1]
                if held[k][n - 1]
                else None
                for n in lengths
            ]
            for place, k in enumerate(anonymity)
        ]
    counted = exact("counted")
    sequences = [exact("sequences", n=n) for n in lengths]
    return {
        "warning": EXACT_WARNING,
        "dataset": {
            "users": exact("users"),
            "posts": exact("posts"),
            "users_counted": counted,
            "max_user_tokens": results["settings"]["max_user_tokens"],
            "sequences": sequences,
            "unique_sequences": [exact("unique", n=n) for n in lengths],
            "sequences_per_user": [count / counted if counted else 0.0 for count in sequences],
        },
        "anonymity": {
            "k": list(anonymity),
            "held": [held[k] for k in anonymity],
            "systems": [found[row] for row in comparison.systems],
        },
    }


def result_tables(results: Results) -> dict[str, str]:
    """CSV files by name, in the paper's layout: a row a system, a column a length, and the total."""
    lengths = [str(n) for n in range(1, results["max_n"] + 1)]
    tables = {"systems": [("system", results["rows"][row]["title"], row) for row in results["systems"]]}
    for sweep in results["sweeps"]:
        points = zip(sweep["values"], sweep["rows"], strict=True)
        tables[f"sweep-{sweep['parameter']}"] = [(sweep["parameter"], value, row) for value, row in points]
    kinds: dict[str, Literal["mean", "sd"]] = {"": "mean"}
    if results["repeats"] > 1:
        kinds["-sd"] = "sd"
    files = {}
    for name, entries in tables.items():
        for suffix, what in kinds.items():
            rows = [[entries[0][0], *lengths, "total"]]
            for _, head, number in entries:
                row = results["rows"][number]
                rows.append([head, *map(_plain, row[what]), _plain(row["total"][what]) if row["total"] else "-"])
            files[f"{name}{suffix}.csv"] = _csv(rows)
    return files


def exact_tables(exact: Exact) -> dict[str, str]:
    """CSV files by name: the paper's two tables of statistics, K-anonymity and spurious grams. NOT private."""
    data, anonymity = exact["dataset"], exact["anonymity"]
    lengths = [str(n) for n in range(1, len(data["sequences"]) + 1)]
    total = sum(data["sequences"])
    per_user = total / data["users_counted"] if data["users_counted"] else 0.0
    held = zip(anonymity["k"], anonymity["held"], strict=True)
    return {
        "dataset.csv": _csv(
            [
                ["# users", "# posts", "# sequences/users", "# sequences", "# unique sequences"],
                [data["users"], data["posts"], f"{per_user:.2f}", total, sum(data["unique_sequences"])],
            ]
        ),
        "sequences-per-user.csv": _csv(
            [[*lengths, "total"], [*(f"{count:.2f}" for count in data["sequences_per_user"]), f"{per_user:.2f}"]]
        ),
        "k-anonymity.csv": _csv(
            [
                ["system", "K", *lengths],
                *(["all grams that K users have", k, *counts] for k, counts in held),
                *(
                    [system["title"], k, *("" if part is None else f"{part:.4f}" for part in fractions)]
                    for system in anonymity["systems"]
                    for k, fractions in zip(anonymity["k"], system["fraction"], strict=True)
                ),
            ]
        ),
        "spurious.csv": _csv(
            [
                ["system", *lengths, "total"],
                *(
                    [
                        system["title"],
                        *map(_plain, _by_length(system["spurious"])[0]),
                        _plain(_mean([sum(repeat) for repeat in system["spurious"]])),
                    ]
                    for system in anonymity["systems"]
                ),
            ]
        ),
    }


def to_json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def _by_length(found: Sequence[Sequence[int]]) -> tuple[list[float], list[float]]:
    columns = list(zip(*found, strict=True))
    return [_mean(column) for column in columns], [_deviation(column) for column in columns]


def _mean(values: Sequence[int]) -> float:
    return statistics.fmean(values)


def _deviation(values: Sequence[int]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _plain(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"


def _csv(rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()

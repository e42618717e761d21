"""Tables of a comparison, and, apart, exact counts."""

import collections
import html
import html.parser
import json
import math

import pytest
from helpers.comparisons import exact_of, table

from dpngram.pipelines.research.systems import SYSTEMS, plan_comparison


def test_files_and_tables(compared):
    names = {path.name for path in compared.iterdir()}
    tables = {"systems", "sweep-epsilon", "sweep-pruning", "sweep-max_contributions"}
    csvs = {f"{name}{suffix}.csv" for name in tables for suffix in ("", "-sd")}
    assert names == {"comparison.json", "comparison.html", *csvs}
    results = json.loads((compared / "comparison.json").read_text())
    found = table(compared / "systems.csv")
    assert found[0] == ["system", "1", "2", "3", "total"]
    assert [row[0] for row in found[1:]] == list(SYSTEMS.values())
    for line, number in zip(found[1:], results["systems"], strict=True):
        row = results["rows"][number]
        assert len(row["released"]) == 2
        means = [sum(repeat[n] for repeat in row["released"]) / 2 for n in range(3)]
        assert [float(cell) for cell in line[1:4]] == means == row["mean"]
        if row["system"] == "dpsu_single":
            assert line[4] == "-"
        else:
            assert float(line[4]) == sum(means) == row["total"]["mean"]
        assert row["sd"][0] == pytest.approx(abs(row["released"][0][0] - row["released"][1][0]) / math.sqrt(2))
        assert min(means[:2]) > 0
    # Two repeats are two draws of noise.
    assert any(row["released"][0] != row["released"][1] for row in results["rows"])
    epsilon = table(compared / "sweep-epsilon.csv")
    assert [row[0] for row in epsilon] == ["epsilon", "10", "20"]
    assert float(epsilon[1][-1]) < float(epsilon[2][-1])


def test_what_is_the_same_is_run_once(compared):
    """The points epsilon = 20, both-side pruning and Delta = 12 are the system DPNE; single-side is one, too."""
    results = json.loads((compared / "comparison.json").read_text())
    assert len(results["rows"]) == len(SYSTEMS) + 2
    dpne, one_side = results["systems"][:2]
    points = {sweep["parameter"]: sweep["rows"] for sweep in results["sweeps"]}
    assert points["epsilon"][1] == points["pruning"][0] == points["max_contributions"][1] == dpne
    assert points["pruning"][1] == one_side


def test_the_sum_of_all_budgets_is_told(compared):
    results = json.loads((compared / "comparison.json").read_text())
    # Systems: 5 with one plan and DPSU-single with 3; the sweeps add one of epsilon 10 and one of 20. Twice each.
    assert results["spent"]["epsilon"] == pytest.approx(2 * (5 * 20 + 3 * 20 + 10 + 20))
    assert results["spent"]["delta"] == 1.0  # 2 * 10 * 0.1, and a probability ends at 1
    assert "20 releases are made from the same users" in results["spent"]["words"]
    page = (compared / "comparison.html").read_text()
    assert results["spent"]["words"] in page
    assert "public and research data" in page
    comparison = plan_comparison(epsilon=1, delta=1e-7, max_n=6, max_contributions=10, systems="dpne,dpsu_even")
    assert comparison.delta_spent == pytest.approx(2e-7)
    printed = plan_comparison(
        epsilon=1, delta=1e-7, max_n=6, max_contributions=10, systems="dpne,dpsu_even", as_printed=True
    )
    assert printed.delta_spent == pytest.approx(4.5e-7, rel=1e-5)
    assert "(1, 3.5e-07)-DP, not (1, 1e-07)-DP" in printed.rows[1].note
    assert not comparison.rows[1].note


def test_exact_counts_are_apart_and_right(compared_rows, revealed):
    apart = exact_of(revealed)
    assert {path.name for path in revealed.iterdir()} == {
        "comparison.json",
        "comparison.html",
        "systems.csv",
    }
    assert {path.name for path in apart.iterdir()} == {
        "exact-counts-NOT-PRIVATE.json",
        "comparison-NOT-PRIVATE.html",
        "README-NOT-PRIVATE.txt",
        "dataset.csv",
        "sequences-per-user.csv",
        "k-anonymity.csv",
        "spurious.csv",
    }
    exact = json.loads((apart / "exact-counts-NOT-PRIVATE.json").read_text())
    assert exact["warning"].startswith("NOT PRIVATE")
    assert html.escape(exact["warning"]) in (apart / "comparison-NOT-PRIVATE.html").read_text()
    users = collections.defaultdict(list)
    for row in compared_rows:
        users[row["user"]].append(row["text"].split())
    kept = {user: posts for user, posts in users.items() if sum(map(len, posts)) <= 20}
    assert 0 < len(kept) < len(users)
    sequences, holders = [], []
    for n in (1, 2, 3):
        found = {
            user: [tuple(post[i : i + n]) for post in posts for i in range(len(post) - n + 1)]
            for user, posts in kept.items()
        }
        sequences.append(sum(map(len, found.values())))
        holders.append(collections.Counter(gram for mine in found.values() for gram in set(mine)))
    unique = sum(map(len, holders))
    assert table(apart / "dataset.csv")[1] == [
        str(len(users)),
        str(len(compared_rows)),
        f"{sum(sequences) / len(kept):.2f}",
        str(sum(sequences)),
        str(unique),
    ]
    assert table(apart / "sequences-per-user.csv")[1] == [
        *(f"{count / len(kept):.2f}" for count in sequences),
        f"{sum(sequences) / len(kept):.2f}",
    ]
    held = {k: [sum(users >= k for users in counts.values()) for counts in holders] for k in (5, 40)}
    anonymity = table(apart / "k-anonymity.csv")
    assert [list(map(int, row[2:])) for row in anonymity[1:3]] == [held[5], held[40]]
    fractions = {(row[0], int(row[1])): [float(cell or 1) for cell in row[2:]] for row in anonymity[3:]}
    assert set(fractions) == {(title, k) for title in titles(revealed) for k in (5, 40)}
    assert all(0 <= part <= 1 for parts in fractions.values() for part in parts)
    assert all(fractions[title, 40][1] >= fractions[title, 5][1] for title in titles(revealed))
    # What DPNE recovers and what is spurious are what it released.
    results = json.loads((revealed / "comparison.json").read_text())
    for system in exact["anonymity"]["systems"]:
        released = results["rows"][system["row"]]["released"][0]
        for n in range(3):
            assert 0 <= system["spurious"][0][n] <= released[n]
            assert system["recovered"][0][0][n] <= released[n] - system["spurious"][0][n]
        if system["title"].startswith("DPSU"):
            assert sum(system["spurious"][0]) == 0


def titles(output):
    results = json.loads((output / "comparison.json").read_text())
    return [results["rows"][row]["title"] for row in results["systems"]]

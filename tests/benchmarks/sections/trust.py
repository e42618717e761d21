"""Sections about the guarantee: the audit, and numbers that the accounting alone decides."""

import itertools
import json
import subprocess
import sys

from benchmarks.pages import Table
from benchmarks.sections.settings import Section, number

from dpngram.accounting import ParameterError, composed_epsilon, plan_extraction, spending_of, users_needed
from dpngram.pipelines.research.attacks import ATTACKS

TRIALS = 10_000
POLICIES = ("paper", "plus")


def make_audit(settings):
    program = [sys.executable, "-m", "dpngram.pipelines.cli", "audit", "--quiet", "--trials", str(TRIALS)]
    findings = []
    for attack, policy in itertools.product(ATTACKS, POLICIES):

        def attempt(attack=attack, policy=policy):
            output = settings.work / f"{attack}-{policy}"
            words = [*program, "--attacks", attack, "--policy", policy, "--output", str(output)]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode not in (0, 1):  # 1: a claim is broken, which the table says
                raise RuntimeError(done.stderr)
            return json.loads((output / "audit.json").read_text(encoding="utf-8"))["findings"]

        findings += settings.part(f"{attack}, {policy}", attempt)
    return findings


def audit_tables(figures):
    rows = []
    for found in figures:
        event, fit = found["event"], found["fit"]
        cells = [f"{100 * event[name]:.2f} %" for name in ("likely", "unlikely")]
        bounds = ["∞" if event["epsilon"] is None else f"{event['epsilon']:.2f}"]
        bounds += ["", ""] if fit is None else [f"{fit[name]:.2f}" for name in ("epsilon", "epsilon_low")]
        mode = "windows" if found["windowed"] else "batch"
        verdict = "holds" if found["holds"] else "**BROKEN**"
        rows.append(
            [f"*{found['attack']}*, `{found['policy']}`", mode, number(found["trials"]), *cells, *bounds, verdict]
        )
    head = ["", "mode", "trials in each world", "the event with the user", "without", "bound on ε (Clopper–Pearson)"]  # noqa: RUF001
    return {"": Table([*head, "Gaussian fit", "its lower bound", "claim of 4"], rows)}


BUDGETS = {
    "MSNBC": {"epsilon": 1, "delta": 1e-7, "max_n": 6, "max_contributions": 10},
    "English posts": {"epsilon": 4, "delta": 1e-7, "max_n": 9, "max_contributions": 100},
    "English posts, Δ = 300": {"epsilon": 4, "delta": 1e-7, "max_n": 9, "max_contributions": 300},
}


def make_accounting(_settings):
    plans = []
    for name, budget in BUDGETS.items():
        for policy in POLICIES:
            plan = plan_extraction(policy=policy, **budget)
            first, cap = plan.levels[0], budget["max_contributions"]
            half = users_needed(plan, 1, contributions=cap, probability=0.5)
            row = {"budget": name, "policy": policy, "sigma": [level.sigma for level in plan.levels]}
            plans.append(row | {"rho_1": first.rho, "users_at_cap": half})
    one = spending_of(plan_extraction(epsilon=4, delta=1e-7, max_n=3, max_contributions=50))
    sums = {str(count): composed_epsilon([one] * count, 1e-6) for count in (2, 5, 10)}
    largest = {f"{policy}, {cap}": largest_epsilon(policy, cap) for policy, cap in (("plus", 300), ("paper", 300))}
    return {"plans": plans, "sums": sums, "largest": largest}


def largest_epsilon(policy, cap):
    """The largest whole epsilon that a plan is made for, at delta 1e-7."""
    for epsilon in itertools.count(20):
        try:
            plan_extraction(epsilon=epsilon, delta=1e-7, max_n=9, max_contributions=cap, policy=policy)
        except ParameterError:
            return epsilon - 1


def accounting_tables(figures):
    rows = []
    for row in figures["plans"]:
        sigma = row["sigma"]
        values = [f"{sigma[0]:.4f}", f"{sigma[-1]:.4f}", f"{row['rho_1']:.4f}", number(row["users_at_cap"])]
        rows.append([row["budget"], f"`{row['policy']}`", *values])
    head = ["budget", "policy", "σ at length 1", "σ at the last length", "ρ at length 1", "users for a word, even odds"]  # noqa: RUF001
    sums = [[count, f"{epsilon:.2f}"] for count, epsilon in figures["sums"].items()]
    return {"plans": Table(head, rows), "sums": Table(["releases of (4, 10⁻⁷)", "ε of all together, δ = 10⁻⁶"], sums)}


SECTIONS = {
    "audit": Section(f"dpngram audit, {TRIALS:,} trials, both policies", 12, make_audit, audit_tables),
    "accounting": Section("noise, thresholds and sums of several releases", 0.1, make_accounting, accounting_tables),
}

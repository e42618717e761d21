"""The measurements behind the forecast of `dpngram plan --users`, and the fit to them."""

import csv
import functools
from pathlib import Path

import numpy as np

from dpngram.accounting.advice import propose_plans

TABLE = Path(__file__).resolve().parents[1] / "benchmarks" / "forecast.csv"
FITTED = ("reddit", "tweets", "commits", "python")
HELD_OUT = ("topical-chat", "taskmaster", "msnbc", "synth")


def read_table():
    """Rows of corpus, users, tokens_per_user, epsilon and released."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [{name: value if name == "corpus" else int(value) for name, value in row.items()} for row in rows]


@functools.cache
def word_needs(users, tokens, epsilon):
    """How many users a word needs by the plan that is proposed."""
    return next(part.word for part in propose_plans(users, tokens) if part.plan.epsilon == epsilon)


def fit(rows):
    """The constants of the forecast, by least squares; and for each row of `rows`, released / forecast."""
    sizes = np.array([[row["users"], row["tokens_per_user"]] for row in rows], float)
    words = np.array([word_needs(row["users"], row["tokens_per_user"], row["epsilon"]) for row in rows])
    features = np.column_stack([np.ones(len(rows)), np.log(sizes[:, 0] / words), np.log(sizes[:, 1])])
    released = np.log([row["released"] for row in rows])
    chosen = np.array([row["corpus"] in FITTED for row in rows])
    constants = np.linalg.lstsq(features[chosen], released[chosen], rcond=None)[0]
    return constants, np.exp(released - features @ constants)

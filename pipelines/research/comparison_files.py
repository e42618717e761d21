"""What the JSON files of a comparison hold: comparison.json, and the exact counts, which are NOT private."""

from typing import Any, TypedDict

__all__ = ["Exact", "Outline", "OutlineRow", "Recovery", "ResultRow", "Results", "Sweeps"]


class Spent(TypedDict):
    """A sum of budgets."""

    epsilon: float
    delta: float


class SpentInAll(Spent):
    """The budget of a whole comparison."""

    words: str


class MeanAndDeviation(TypedDict):
    """Over the repeats."""

    mean: float
    sd: float


class OutlineRow(TypedDict):
    """One system with one set of parameters, before it is run."""

    system: str
    title: str
    pruning: str | None
    parameters: dict[str, Any]
    spent_each: Spent
    overspends: bool
    note: str
    has_total: bool


class ResultRow(OutlineRow):
    """One system with one set of parameters, and how much it released."""

    released: list[list[int]]  # for each repeat, by length
    mean: list[float]  # by length
    sd: list[float]
    total: MeanAndDeviation | None


class Sweeps(TypedDict):
    """One parameter that is varied."""

    parameter: str
    symbol: str
    system: str
    values: list[Any]
    rows: list[int]


class _Comparison(TypedDict):
    format_version: int
    dpngram: str
    max_n: int
    repeats: int
    settings: dict[str, Any]
    spent: SpentInAll
    systems: list[int]  # numbers of rows
    sweeps: list[Sweeps]


class Outline(_Comparison):
    """comparison.json without results."""

    rows: list[OutlineRow]


class Results(_Comparison):
    """comparison.json."""

    rows: list[ResultRow]


class Dataset(TypedDict):
    """Exact statistics of the data. NOT private."""

    users: int
    posts: int
    users_counted: int
    max_user_tokens: int | None
    sequences: list[int]  # by length
    unique_sequences: list[int]
    sequences_per_user: list[float]


class Recovery(TypedDict):
    """What one system found of the n-grams that at least K users have. NOT private."""

    row: int
    title: str
    recovered: list[list[list[int]]]  # for each K and repeat, by length
    spurious: list[list[int]]  # for each repeat, by length
    fraction: list[list[float | None]]  # for each K, by length; None: there are no such n-grams


class Anonymity(TypedDict):
    """How many n-grams at least K users have. NOT private."""

    k: list[int]
    held: list[list[int]]  # for each K, by length
    systems: list[Recovery]


class Exact(TypedDict):
    """exact-counts-NOT-PRIVATE.json."""

    warning: str
    dataset: Dataset
    anonymity: Anonymity

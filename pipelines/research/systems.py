"""What a comparison runs: the systems side by side, and the points of the sweeps. No data is needed."""

import dataclasses
import decimal
import math
from collections.abc import Iterator, Sequence
from typing import Any

from dpngram.accounting import (
    POLICIES,
    ExtractionPlan,
    ParameterError,
    UnionPlan,
    plan_extraction,
    plan_union_all,
    plan_union_even,
    plan_union_single,
)
from dpngram.accounting.parameters import check_choice, check_integer
from dpngram.pipelines.launch.flags import number_or_text
from dpngram.transforms.baselines.compare_systems import ComparedRun
from dpngram.transforms.validity_filter import PRUNINGS

__all__ = ["SWEEPS", "SYSTEMS", "Comparison", "Row", "Sweep", "plan_comparison"]

SYSTEMS = {
    "dpne": "DPNE",
    "dpne_one_side": "DPNE, single-side pruning",
    "plus": "dpngram plus",
    "dpsu_all": "DPSU-all",
    "dpsu_even": "DPSU-even",
    "dpsu_single": "DPSU-single",
}
# The parameters that the paper's figures vary, and what it calls them.
SWEEPS = {
    "max_contributions": "Δ₀",
    "epsilon": "ε",
    "eta": "η",
    "decay": "c",
    "pruning": "pruning",
}
_SWEPT = {"dpne": "paper", "plus": "plus"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One system with one set of parameters. DPSU-single has a plan for each length; all others have one plan."""

    system: str
    title: str
    pruning: str
    plans: tuple[ExtractionPlan | UnionPlan, ...]
    parameters: tuple[tuple[str, Any], ...]

    @property
    def family(self) -> str:
        """Rows of one family with equal plans are run once, since a point of a sweep may equal a system."""
        return self.system if self.system.startswith("dpsu") else "dpne"

    @property
    def epsilon_spent(self) -> float:
        return math.fsum(plan.epsilon for plan in self.plans)

    @property
    def delta_spent(self) -> float:
        return math.fsum(plan.delta_spent if isinstance(plan, UnionPlan) else plan.delta for plan in self.plans)

    @property
    def overspends(self) -> bool:
        return any(isinstance(plan, UnionPlan) and plan.delta_spent > plan.delta * (1 + 1e-9) for plan in self.plans)

    @property
    def note(self) -> str:
        """What a reader of this row's numbers must know."""
        if self.overspends:
            (plan,) = self.plans
            return (
                f"As printed in the paper: every length's threshold spends half of delta, so this row is "
                f"({plan.epsilon:g}, {round_up(self.delta_spent, 3)})-DP, not ({plan.epsilon:g}, {plan.delta:g})-DP. "
                "Without --as_printed the split is sound."
            )
        if len(self.plans) > 1:
            return f"{len(self.plans)} releases, one for each length, each with the whole budget; they have no total."
        return ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
    """One parameter is varied, all others stay as given: the values, and the number of the row of each."""

    parameter: str
    system: str
    values: tuple[Any, ...]
    rows: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """All that is run: rows, the numbers of those that are systems, and the sweeps. Equal rows are run once."""

    max_n: int
    repeats: int
    rows: tuple[Row, ...]
    systems: tuple[int, ...]
    sweeps: tuple[Sweep, ...]

    def runs(self) -> Iterator[tuple[int, int, ComparedRun]]:
        """(row, repeat, run) of each run. A run's number is its place in this order."""
        for number, row in enumerate(self.rows):
            for repeat in range(self.repeats):
                for part, plan in enumerate(row.plans):
                    label = f"compare row {number} repeat {repeat} part {part}"
                    yield number, repeat, ComparedRun(label=label, plan=plan, pruning=row.pruning)

    @property
    def epsilon_spent(self) -> float:
        """Basic composition: everything that is run on the same users adds up."""
        return self.repeats * math.fsum(row.epsilon_spent for row in self.rows)

    @property
    def delta_spent(self) -> float:
        return min(1.0, self.repeats * math.fsum(row.delta_spent for row in self.rows))


def round_up(value: float, digits: int) -> str:
    """A budget in a few digits, rounded up. (The last bits of a sum, 1e-12 of it, do not count.)"""
    rounding = decimal.Context(prec=digits, rounding=decimal.ROUND_CEILING)
    return f"{float(rounding.create_decimal(decimal.Decimal(value * (1 - 1e-12)))):g}"


def plan_comparison(
    *,
    epsilon: Any,
    delta: Any,
    max_n: Any,
    max_contributions: Any,
    eta: Any = 0.01,
    decay: Any = None,
    systems: str = ",".join(SYSTEMS),
    sweeps: Sequence[str] = (),
    sweep_system: str | None = None,
    repeats: Any = 1,
    as_printed: bool = False,
) -> Comparison:
    """Checks the parameters of a comparison and makes its plans.

    Args:
        epsilon, delta, max_n, max_contributions, eta, decay: of every system, as in `plan_extraction`.
        systems: names from `SYSTEMS`, with commas between them.
        sweeps: texts NAME=VALUE,VALUE,... with names from `SWEEPS`.
        sweep_system: which system the sweeps vary, dpne or plus; None: plus, the default policy, and dpne for pruning.
        repeats: runs of each row.
        as_printed: DPSU-even as the paper prints it, which spends more than delta.

    Raises:
        ParameterError: if something cannot be run.
    """
    if isinstance(max_contributions, list):
        raise ParameterError("max_contributions must be one number: the baselines have one for all lengths.")
    base = {
        "epsilon": epsilon,
        "delta": delta,
        "max_n": max_n,
        "max_contributions": max_contributions,
        "eta": eta,
        "decay": decay,
    }
    names = [name for name in systems.split(",") if name]
    if not names or len(set(names)) != len(names):
        raise ParameterError(f"systems must be different names from {', '.join(SYSTEMS)}, got {systems!r:.80}.")
    if as_printed and "dpsu_even" not in names:
        raise ParameterError("as_printed must be left out without dpsu_even: it changes no other system.")
    others = [text for text in sweeps if not text.startswith("decay=")]
    if decay is not None and not others and all(name.startswith("dpsu") for name in names):
        raise ParameterError("decay must be left out with set unions only: they have no schedule.")
    plan_extraction(**base, policy="paper")  # checks all parameters, also those that the chosen systems do not use
    rows: list[Row] = []

    def add(row: Row) -> int:
        for number, known in enumerate(rows):
            if (known.plans, known.pruning, known.family) == (row.plans, row.pruning, row.family):
                return number
        rows.append(row)
        return len(rows) - 1

    chosen = tuple(add(_system_row(check_choice("systems", name, tuple(SYSTEMS)), base, as_printed)) for name in names)
    if sweep_system is not None and not sweeps:
        raise ParameterError("sweep_system must be left out without a sweep.")
    if sweep_system is not None:
        check_choice("sweep_system", sweep_system, tuple(_SWEPT))
    varied: list[Sweep] = []
    for text in sweeps:
        parameter, values = _parse_sweep(text)
        if parameter in (sweep.parameter for sweep in varied):
            raise ParameterError(f"sweep must vary each parameter once, got {parameter} twice.")
        varies = sweep_system or ("dpne" if parameter == "pruning" else "plus")
        points = tuple(add(_swept_row(varies, parameter, value, base)) for value in values)
        varied.append(Sweep(parameter=parameter, system=varies, values=tuple(values), rows=points))
    return Comparison(
        max_n=check_integer("max_n", max_n, 1, 64),
        repeats=check_integer("repeats", repeats, 1, 1000),
        rows=tuple(rows),
        systems=chosen,
        sweeps=tuple(varied),
    )


def _system_row(system: str, base: dict[str, Any], as_printed: bool) -> Row:
    union = {name: base[name] for name in ("epsilon", "delta", "max_n", "max_contributions")}
    pruning = "single" if system == "dpne_one_side" else "both"
    plans: tuple[ExtractionPlan | UnionPlan, ...]
    if system == "dpsu_all":
        plans = (plan_union_all(**union),)
    elif system == "dpsu_even":
        plans = (plan_union_even(**union, as_printed=as_printed),)
    elif system == "dpsu_single":
        lengths = range(1, check_integer("max_n", union.pop("max_n"), 1, 64) + 1)
        plans = tuple(plan_union_single(**union, n=n) for n in lengths)
    else:
        plans = (plan_extraction(**base, policy=_SWEPT.get(system, "paper")),)
    known = union if system.startswith("dpsu") else base
    return Row(
        system=system,
        title=SYSTEMS[system] + (" (as printed)" if system == "dpsu_even" and as_printed else ""),
        pruning=pruning,
        plans=plans,
        parameters=tuple(known.items()),
    )


def _swept_row(system: str, parameter: str, value: Any, base: dict[str, Any]) -> Row:
    pruning = check_choice("pruning", value, PRUNINGS) if parameter == "pruning" else "both"
    policy = _SWEPT[system]
    if pruning != "both" and POLICIES[policy].both_sides_only:
        raise ParameterError(f"sweep of pruning must be of dpne: {policy} needs both-side pruning.")
    changed = base if parameter == "pruning" else {**base, parameter: value}
    return Row(
        system=system,
        title=f"{SYSTEMS[system]}, {SWEEPS[parameter]} = {value}",
        pruning=pruning,
        plans=(plan_extraction(**changed, policy=policy),),
        parameters=tuple(changed.items()),
    )


def _parse_sweep(text: str) -> tuple[str, list[Any]]:
    parameter, _, listed = text.partition("=")
    if parameter not in SWEEPS or not listed:
        raise ParameterError(
            f"sweep must be NAME=VALUE,VALUE,... with a name from {', '.join(SWEEPS)}, got {text!r:.80}."
        )
    values = [number_or_text(value) for value in listed.split(",")]
    if len(set(values)) != len(values):
        raise ParameterError(f"sweep must have different values, got {text!r:.80}.")
    return parameter, values

"""Sections of times and memory: what tests/benchmarks/benchmark.py measures, in turns."""

from benchmarks import benchmark, record
from benchmarks.pages import Table
from benchmarks.sections.settings import TIMES, Section, number
from helpers.costs import Cost


def timed(*groups):
    def make(settings):
        commands = {name: benchmark.GROUPS[name][0](settings.data, settings.work) for name in groups}

        def turn():
            watch = record.Watch()
            costs = {name: benchmark.take_turn(commands[name]) for name in groups}
            plain = {name: {what: cost._asdict() for what, cost in made.items()} for name, made in costs.items()}
            return {"load": watch.load(), "groups": plain}

        return {"turns": [settings.part(f"turn {number_}", turn) for number_ in range(settings.repeats)]}

    return make


def turns_of(figures, group):
    """As benchmark.py has them: one {name: Cost} a turn."""
    return [{name: Cost(**cost) for name, cost in turn["groups"][group].items()} for turn in figures["turns"]]


def shown(values, unit, digits):
    found = record.spread(values)
    median, least, most = (number(found[name], digits) for name in ("median", "least", "most"))
    return f"{median} {unit} ({least} to {most})"


def rows_of(figures):
    """One row a command: medians, least and most; the ratio to the first of its group, turn by turn."""
    for group in figures["turns"][0]["groups"]:
        turns, field = turns_of(figures, group), benchmark.GROUPS[group][1]
        base = next(iter(turns[0]))
        for name in turns[0]:
            cells = [
                shown([getattr(turn[name], cost) / scale for turn in turns], unit, digits)
                for cost, unit, digits, scale in (("cpu", "s", 1, 1), ("wall", "s", 1, 1), ("memory", "GB", 2, 1e3))
            ]
            ratios = [getattr(turn[name], field) / getattr(turn[base], field) for turn in turns]
            label = "CPU" if field == "cpu" else "wall"
            yield [name, *cells, "" if name == base else f"{shown(ratios, TIMES, 2)} {label}"]


def cost_tables(figures):
    head = ["", "CPU", "wall", "memory, largest process", "over the row with which it takes turns"]
    return {"": Table(head, list(rows_of(figures)))}


def speed_tables(figures):
    """The README's has medians alone."""
    rows = [[cell.partition(" (")[0] for cell in row] for row in rows_of(figures)]
    head = ["", "CPU", "wall", "memory", "CPU over the row above"]
    return cost_tables(figures) | {"summary": Table(head, rows)}


SECTIONS = {
    "speed": Section(
        "one extraction beside the least that there is to do, and plus beside paper",
        3,
        timed("msnbc", "english", "policies_msnbc", "policies_english"),
        speed_tables,
        timed=True,
    ),
    "speed_compare": Section("a comparison beside one extraction", 2, timed("compare"), cost_tables, timed=True),
    "speed_users": Section("CPU by the number of users", 12, timed("scaling"), cost_tables, timed=True),
    "speed_workers": Section("modes of the local runner", 25, timed("workers"), cost_tables, timed=True),
}

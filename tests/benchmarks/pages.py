"""Tables of the pages, made from records of figures: Markdown between two comments.

    <!-- figures: SECTION --> or <!-- figures: SECTION/PART -->
    the table, and a line that says when, from which code and on which machine
    <!-- end of figures -->

tests/test_figures.py compares every page with the records.
"""

import re
from typing import NamedTuple

from benchmarks import record

PAGES = ("README.md", "SECURITY.md", "docs/results.md", "docs/scaling.md", "docs/engines.md")
_MARKED = re.compile(r"(<!-- figures: ([\w./-]+) -->\n)(.*?)(<!-- end of figures -->)", re.DOTALL)


class Table(NamedTuple):
    columns: list[str]
    rows: list[list[str]]

    def markdown(self):
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        wrong = [line for line in lines if len(line) != len(self.columns)]
        if wrong:
            raise ValueError(f"a row with another number of cells than the head: {wrong[0]}")
        head, rule, *rows = (f"| {' | '.join(line)} |".replace("|  |", "| |").replace("|  |", "| |") for line in lines)
        return "\n".join([head, rule.replace(" ", ""), *rows])


def stamp(found, timed):
    """When the figures were made, from what and beside what."""
    if found["made"] == "earlier":
        return (
            f"*Not made again: on this page since {found['date']} (commit {found['commit']}){found.get('note', '')}.*"
        )
    on, with_ = found["machine"], found["versions"]
    text = (
        f"*Made on {found['date']} from commit {found['commit']} with `{found['command']}`: {on['cores']} cores "
        f"({on['processor']}), {on['memory_gb']} GB; Python {with_['python']}, Beam {with_['apache-beam']}"
    )
    if not timed:
        return text + ".*"
    load = ", ".join(f"{100 * share:.0f} % {when}" for when, share in found["load"].items())
    mark = " **The machine was busy: times are longer than on an idle one.**" if record.busy(found) else ""
    return f"{text}. Share of each core that other programs took: {load}.{mark}*"


def names_in(text):
    return [name for _, name, _, _ in _MARKED.findall(text)]


def fill(text, tables):
    """The page with every marked table as `tables` has it; a table without a record stays as it is."""

    def filled(found):
        head, name, _, end = found.groups()
        return f"{head}\n{tables[name]}\n\n{end}" if name in tables else found[0]

    return _MARKED.sub(filled, text)


def write(tables):
    """Names of the pages that changed."""
    changed = []
    for page in PAGES:
        path = record.ROOT / page
        text = path.read_text(encoding="utf-8")
        filled = fill(text, tables)
        if filled != text:
            path.write_text(filled, encoding="utf-8")
            changed.append(page)
    return changed

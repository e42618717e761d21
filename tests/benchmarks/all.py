"""Makes the figures of README.md, docs/ and SECURITY.md again, and writes them into the pages.

    python tests/benchmarks/all.py --list                 # sections, how long each takes, when it was made
    python tests/benchmarks/all.py                        # all of them; hours
    python tests/benchmarks/all.py --only utility peers   # some
    python tests/benchmarks/all.py --tables               # measures nothing: writes the tables of the records

A section is one file of figures, tests/benchmarks/figures/SECTION.json, with date, commit, machine, versions and load.
A section that was made from this commit on this machine is not made again unless `--again` is given, so a run that
was stopped goes on where it was. Sections that are timed say how much of the machine other programs took, and
`--idle` refuses to time anything beside other work.
"""

import argparse
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":  # run as a script: its modules are those of the tests
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import pages, record
from benchmarks.sections.every import SECTIONS
from benchmarks.sections.settings import Settings

KEYS = 5
REPEATS = 3


def tables_of(name):
    """{name of a table: its Markdown, with the line that says when it was made} of a section that has a record."""
    found, section = record.load(name), SECTIONS[name]
    line = pages.stamp(found, section.timed)
    if found["made"] == "earlier":
        tables = {part: pages.Table(**table) for part, table in found["figures"]["tables"].items()}
    else:
        tables = section.tables(found["figures"])
    return {f"{name}/{part}".removesuffix("/"): f"{table.markdown()}\n\n{line}" for part, table in tables.items()}


def all_tables():
    return {key: text for name in SECTIONS if record.path_of(name).exists() for key, text in tables_of(name).items()}


def show_list():
    for name, section in SECTIONS.items():
        how = f"about {section.minutes:g} min" if section.make else "by hand"
        when = "never made"
        if record.path_of(name).exists():
            found = record.load(name)
            when = f"{found['date']}, commit {found['commit']}" + (", not made again" * (found["made"] == "earlier"))
        print(f"{name:<18} {how:<13} {when:<42} {section.title}")


def command_of(name, flags):
    """What makes this section alone again, but for the place of the data."""
    words = f"python tests/benchmarks/all.py --only {name}"
    for option, value, default in (("keys", flags.keys, KEYS), ("repeats", flags.repeats, REPEATS)):
        words += "" if value == default else f" --{option} {value}"
    return words


def make(name, flags):
    """Whether the section could be made."""
    section = SECTIONS[name]
    if section.make is None:
        command = record.load(name).get("command", "")
        print(f"{name}: made by hand: {command}", flush=True)
        return True
    command = command_of(name, flags)
    if record.is_current(name, command) and not flags.again:
        print(f"{name}: made already from commit {record.commit()} on this machine", flush=True)
        return True
    before = record.load_now()
    if section.timed and flags.idle and before > record.BUSY:
        print(f"{name}: refused, since other programs take {100 * before:.0f} % of each core", flush=True)
        return False
    with tempfile.TemporaryDirectory(prefix="dpngram-figures-") as work:

        def figures(part):
            return section.make(Settings(flags.data, flags.keys, flags.repeats, flags.words, Path(work), part))

        made = record.make(name, figures, command, before)
    print(f"{name}: made in {made['seconds']} s; other programs took {made['load']} of each core", flush=True)
    return True


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, metavar="SECTION", help="default: all sections")
    parser.add_argument("--list", action="store_true", help="show the sections")
    parser.add_argument("--tables", action="store_true", help="write the tables of the records that there are, no more")
    parser.add_argument("--again", action="store_true", help="also what was made from this commit on this machine")
    parser.add_argument("--idle", action="store_true", help="refuse to time anything while other programs are at work")
    parser.add_argument("--keys", type=int, default=KEYS, help=f"releases of each system (default {KEYS})")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="of what is timed (default and least 3)")
    parser.add_argument("--data", type=Path, default=record.ROOT.parent / "shared" / "data", help="the data sets")
    parser.add_argument("--words", type=Path, default="/usr/share/dict/american-english", help="for `vocabulary`")
    flags = parser.parse_args(argv)
    if flags.repeats < REPEATS:
        parser.error("--repeats must be 3 or more: a median of less says nothing about the spread.")
    if flags.list:
        show_list()
        return 0
    done = [flags.tables or make(name, flags) for name in flags.only or SECTIONS]
    for page in pages.write(all_tables()):
        print(f"written: {page}")
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())

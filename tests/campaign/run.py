"""The campaign: everything that takes too long for the tests of every change.

    python tests/campaign/run.py [SECTION ...] [--minutes 20] [--list]

A section is a list of jobs, and a job is one command. As many jobs run at the same time as there are cores. With
`--minutes` no job starts after that time: the sections take turns, each begins at another job every day, and the last
line says how many jobs were not run. Without it everything runs, which takes hours. Exit status 1: a job failed.
"""

import argparse
import collections
import concurrent.futures
import datetime
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":  # run as a script: helpers and mutants are two folders up
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from helpers.loads import LOADS
from mutants.mutants import MUTANTS

from dpngram.pipelines.research.attacks import ATTACKS

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
PYTHON = sys.executable
PYTEST = (PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider")
TODAY = datetime.datetime.now(datetime.timezone.utc).toordinal()
FUZZING = 20  # times the examples of the tests
MOST_MINUTES = 60  # for one job
LINES = 60  # of a failed job's output


class Job(NamedTuple):
    """One command, from the root of the checkout. OUTPUT in it stands for a directory that is deleted afterwards."""

    name: str
    command: Sequence[str]
    environment: tuple[tuple[str, str], ...] = ()


def long_tests() -> Iterator[Job]:
    """Tests with the mark, file by file; those of engines are a section."""
    for path in sorted(TESTS.rglob("test_*.py")):
        name = str(path.relative_to(ROOT))
        if "pytest.mark.campaign" in path.read_text(encoding="utf-8") and path.parent.name != "engines":
            yield Job(f"tests of {name}", (*PYTEST, "-m", "campaign", name))


LIVE = "tests/engines/test_kafka_flink.py::test_windows_come_out_one_by_one"


def live() -> Iterator[Job]:
    """A stream from Kafka on Flink. The one job of its section: a limited campaign runs it every day, and first."""
    yield Job("windows of a stream", (*PYTEST, "-m", "campaign", LIVE))


def engines() -> Iterator[Job]:
    for path in sorted((TESTS / "engines").glob("test_*.py")):
        if "pytest.mark.campaign" in path.read_text(encoding="utf-8"):
            name = str(path.relative_to(ROOT))
            yield Job(f"engine of {name}", (*PYTEST, "-m", "campaign", name, "--deselect", LIVE))


def versions() -> Iterator[Job]:
    """The graph's tests on both; every test on one of them, the other the next day, since that takes ten minutes.

    The long one is the first that a limited campaign starts, see `arrange`.
    """
    for number, name in enumerate(("oldest", "newest")):
        whole = () if (TODAY + number) % 2 else ("--whole",)
        tests = "all tests" if whole else "tests of the graph"
        yield Job(f"{tests}, {name} Python, Beam and packages", (PYTHON, "tests/campaign/versions.py", name, *whole))


def mutants() -> Iterator[Job]:
    """Six mutants a job: the run without a mutant is shared."""
    for start in range(0, len(MUTANTS), 6):
        names = [mutant.name for mutant in MUTANTS[start : start + 6]]
        yield Job(f"mutants {names[0]} and {len(names) - 1} more", (PYTHON, "tests/mutants/run.py", *names))


def audit_mutants() -> Iterator[Job]:
    for mutant in MUTANTS:
        if mutant.attack:
            yield Job(f"audit of mutant {mutant.name}", (PYTHON, "tests/mutants/run.py", "--audit", mutant.name))


def audit() -> Iterator[Job]:
    """10,000 trials in each world. Bounds are wrong with probability 1e-6 each: a sound build fails once in 80,000."""
    program = (PYTHON, "-m", "dpngram.pipelines.cli", "audit", "--quiet", "--error", "1e-6", "--trials", "10000")
    for attack, policy in itertools.product(ATTACKS, ("paper", "plus")):
        command = (*program, "--attacks", attack, "--policy", policy, "--output", "OUTPUT")
        yield Job(f"audit {attack}, {policy}", command)


def fuzz() -> Iterator[Job]:
    """New examples every day: a failure prints the example that shows it."""
    seed = f"--hypothesis-seed={TODAY}"
    for path in sorted((TESTS / "security").glob("test_fuzz*.py")):
        for test in re.findall(r"^def (test_fuzz\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            name = f"{path.relative_to(ROOT)}::{test}"
            yield Job(f"fuzzing of {name}", (*PYTEST, seed, name), (("DPNGRAM_FUZZ", str(FUZZING)),))


def loads() -> Iterator[Job]:
    """Hostile corpora at full size."""
    for name in LOADS:
        yield Job(f"load {name}", (PYTHON, "tests/benchmarks/load.py", name, "--steps", "4", "1"))


def digests() -> Iterator[Job]:
    yield Job("digests of releases", (PYTHON, "tests/digests.py", "--check"))


SECTIONS = {
    "live": live,
    "versions": versions,
    "engines": engines,
    "mutants": mutants,
    "tests": long_tests,
    "fuzz": fuzz,
    "audit": audit,
    "audit_mutants": audit_mutants,
    "digests": digests,
    "loads": loads,
}


def arrange(names: Sequence[str], start: int) -> list[Job]:
    """The jobs of these sections, one of each in turn; every section begins at the job that `start` says."""
    queues = []
    for name in names:
        jobs = collections.deque(SECTIONS[name]())
        jobs.rotate(-start % len(jobs))
        queues.append(jobs)
    return [job for turn in itertools.zip_longest(*queues) for job in turn if job is not None]


def run(job: Job) -> tuple[bool, float, str]:
    """Whether a job passed, its seconds, and what it printed."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dpngram-campaign-") as output:
        try:
            done = subprocess.run(
                [word.replace("OUTPUT", output) for word in job.command],
                cwd=ROOT,
                env={**os.environ, **dict(job.environment)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                check=False,
                timeout=60 * MOST_MINUTES,
            )
        except subprocess.TimeoutExpired:
            return False, time.monotonic() - begin, f"not done in {MOST_MINUTES} minutes"
    return done.returncode == 0, time.monotonic() - begin, done.stdout


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)} (default: all)")
    parser.add_argument("--minutes", type=float, help="start no job after so many minutes")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at the same time (default: one a core)")
    parser.add_argument("--list", action="store_true", help="print the jobs instead of running them")
    flags = parser.parse_args(argv)
    if unknown := [name for name in flags.sections if name not in SECTIONS]:
        parser.error(f"no such section: {unknown[0]}")
    jobs = arrange(flags.sections or list(SECTIONS), TODAY if flags.minutes else 0)
    if flags.list:
        print("\n".join(job.name for job in jobs))
        return 0
    end = time.monotonic() + 60 * flags.minutes if flags.minutes else float("inf")
    counts = {"passed": 0, "failed": 0, "not run": 0}

    def attempt(job: Job) -> None:
        if time.monotonic() >= end:
            counts["not run"] += 1
            return
        passed, seconds, printed = run(job)
        counts["passed" if passed else "failed"] += 1
        line = f"{'passed' if passed else 'FAILED'}  {seconds:5.0f} s  {job.name}"
        print(line if passed else "\n".join([line, *printed.splitlines()[-LINES:]]), flush=True)

    with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
        list(pool.map(attempt, jobs))
    print("campaign: " + ", ".join(f"{count} jobs {what}" for what, count in counts.items()))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())

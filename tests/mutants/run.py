"""Seeded mutants: shows that the tests notice deliberately broken builds.

    python tests/mutants/run.py [NAME ...] [--whole] [--audit] [--list]

For each mutant the tree is copied, the edit made, and the tests that should notice are run against the copy. A mutant
that no test notices is a hole in the tests: the exit status is 1. `--whole` runs all tests but those of engines;
`--audit` runs the attack of `dpngram audit` that must see the mutant, for those that have one, instead of tests.
"""

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":  # the list is `mutants.mutants`, not the module beside this script
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from mutants.mutant import ROOT, Mutant, apply_edits
from mutants.mutants import MUTANTS

__all__ = ["Verdict", "judge", "main", "run_tests"]

ROOMS = ("accounting", "transforms", "pipelines")
_WHOLE = ("tests", "--ignore=tests/engines", "--ignore=tests/test_packaging.py", "--ignore=tests/test_mutants.py")
_MOST_SECONDS = 300
# Where each attack sees the most in the shortest time.
_AUDITS = {
    "crowd": ["--epsilon", "4", "--trials", "2000"],
    "bound": ["--epsilon", "8", "--trials", "40000"],
    "lone": ["--epsilon", "1", "--trials", "2000"],
    "gap": ["--epsilon", "1", "--trials", "2000"],
}
_LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info")


class Verdict(NamedTuple):
    """Whether the tests passed, which of them failed first, and how long it took; or why nothing can be said."""

    passed: bool
    failed: str
    seconds: float
    problem: str = ""


@contextlib.contextmanager
def copied_tree(mutant: Mutant | None) -> Iterator[tuple[Path, Path]]:
    """A copy of the tree with the mutant's edits, and a directory from which `dpngram` is that copy."""
    with tempfile.TemporaryDirectory(prefix="dpngram-mutant-") as directory:
        tree, shim = Path(directory, "tree"), Path(directory, "shim")
        shutil.copytree(ROOT, tree, ignore=_LEFT_OUT)
        (shim / "dpngram").mkdir(parents=True)
        (shim / "dpngram" / "__init__.py").symlink_to(tree / "package" / "__init__.py")
        for room in ROOMS:
            (shim / "dpngram" / room).symlink_to(tree / room)
        if mutant is not None:
            for file, text in apply_edits(mutant, tree).items():
                (tree / file).write_text(text, encoding="utf-8")
        yield tree, shim


def run_tests(tests: Sequence[str], mutant: Mutant | None = None) -> Verdict:
    """Runs these tests against a copy of the tree, up to the first that fails."""
    with copied_tree(mutant) as (tree, shim):
        environment = _environment(tree, shim)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "-p", "no:cacheprovider", "-p", "mutants.guard"]
        start = time.monotonic()
        try:
            done = subprocess.run(
                [*command, *tests],
                cwd=tree,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=_MOST_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return Verdict(False, "", time.monotonic() - start, f"not done in {_MOST_SECONDS} seconds")
        seconds = time.monotonic() - start
    guard = re.search(r"guard: (\d+) modules, (\d+) of them foreign (.*)", done.stdout)
    if guard is None or guard[1] == "0" or guard[2] != "0":
        where = guard[3] if guard else done.stdout[-500:] + done.stderr[-500:]
        return Verdict(False, "", seconds, f"dpngram was not imported from the copy: {where}")
    failed = re.search(r"^(?:FAILED|ERROR) (\S.*?)(?: - |$)", done.stdout, re.MULTILINE)
    if done.returncode not in (0, 1, 2) or (done.returncode and failed is None):
        return Verdict(False, "", seconds, f"pytest ended with status {done.returncode}: {done.stdout[-500:]}")
    return Verdict(done.returncode == 0, failed[1] if failed else "", seconds)


def run_audit(attack: str, mutant: Mutant | None = None) -> Verdict:
    """Runs one attack against a copy of the tree; passed if it finds nothing."""
    with copied_tree(mutant) as (tree, shim), tempfile.TemporaryDirectory() as output:
        command = [sys.executable, "-m", "dpngram.pipelines.cli", "audit", "--quiet", "--policy", "paper"]
        command += _AUDITS[attack]
        start = time.monotonic()
        done = subprocess.run(
            [*command, "--attacks", attack, "--output", output],
            cwd=tree,
            env=_environment(tree, shim),
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - start
    broken = " BROKEN." in done.stdout
    if done.returncode not in (0, 1) or bool(done.returncode) != broken:
        return Verdict(False, "", seconds, f"the audit ended with status {done.returncode}: {done.stderr[-500:]}")
    return Verdict(not broken, f"dpngram audit --attacks {attack}", seconds)


def _environment(tree: Path, shim: Path) -> dict[str, str]:
    paths = [str(shim), str(tree / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "DPNGRAM_MUTANT_TREE": str(tree)}


def judge(mutant: Mutant, *, whole: bool = False, audit: bool = False) -> tuple[bool, str]:
    """Whether the mutant is killed, and a line that says so."""
    try:
        tests = _WHOLE if whole else mutant.tests
        verdict = run_audit(mutant.attack, mutant) if audit else run_tests(tests, mutant)
    except ValueError as error:
        return False, f"DOES NOT APPLY  {error}"
    if verdict.problem:
        return False, f"NO VERDICT  {mutant.name}  {verdict.problem}"
    if verdict.passed:
        return False, f"SURVIVED  {mutant.name}  ({verdict.seconds:.1f} s)"
    return True, f"killed    {mutant.name}  by {verdict.failed}  ({verdict.seconds:.1f} s)"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which mutants (default: all)")
    parser.add_argument("--whole", action="store_true", help="run all tests but those of engines, not the named ones")
    parser.add_argument("--audit", action="store_true", help="run the audit's attacks, not tests")
    parser.add_argument("--list", action="store_true", help="say what there is, and stop")
    flags = parser.parse_args(argv)
    known = {mutant.name: mutant for mutant in MUTANTS}
    if unknown := [name for name in flags.names if name not in known]:
        parser.error(f"no such mutant: {unknown[0]}")
    chosen = [known[name] for name in flags.names] or list(MUTANTS)
    if flags.audit:
        chosen = [mutant for mutant in chosen if mutant.attack]
    if flags.list:
        print("\n".join(f"{mutant.name}: {mutant.why}" for mutant in chosen))
        return 0
    start = time.monotonic()
    # Tests that fail without a mutant kill nothing.
    if flags.audit:
        attacks = sorted({mutant.attack for mutant in chosen})
        sound = next((found for found in map(run_audit, attacks) if not found.passed), Verdict(True, "", 0.0))
    else:
        sound = run_tests(_WHOLE if flags.whole else sorted({test for mutant in chosen for test in mutant.tests}))
    if not sound.passed:
        print(f"The tests fail without a mutant: {sound.failed or sound.problem}")
        return 1
    print(f"passed    without a mutant  ({sound.seconds:.1f} s)", flush=True)
    alive = 0
    for mutant in chosen:
        killed, line = judge(mutant, whole=flags.whole, audit=flags.audit)
        print(line, flush=True)
        alive += not killed
    print(f"{len(chosen) - alive} of {len(chosen)} mutants killed in {time.monotonic() - start:.0f} s")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())

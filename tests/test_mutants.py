"""The list of seeded mutants is sound, and the runner tells dead from alive. All of them: tests/mutants/run.py."""

import os
import subprocess
import sys

import pytest
from mutants.mutant import ROOT, Edit, Mutant, apply_edits
from mutants.mutants import MUTANTS, NAMED
from mutants.run import judge, main

CHEAP = "tests/accounting/test_thresholds.py::test_known_point"


def test_there_are_enough_and_all_that_were_asked_for():
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names) >= 16
    assert len(NAMED) == 17
    assert set(NAMED) <= set(names)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_edits_apply_and_compile(mutant):
    assert mutant.why.endswith(".")
    assert mutant.tests
    for file, text in apply_edits(mutant, ROOT).items():
        assert not file.startswith("tests")
        assert text != (ROOT / file).read_text(encoding="utf-8")
        compile(text, file, "exec")


def test_the_named_tests_exist(request):
    """Those that pytest has collected already are there; for others, as in a run of this file alone, it is asked."""
    collected = {item.nodeid for item in request.session.items}
    collected |= {name.partition("[")[0] for name in collected}
    tests = sorted({test for mutant in MUTANTS for test in mutant.tests} - collected)
    if not tests:
        return
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_the_script_knows_them():
    command = [sys.executable, "tests/mutants/run.py", "--list"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == [mutant.name for mutant in MUTANTS]


def test_a_mutant_is_killed(capsys):
    assert main(["rho_1_one_sigma_too_low"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("passed    without a mutant")
    assert said[1].startswith(f"killed    rho_1_one_sigma_too_low  by {CHEAP}")
    assert said[2].startswith("1 of 1 mutants killed")


def test_what_is_no_mutant_survives():
    """A harmless edit, and one that does not apply, are told."""
    edit = Edit("accounting/thresholds.py", "RHO_1_SLACK = 2.0**-38", "RHO_1_SLACK = 2.0**-37")
    harmless = Mutant(name="harmless", why="Nothing.", edits=(edit,), tests=(CHEAP,))
    killed, line = judge(harmless)
    assert not killed
    assert line.startswith("SURVIVED  harmless")
    gone = Mutant(name="gone", why="Nothing.", edits=(Edit(edit.file, "no such text", ""),), tests=(CHEAP,))
    assert judge(gone) == (
        False,
        "DOES NOT APPLY  gone: the old text is 0 times in accounting/thresholds.py, not once.",
    )


def test_tests_that_fail_anyway_kill_nothing(monkeypatch, capsys):
    """Without this a test that always fails would kill every mutant."""
    broken = Mutant(name="broken", why="Nothing.", edits=(), tests=("tests/helpers/no_such_file.py",))
    monkeypatch.setattr("mutants.run.MUTANTS", (broken,))
    assert main([]) == 1
    assert capsys.readouterr().out.startswith("The tests fail without a mutant: ")

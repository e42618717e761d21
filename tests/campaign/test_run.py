"""The campaign has every long test, and tells what passed, what failed and what was not run."""

import sys
from pathlib import Path

import pytest
from campaign import run
from campaign.run import LIVE, SECTIONS, Job, arrange, main


def test_every_file_with_the_mark_is_in_it():
    marked = [path for path in run.TESTS.rglob("test_*.py") if "mark.campaign" in path.read_text(encoding="utf-8")]
    commands = {word for job in arrange(list(SECTIONS), 0) for word in job.command}
    assert len(marked) > 5
    assert {str(path.relative_to(run.ROOT)) for path in marked} - {
        str(Path(__file__).relative_to(run.ROOT))
    } <= commands


@pytest.mark.parametrize("section", SECTIONS)
def test_files_of_a_section_exist(section):
    jobs = arrange([section], 0)
    assert jobs
    for job in jobs:
        for word in job.command:
            file = word.partition("::")[0]
            if file.endswith(".py"):
                assert (run.ROOT / file).exists(), word


def test_ci_runs_a_stream_every_day():
    for day in range(3):
        assert LIVE in arrange(list(SECTIONS), day)[0].command
    path, _, name = LIVE.partition("::")
    assert f"@pytest.mark.campaign\ndef {name}(" in (run.ROOT / path).read_text(encoding="utf-8")


def test_sections_take_turns_and_begin_elsewhere():
    names = ["mutants", "fuzz"]
    first, second = arrange(names, 0), arrange(names, 1)
    assert first[0].name.startswith("mutants") != first[1].name.startswith("mutants")
    assert first[0] != second[0]
    assert sorted(first) == sorted(second)


def test_what_passed_failed_and_was_not_run(monkeypatch, capsys):
    good, bad = (Job(name, (sys.executable, "-c", code)) for name, code in [("good", ""), ("bad", "1 / 0")])
    monkeypatch.setitem(SECTIONS, "mixed", lambda: [good, bad])
    assert main(["mixed", "--jobs", "1"]) == 1
    printed = capsys.readouterr().out
    assert "FAILED" in printed
    assert "ZeroDivisionError" in printed
    assert printed.splitlines()[-1] == "campaign: 1 jobs passed, 1 jobs failed, 0 jobs not run"
    monkeypatch.setitem(SECTIONS, "mixed", lambda: [good])
    assert main(["mixed"]) == 0
    assert main(["mixed", "--minutes", "1e-9"]) == 1  # nothing was seen to pass
    assert capsys.readouterr().out.splitlines()[-1] == "campaign: 0 jobs passed, 0 jobs failed, 1 jobs not run"

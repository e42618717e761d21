"""The file of a ledger: nothing that was entered is lost, whoever writes at the same time and whatever dies."""

import json
import multiprocessing
import os
import shutil
import stat
from pathlib import Path

import pytest

from dpngram import Ledger, ParameterError, plan_extraction
from dpngram.pipelines.io.ledger_file import ReleaseName

PLAN = plan_extraction(epsilon=2, delta=1e-7, max_n=2, max_contributions=20)
SMALL = plan_extraction(epsilon=0.5, delta=1e-8, max_n=2, max_contributions=20)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "users.ledger")


def read(path):
    return Path(path).read_text(encoding="utf-8")


def ids(path):
    return [entry.id for entry in Ledger(path).read()[0]]


def test_entries_add_up(path):
    ledger = Ledger(path)
    assert ledger.summary() == f"Ledger {path}: no release yet."
    assert not os.path.exists(path)
    ledger.enter(PLAN, release="first")
    assert ledger.summary() == f"Ledger {path}: 1 release, together (2, 1e-07)-differentially private."
    ledger.enter(SMALL, output="somewhere")
    first, second = ledger.read()[0]
    assert first.what == {"policy": "plus", "release": "first"}
    assert second.what == {"policy": "plus", "output": "somewhere"}
    assert "2 releases, together (2.0" in ledger.summary()
    assert "at delta 1e-09" in ledger.summary(1e-9)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_one_release_is_entered_once(path):
    for name in ("a", "a", "b", "a"):
        Ledger(path).enter(PLAN, ReleaseName(name, repeats=True))
    assert ids(path) == ["a", "b"]
    Ledger(path).enter(PLAN)
    Ledger(path).enter(PLAN)
    assert len(set(ids(path))) == 4


def test_a_name_that_nothing_refuses_others_for_is_a_new_release(path):
    """The same key and label in a container without the record of the key: other data may be behind it."""
    Ledger(path, (2.5, 1e-6)).enter(PLAN, ReleaseName("a", repeats=False))
    Ledger(path).enter(SMALL, ReleaseName("a", repeats=False))
    assert ids(path)[0] == "a"
    assert len(set(ids(path))) == 2
    for refuse in (Ledger(path).check, Ledger(path).enter):
        with pytest.raises(ParameterError, match="must fit the budget"):
            refuse(PLAN, ReleaseName("a", repeats=False))
    Ledger(path).enter(PLAN, ReleaseName("a", repeats=True))
    assert len(ids(path)) == 2


def test_units_are_not_added_up(path):
    Ledger(path).enter(PLAN)
    for refuse in (Ledger(path).check, Ledger(path).enter):
        with pytest.raises(ParameterError, match="unit must be 'user', which"):
            refuse(PLAN, unit="document")
    with pytest.raises(ParameterError, match="unit must be one of"):
        Ledger(path).enter(PLAN, unit="household")
    Ledger(path).enter(PLAN, unit="user")
    assert [entry.unit for entry in Ledger(path).read()[0]] == ["user", "user"]


def test_a_budget_comes_with_the_first_release(path):
    Ledger(path).enter(PLAN)
    for refuse in (Ledger(path, (9, 1e-5)).check, Ledger(path, (9, 1e-5)).enter):
        with pytest.raises(ParameterError, match="budget must be given with the first release"):
            refuse(SMALL)
    Ledger(path).enter(SMALL)
    assert Ledger(path).summary().endswith("-differentially private, if no plan was chosen after looking at results.")


def test_a_budget_is_kept_and_refuses(path):
    first = ReleaseName("a", repeats=True)
    Ledger(path, (2.5, 1e-6)).enter(PLAN, first)
    before = read(path)
    for ledger in (Ledger(path), Ledger(path, [2.5, 1e-6])):
        for refuse in (ledger.check, ledger.enter):
            with pytest.raises(
                ParameterError, match=r"fit the budget \(2.5, 1e-06\) .* got \(2, 1e-07\); 1 release spent"
            ):
                refuse(PLAN)
    assert read(path) == before
    Ledger(path).enter(PLAN, first)  # the same release
    Ledger(path).enter(SMALL, ReleaseName("b", repeats=True))
    with pytest.raises(ParameterError, match=r"budget must be 2.5,1e-06, which .* keeps, got 30,1e-06"):
        Ledger(path, (30, 1e-6)).enter(SMALL)
    assert ids(path) == ["a", "b"]
    for wrong in ((3,), 3, "3,4", (0, 1e-6), (3, 2)):
        with pytest.raises(ParameterError, match="must be"):
            Ledger(path, wrong)


def test_a_first_release_beyond_the_budget_leaves_nothing(path):
    with pytest.raises(ParameterError, match="must fit the budget"):
        Ledger(path, (1, 1e-6)).enter(PLAN)
    assert ids(path) == []


def edits(lines):
    yield "a number", [lines[0], lines[1].replace('"epsilon": 2', '"epsilon": 1'), lines[2]]
    yield "a label", [lines[0], lines[1].replace("first", "other"), lines[2]]
    yield "a line out", [lines[0], lines[2]]
    yield "the first line out", lines[1:]
    yield "another order", [lines[0], lines[2], lines[1]]
    yield "a line twice", [*lines, lines[2]]
    yield "a blank line", [*lines, "\n"]
    yield "no JSON", [lines[0], "x\n", *lines[1:]]
    yield "another JSON", [lines[0], "[]\n", *lines[1:]]
    yield "the last line out", lines[:2]
    yield "the end of the last line out", [*lines[:2], lines[2][:-20]]
    yield "the last line end out", [*lines[:2], lines[2][:-1]]
    yield "nothing left", []


def test_edits_are_noticed(path):
    for name in "abc":
        Ledger(path).enter(PLAN, ReleaseName(name, repeats=True), release="first")
    lines = read(path).splitlines(keepends=True)
    for what, changed in edits(lines):
        with open(path, "w") as file:
            file.writelines(changed)
        for use in (
            Ledger(path).read,
            lambda: Ledger(path).enter(PLAN, ReleaseName("d", repeats=True)),
            Ledger(path).summary,
        ):
            with pytest.raises(ParameterError, match=r"ledger .*(was changed|put the file back as it was)"):
                use()
        assert read(path).splitlines(keepends=True) == changed, what
    os.unlink(path)
    with pytest.raises(ParameterError, match=r"must have the 3 line\(s\) that it had before"):
        Ledger(path).read()
    with open(path, "w") as file:
        file.writelines(lines)
    assert ids(path) == ["a", "b", "c"]


def test_a_ledger_that_was_moved_or_copied(path, tmp_path, monkeypatch):
    Ledger(path).enter(PLAN, ReleaseName("a", repeats=True))
    copy = str(tmp_path / "copy")
    shutil.copy(path, copy)
    Ledger(copy).enter(PLAN, ReleaseName("b", repeats=True))
    assert ids(copy) == ["a", "b"]
    monkeypatch.setenv("DPNGRAM_STATE", str(tmp_path / "another machine"))
    Ledger(path).enter(PLAN, ReleaseName("c", repeats=True))
    assert ids(path) == ["a", "c"]


def test_a_line_that_was_half_written(path):
    """A process died in the middle of a line: its release was not run. What was entered before is there."""
    Ledger(path).enter(PLAN, ReleaseName("a", repeats=True))
    whole = read(path).encode()
    for cut in (b"{", b'{"line": 2, "format"', b"\xff\xfe"):
        with open(path, "wb") as file:
            file.write(whole + cut)
        assert ids(path) == ["a"]
    Ledger(path).enter(PLAN, ReleaseName("b", repeats=True))
    assert ids(path) == ["a", "b"]
    assert read(path).encode().startswith(whole)


def test_a_death_between_the_line_and_the_note_about_it(path, monkeypatch):
    Ledger(path).enter(PLAN, ReleaseName("a", repeats=True))
    monkeypatch.setattr(Ledger, "_keep_head", lambda *_: os._exit(1))
    second = ReleaseName("b", repeats=True)
    process = multiprocessing.get_context("fork").Process(target=Ledger(path).enter, args=(PLAN, second))
    process.start()
    process.join()
    assert process.exitcode == 1
    assert ids(path) == ["a", "b"]


def _enter_many(path, name):
    for number in range(20):
        Ledger(path).enter(SMALL, ReleaseName(f"{name}{number}", repeats=True))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_many_at_once(path):
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=_enter_many, args=(path, name)) for name in "abcd"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert sorted(ids(path)) == sorted(f"{name}{number}" for name in "abcd" for number in range(20))


def test_a_ledger_that_another_process_makes_at_this_moment(path, monkeypatch):
    """Whoever saw no file looks again before it says that lines are missing."""
    exists = os.path.exists

    def look(place):
        if place == path and not exists(place):
            monkeypatch.undo()
            Ledger(path).enter(SMALL, ReleaseName("other", repeats=True))
            return False
        return exists(place)

    monkeypatch.setattr(os.path, "exists", look)
    assert [entry.id for entry in Ledger(path).read()[0]] == ["other"]


def _enter_one(path, name):
    try:
        Ledger(path, (2.5, 1e-6)).enter(PLAN, ReleaseName(name, repeats=True))
    except ParameterError:
        os._exit(3)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_two_at_once_do_not_both_have_the_last_of_a_budget(path):
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=_enter_one, args=(path, name)) for name in "abcd"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert sorted(process.exitcode for process in processes) == [0, 3, 3, 3]
    assert len(ids(path)) == 1


def test_no_figure_of_the_data_and_nothing_else_than_it_says(path):
    Ledger(path).enter(PLAN, ReleaseName("a", repeats=True), program="extract", release="x", output="out")
    fields = json.loads(read(path))
    assert set(fields) == {
        *(
            "line",
            "format",
            "kind",
            "id",
            "time",
            "unit",
            "epsilon",
            "delta",
            "sigma",
            "first_level_delta",
            "cells",
            "counts",
        ),
        *("what", "sha256"),
    }


def test_places_that_cannot_be_used(tmp_path):
    (tmp_path / "directory").mkdir()
    for wrong in ("gs://bucket/ledger", "", 5, None):
        with pytest.raises(ParameterError, match="ledger must be"):
            Ledger(wrong)
    for wrong in ("directory", "missing/ledger"):
        with pytest.raises(ParameterError, match="ledger must be a file that can be read"):
            Ledger(tmp_path / wrong).enter(PLAN)

"""Figures of the pages: tables are those of the records, and a record says when, from what and beside what."""

import json
import re
from pathlib import Path

import pytest
from benchmarks import all as program
from benchmarks import pages, record
from benchmarks.sections import compared, costs, peers, released, settings, sizes, trust
from benchmarks.sections.every import SECTIONS

from dpngram.accounting import plan

RECORDS = sorted(record.FIGURES.glob("*.json"))


def texts():
    return {page: (record.ROOT / page).read_text(encoding="utf-8") for page in pages.PAGES}


def test_tables_are_those_of_the_records():
    """If this fails: python tests/benchmarks/all.py --tables. Nothing between the markers is edited by hand."""
    tables = program.all_tables()
    for page, text in texts().items():
        assert set(pages.names_in(text)) <= set(tables), page
        assert pages.fill(text, tables) == text, page


def test_a_table_that_was_edited_by_hand_is_noticed():
    text, tables = texts()["docs/results.md"], program.all_tables()
    name = "utility/msnbc"
    assert name in pages.names_in(text)
    start = text.index(f"<!-- figures: {name} -->")
    digit = re.compile(r"\d").search(text, text.index("`plus`", start)).start()
    edited = text[:digit] + str((int(text[digit]) + 1) % 10) + text[digit + 1 :]
    assert pages.fill(edited, tables) == text != edited


def test_every_table_is_on_a_page():
    shown = [name for text in texts().values() for name in pages.names_in(text)]
    assert sorted(shown) == sorted(set(shown)) == sorted(program.all_tables())


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_says_when_and_from_what(path):
    text = path.read_text(encoding="utf-8")
    found = json.loads(text)
    assert found["section"] == path.stem in SECTIONS
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", found["date"])
    assert re.fullmatch(r"[0-9a-f]{7,}", found["commit"])  # and no uncommitted changes
    assert found["command"]
    assert not re.search(r"/(home|tmp|work|root)/", text)
    if found["made"] == "again":
        assert SECTIONS[path.stem].make is not None
        assert {"cores", "memory_gb", "processor"} == set(found["machine"])
        assert {"python", *record.PACKAGES} == set(found["versions"])
        assert all(0 <= share <= 1 for share in found["load"].values())
    else:
        assert found["made"] == "earlier"


def test_every_section_has_a_record_or_can_be_made():
    assert {path.stem for path in RECORDS} <= set(SECTIONS)
    for name, section in SECTIONS.items():
        assert section.make is not None or record.path_of(name).exists(), name
        assert (section.make is None) == (section.tables is None), name


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A project with one section, whose figure counts how often it was made."""
    made = []

    def make(given):
        for number in range(2):
            given.part(f"part {number}", lambda: made.append(len(made)))
        return len(made)

    def tables(figures):
        return {"": pages.Table(["made"], [[str(figures)]])}

    (tmp_path / "README.md").write_text("before\n<!-- figures: one -->\n<!-- end of figures -->\nafter\n")
    monkeypatch.setattr(record, "ROOT", tmp_path)
    monkeypatch.setattr(record, "FIGURES", tmp_path / "figures")
    monkeypatch.setattr(record, "_HALF", tmp_path / "half")
    monkeypatch.setattr(record, "_LOOK", 0.01)
    monkeypatch.setattr(record, "commit", lambda: "1234567")
    monkeypatch.setattr(pages, "PAGES", ("README.md",))
    monkeypatch.setattr(program, "SECTIONS", {"one": settings.Section("a test", 1, make, tables, timed=True)})
    return tmp_path, made


def test_another_package_than_that_of_the_checkout_is_not_measured(checkout):
    directory, made = checkout
    ours = directory / "accounting" / "plan.py"
    ours.parent.mkdir()
    ours.write_text("other = True\n")
    with pytest.raises(SystemExit, match=r"accounting/plan.py is not the installed one"):
        program.main([])
    assert made == []
    ours.write_bytes(Path(plan.__file__).read_bytes())
    assert program.main([]) == 0
    assert len(made) == 2


def test_a_section_is_made_once_for_a_commit_and_a_machine(checkout, monkeypatch):
    directory, made = checkout
    for count, flags in ((2, []), (2, []), (4, ["--again"]), (6, ["--keys", "2"]), (6, ["--keys", "2"]), (8, [])):
        assert program.main(flags) == 0
        assert len(made) == count
    page = (directory / "README.md").read_text()
    assert page.startswith("before\n<!-- figures: one -->\n\n| made |\n|---|\n| 8 |\n\n*Made on 20")
    assert "from commit 1234567 with `python tests/benchmarks/all.py --only one`" in page
    monkeypatch.setattr(record, "commit", lambda: "7654321")
    assert program.main([]) == 0
    assert len(made) == 10
    monkeypatch.setattr(record, "machine", lambda: {"cores": 96, "memory_gb": 1, "processor": "another"})
    assert program.main([]) == 0
    assert len(made) == 12
    monkeypatch.setattr(record, "commit", lambda: "7654321-changed")
    assert program.main([]) == 0
    assert len(made) == 14


def test_a_run_that_was_stopped_goes_on(checkout, monkeypatch):
    _, made = checkout
    whole = program.SECTIONS["one"].make

    def stopped(given):
        given.part("part 0", lambda: made.append(0))
        raise KeyboardInterrupt

    def with_make(make):
        section = settings.Section("a test", 1, make, program.SECTIONS["one"].tables)
        monkeypatch.setitem(program.SECTIONS, "one", section)

    with_make(stopped)
    with pytest.raises(KeyboardInterrupt):
        program.main([])
    with_make(whole)
    assert program.main([]) == 0
    assert len(made) == 2  # one before it was stopped, and the other one
    assert program.main(["--again"]) == 0
    assert len(made) == 4
    with_make(stopped)
    with pytest.raises(KeyboardInterrupt):
        program.main(["--again"])
    monkeypatch.setattr(record, "commit", lambda: "7654321")
    with_make(whole)
    assert program.main([]) == 0
    assert len(made) == 7  # parts of another commit are not taken


def test_times_beside_other_work_are_marked_or_refused(checkout, monkeypatch):
    directory, made = checkout
    monkeypatch.setattr(record, "load_now", lambda: 0.6)
    assert program.main(["--idle"]) == 1
    assert made == []
    assert program.main([]) == 0
    assert "60 % before" in (directory / "README.md").read_text()
    assert "**The machine was busy" in (directory / "README.md").read_text()


@pytest.mark.parametrize(
    ("load", "turns", "busy"),
    [((0.5, 0.5), [0.5], False), ((0.6, 0.1), [], True), ((0.1, 0.6), [], True), ((0.1, 0.1), [0.2, 0.7], True)],
)
def test_what_is_busy(load, turns, busy):
    figures = {"turns": [{"load": turn} for turn in turns]}
    assert record.busy({"load": dict(zip(("before", "during"), load, strict=True)), "figures": figures}) is busy


def test_the_load_of_others_is_not_our_own(monkeypatch):
    """Two cores, ten seconds: twelve processor seconds in use, eight of them ours."""
    values = {"_used": iter([100.0, 112.0]), "_mine": iter([5.0, 13.0])}
    for name, given in values.items():
        monkeypatch.setattr(record, name, lambda given=given: next(given))
    monkeypatch.setattr(record.os, "cpu_count", lambda: 2)
    clock = iter([0.0, 10.0])
    monkeypatch.setattr(record.time, "monotonic", lambda: next(clock))
    assert record.Watch().load() == 0.2


def test_medians_need_three():
    assert record.spread([3, 1, 2]) == {"median": 2, "least": 1, "most": 3}
    with pytest.raises(ValueError, match="three"):
        record.spread([1, 2])
    with pytest.raises(SystemExit):
        program.main(["--repeats", "2", "--list"])


def test_a_ratio_is_that_within_a_turn():
    """In a slow minute both take twice as long, and the ratio stays 2."""
    turns = []
    for pair in ((1.0, 2.0), (2.0, 4.0), (1.0, 2.0)):
        made = {name: {"cpu": cpu, "wall": 1.0, "memory": 500.0} for name, cpu in zip("ab", pair, strict=True)}
        turns.append({"load": 0, "groups": {"msnbc": made}})
    table = costs.speed_tables({"turns": turns})[""]
    assert table.rows[1][:2] == ["b", "2.0 s (2.0 to 4.0)"]
    assert table.rows[1][-1].startswith("2.00 × (2.00 to 2.00)")  # noqa: RUF001
    assert table.rows[0][-1] == ""


def test_released_and_spurious():
    made = {"released": [[10, 90], [10, 110]], "spurious": [[0, 1], [0, 6]]}
    assert released.with_deviation(made) == "110.0 ± 14.1"
    assert released.shares(made) == (7 / 220, 6 / 120)
    row = {"corpus": "c", "epsilon": 0.5, "paper": made, "plus": {**made, "released": [[20, 180], [20, 220]]}}
    assert released.untuned_tables([row])[""].rows[0][-1] == "2.00 ×"  # noqa: RUF001


def test_sizes_are_megabytes_for_a_million_users():
    row = {"corpus": "c", "shards": 4, "users": 1000, "tokens": 5000, **{f"{kind} bytes": 0 for kind in sizes.KINDS}}
    table = sizes.sizes_tables([{**row, "posts bytes": 16_000, "level bytes": 1_500}])[""]
    assert table.rows == [["c", "1,000", "5", "4", "16", "0.0", "0.0", "0.0", "0.0", "1.5"]]


def test_grams_that_nobody_has_are_found(tmp_path):
    (tmp_path / "tokens.txt").write_text("a b c\nb c\n\n")
    grams = {("a",), ("b", "c"), ("a", "b", "c"), ("c", "b"), ("a", "c"), ("d",), ("b", "c", "b")}
    assert peers.found_in(tmp_path / "tokens.txt", grams) == {("a",), ("b", "c"), ("a", "b", "c")}


def test_the_peers_read_what_a_run_of_ours_writes(tmp_path):
    (tmp_path / "release").mkdir()
    (tmp_path / "release" / "ngrams-02.jsonl").write_text('{"n": 2, "tokens": ["a", "b"], "weight": 2.5}\n')
    (tmp_path / "grams.txt").write_text("a b\n")
    assert peers.released_in(tmp_path / "release") == peers.released_in(tmp_path / "grams.txt") == {("a", "b")}
    assert peers.write_lines(tmp_path / "tokens.txt", ["a b", "", "c", "d"], 2) == 2
    assert (tmp_path / "tokens.txt").read_text() == "a b\nc\n"


def test_the_table_of_the_audit_says_what_is_broken():
    found = {"attack": "lone", "policy": "plus", "windowed": True, "trials": 10_000, "fit": None, "holds": True}
    event = {"likely": 0.027, "unlikely": 0.0, "epsilon": 0.034, "delta": 0.0}
    fit = {"epsilon": 3.99, "epsilon_low": 3.64}
    broken = {**found, "windowed": False, "holds": False, "event": {**event, "epsilon": None}, "fit": fit}
    rows = trust.audit_tables([{**found, "event": event}, broken])[""].rows
    assert rows[0] == ["*lone*, `plus`", "windows", "10,000", "2.70 %", "0.00 %", "0.03", "", "", "holds"]
    assert rows[1][1:] == ["batch", "10,000", "2.70 %", "0.00 %", "∞", "3.99", "3.64", "**BROKEN**"]


def test_a_comparison_beside_the_paper():
    def row(system, title, released, has_total=True):
        mean = released[0]
        return {"system": system, "title": title, "released": released, "mean": mean, "has_total": has_total}

    seven = [[17, 254, 1273, 1954, 2221, 2020], [17, 254, 1273, 1954, 2221, 2022]]
    rows = [row("dpne", "DPNE", seven), row("dpsu_single", "DPSU-single", seven, has_total=False)]
    figures = {"all": {"rows": rows}, "even": {"rows": [row("dpsu_even", "DPSU-even", seven)]}}
    table = compared.beside_the_paper(figures).rows
    assert table[0] == ["DPNE, Kim et al. 2021", "17", "254", "1,273", "1,954", "2,221", "2,020", "7,739", ""]
    assert table[1][-2:] == ["7,740.0 ± 1.4", "100.0 %"]
    assert table[2][-2] == "(7,969)"
    assert table[3][-2] == "(7,740.0)"
    assert compared.summary(figures).rows[-1] == ["DPSU-even, sound", "", "7,740.0 ± 1.4"]


def test_coverage_of_what_many_users_have():
    systems = [{"title": "DPNE", "recovered": [0, [[3, 0], [2, 0]]]}]
    found = {"k": [50, 100], "held": [[9, 9], [4, 0]], "systems": systems}
    table = compared.anonymity({"anonymity": found})
    assert table.rows == [["such grams", "4", "0"], ["DPNE", "62.5 %", "–"]]  # noqa: RUF001


@pytest.mark.parametrize("name", ["accounting", "scaling_model", "level_model"])
def test_what_is_computed_is_that_of_the_code(name):
    """If this fails: python tests/benchmarks/all.py --again --only, and the name."""
    assert record.load(name)["figures"] == json.loads(json.dumps(SECTIONS[name].make(None)))

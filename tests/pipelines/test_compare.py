"""`dpngram compare` from files to tables, figures and, apart, exact counts."""

import json
import re

import pytest
from helpers.comparisons import SWEEPS, compare, exact_of, table
from helpers.keys import write_key

from dpngram.pipelines import compare as program
from dpngram.pipelines.io.reading import InputFormat


def test_nothing_exact_without_asking(compared):
    """Only sizes of releases: no count of users, posts or sequences, no directory for them."""
    results = json.loads((compared / "comparison.json").read_text())
    assert set(results) == {
        "format_version",
        "dpngram",
        "max_n",
        "repeats",
        "settings",
        "spent",
        "rows",
        "systems",
        "sweeps",
    }
    known = {"system", "title", "pruning", "parameters", "spent_each", "overspends", "note", "has_total"}
    for row in results["rows"]:
        assert set(row) <= known | {"released", "mean", "sd", "total"}
    page = (compared / "comparison.html").read_text()
    assert "sequences" not in page
    assert "Exact" not in page
    assert not exact_of(compared).exists()


def test_warning_in_red_and_overspending_said(compared_file, tmp_path, capsys):
    flags = ["--input", compared_file, "--systems", "dpsu_even", "--as_printed", "--reveal_exact_counts"]
    assert compare(tmp_path / "out", *flags) == 0
    said = capsys.readouterr()
    assert re.search(r"\x1b\[1;31mWARNING: NOT PRIVATE.*\x1b\[0m", said.err)
    assert "(20, 0.2)-DP, not (20, 0.1)-DP" in said.out
    assert "(20, 0.2)-DP, not (20, 0.1)-DP" in (tmp_path / "out" / "comparison.html").read_text()


def test_one_reading_and_one_grouping(compared_file, tmp_path, monkeypatch):
    """However many systems, sweeps and repeats: the file is opened once, and the graph groups users once."""
    reads, graphs = [], []
    read, make = InputFormat.read, program.make_pipeline

    def counted(self, extent):
        reads.append(extent)
        return read(self, extent)

    def kept(*arguments, **more):
        graphs.append(make(*arguments, **more))
        return graphs[-1]

    monkeypatch.setattr(InputFormat, "read", counted)
    monkeypatch.setattr(program, "make_pipeline", kept)
    flags = [
        "--systems",
        "dpne,dpsu_all,dpsu_single",
        "--repeats",
        2,
        "--reveal_exact_counts",
        *SWEEPS[:2],
        "--sweep_system",
        "dpne",
    ]
    assert compare(tmp_path / "out", "--input", compared_file, *flags) == 0
    assert len(reads) == 1
    names = [part.full_label for part in walk(graphs[0])]
    assert sum(name.endswith("/Parse") for name in names) == 1
    assert sum(name.endswith("GroupUsers/ByShard") for name in names) == 1
    assert sum(name.endswith("Level1/NoisyThreshold") for name in names) == 2 * 2


def walk(pipeline):
    def parts(node):
        yield node
        for part in node.parts:
            yield from parts(part)

    return list(parts(pipeline._root_transform()))


def test_the_same_key_gives_the_same_comparison(compared_file, tmp_path):
    """Cutoffs otherwise, run twice: the same bytes. Other noise for other keys."""
    key = tmp_path / "noise.key"
    write_key(key, b"0123456789abcdef" * 2)
    flags = ["--input", compared_file, "--systems", "dpne,dpsu_all,dpsu_single", "--noise_key", key]
    assert compare(tmp_path / "a", *flags) == 0
    assert compare(tmp_path / "b", *flags, "--shards", 3, "--direct_runner_bundle_repeat", 1) == 0
    assert (tmp_path / "a" / "comparison.json").read_bytes() == (tmp_path / "b" / "comparison.json").read_bytes()
    other = tmp_path / "other.key"
    write_key(other, b"fedcba9876543210" * 2)
    assert compare(tmp_path / "c", *flags[:-1], other) == 0
    assert (tmp_path / "a" / "comparison.json").read_bytes() != (tmp_path / "c" / "comparison.json").read_bytes()


def test_a_key_is_for_one_comparison(compared_file, tmp_path, capsys):
    flags = ["--input", compared_file, "--systems", "dpsu_all", "--noise_key", tmp_path / "noise.key"]
    assert compare(tmp_path / "a", *flags) == 0
    assert compare(tmp_path / "b", *flags, "--max_user_tokens", 20) == 1
    assert "was already used for this release label" in capsys.readouterr().err
    assert not (tmp_path / "b" / "comparison.json").exists()
    assert compare(tmp_path / "c", *flags, "--max_user_tokens", 20, "--release", "second") == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--anonymity", "10"], "anonymity must have --reveal_exact_counts"),
        (["--release", "x"], "release must be left out without a noise_key"),
        (["--systems", "dpsu_all", "--decay", "1.1", "--sweep", "decay=1,1.2"], "decay must be left out"),
        (["--anonymity", "0", "--reveal_exact_counts"], "anonymity must be a whole number"),
        (["--anonymity", "5,5", "--reveal_exact_counts"], "anonymity must be different"),
        (["--systems", "dpne,magic"], "systems must be one of"),
        (["--systems", "dpne,dpne"], "systems must be different"),
        (["--systems", ""], "systems must be different names"),
        (["--sweep", "epsilon"], "sweep must be NAME=VALUE"),
        (["--sweep", "phase=1,2"], "sweep must be NAME=VALUE"),
        (["--sweep", "epsilon=1,zwei"], "epsilon must be a number"),
        (["--sweep", "epsilon=1,1"], "sweep must have different values"),
        (["--sweep", "epsilon=1,2", "--sweep", "epsilon=3"], "sweep must vary each parameter once"),
        (["--sweep", "pruning=both,none"], "pruning must be one of"),
        (["--sweep", "pruning=both,single", "--sweep_system", "plus"], "sweep of pruning must be of dpne"),
        (["--sweep", "eta=0.1,0.2", "--sweep_system", "dpsu_all"], "sweep_system must be one of"),
        (["--sweep_system", "plus"], "sweep_system must be left out"),
        (["--systems", "dpsu_all", "--decay", "0.9"], "decay must be left out"),
        (["--systems", "dpsu_all", "--eta", "7"], "eta must be a number"),
        (["--repeats", "0"], "repeats must be a whole number"),
        (["--max_user_tokens", "none"], "max_user_tokens must be a whole number"),
        (["--max_contributions", "5,6,7"], "max_contributions must be one number"),
        (["--systems", "dpne", "--as_printed"], "as_printed must be left out"),
        (["--policy", "paper"], "flag must be one of dpngram's or Beam's"),
        (["--input", "nowhere-*.jsonl"], "input must match at least one file"),
        (["--sentences", "--input_format", "text"], "sentences must be off"),
    ],
)
def test_errors_are_one_line_before_anything_is_read(compared_file, tmp_path, capsys, flags, message):
    assert compare(tmp_path / "out", "--input", compared_file, *flags) == 2
    said = capsys.readouterr()
    assert said.err.startswith("dpngram compare: error: ")
    assert message in said.err
    assert said.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_output_must_be_empty(compared_file, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("keep")
    assert compare(tmp_path / "out", "--input", compared_file) == 2
    assert "output must be a new or empty directory" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_a_run_that_fails_leaves_no_result(tmp_path, capsys):
    (tmp_path / "in.jsonl").write_text('{"user": "a", "text": "x"}\n' + "broken\n" * 1000)
    assert compare(tmp_path / "out", "--input", tmp_path / "in.jsonl", "--systems", "dpne,dpsu_all") == 1
    assert "max_bad_fraction must be at least" in capsys.readouterr().err
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("text", ["", '{"user": "a", "text": ""}\n'])
def test_an_empty_input_is_compared_like_any_other(tmp_path, text):
    (tmp_path / "in.jsonl").write_text(text)
    assert compare(tmp_path / "out", "--input", tmp_path / "in.jsonl", "--reveal_exact_counts") == 0
    assert all(cell in ("0", "-") for row in table(tmp_path / "out" / "systems.csv")[1:] for cell in row[1:])
    assert table(exact_of(tmp_path / "out") / "dataset.csv")[1] == ["0", "0", "0.00", "0", "0"]


@pytest.mark.parametrize("flag", ["--noise_key", "--bad_records"])
def test_nothing_private_in_the_output(compared_file, tmp_path, capsys, flag):
    assert compare(tmp_path / "out", "--input", compared_file, flag, tmp_path / "out" / "deep") == 2
    assert f"{flag[2:]} must not be in the output" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_msnbc_is_the_papers_table(msnbc, tmp_path):
    """The four rows within 3 % by their totals, and the statistics; one key, so the same every time."""
    key = tmp_path / "noise.key"
    write_key(key, b"msnbc990928-seq." * 2)
    budget = ["--epsilon", "1", "--delta", "1e-7", "--max_n", "6", "--max_contributions", "10"]
    flags = ["--input", msnbc, "--input_format", "text", "--skip_header_lines", 7, "--tokenizer", "whitespace"]
    flags += ["--systems", "dpne,dpsu_all,dpsu_even,dpsu_single", "--as_printed", "--noise_key", key]
    flags += ["--reveal_exact_counts", "--anonymity", "100", "--max_user_tokens", 400]
    assert compare(tmp_path / "out", *flags, budget=budget) == 0
    paper = {
        "DPNE": [17, 254, 1273, 1954, 2221, 2020],
        "DPSU-all": [17, 249, 930, 1145, 1007, 768],
        "DPSU-even (as printed)": [17, 246, 899, 1107, 996, 766],
        "DPSU-single": [17, 260, 1483, 2180, 2210, 1819],
    }
    found = {row[0]: [float(cell) for cell in row[1:7]] for row in table(tmp_path / "out" / "systems.csv")[1:]}
    assert set(found) == set(paper)
    for title, printed in paper.items():
        assert sum(found[title]) == pytest.approx(sum(printed), rel=0.03), title
    apart = exact_of(tmp_path / "out")
    # The paper prints 357.84K unique sequences; its other figures fit 356,836.
    assert table(apart / "dataset.csv")[1] == ["989818", "989818", "18.02", "17840487", "356836"]
    assert table(apart / "sequences-per-user.csv")[1] == ["4.67", "3.67", "3.04", "2.57", "2.19", "1.88", "18.02"]


def test_progress_of_all_levels_together(compared_file, tmp_path, capsys):
    """Two systems and a sweep of the default policy: extractions take turns, so their levels are counted together."""
    flags = ["--input", compared_file, "--systems", "plus,dpsu_all", "--sweep", "epsilon=10,20"]
    assert compare(tmp_path / "out", *flags) == 0
    shown = [line.split(" s  ")[1].split("  ")[0] for line in capsys.readouterr().err.splitlines() if " s  " in line]
    assert [stage for stage in shown if "level" not in stage] == ["set unions", "writing"]
    begun = [stage for stage in shown if "level" in stage]
    assert begun[-1] == "6 of 6 levels"  # plus at 20 is a system and a value of the sweep, and is run once
    assert len(begun) >= 3
    assert compare(tmp_path / "quiet", *flags, "--quiet") == 0
    assert " s  " not in capsys.readouterr().err

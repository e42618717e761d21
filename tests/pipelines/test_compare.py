"""`dpngram compare` from files to tables, figures and, apart, exact counts."""

import collections
import csv
import html
import html.parser
import json
import math
import re

import pytest
from helpers.runs import small_corpus

from dpngram.pipelines import compare as program
from dpngram.pipelines.cli import main
from dpngram.pipelines.io.reading import InputFormat
from dpngram.pipelines.pages.figures import Series, line_chart
from dpngram.pipelines.research.systems import SYSTEMS, plan_comparison, round_up

BUDGET = ["--epsilon", "20", "--delta", "0.1", "--max_n", "3", "--max_contributions", "12", "--eta", "0.1"]
SWEEPS = ["--sweep", "epsilon=10,20", "--sweep", "pruning=both,single", "--sweep", "max_contributions=6,12"]
APART = "exact-counts-NOT-PRIVATE"


def compare(output, *flags, budget=BUDGET):
    try:
        return main(["compare", "--output", str(output), *budget, *map(str, flags)])
    except SystemExit as stop:
        return stop.code


def table(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


@pytest.fixture(scope="module")
def rows():
    return small_corpus(150)


@pytest.fixture(scope="module")
def corpus(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "in.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def compared(corpus, tmp_path_factory):
    """Every system, three sweeps, two repeats, and nothing exact."""
    output = tmp_path_factory.mktemp("compared") / "out"
    assert compare(output, "--input", corpus, "--repeats", 2, *SWEEPS) == 0
    return output


@pytest.fixture(scope="module")
def revealed(corpus, tmp_path_factory):
    output = tmp_path_factory.mktemp("revealed") / "out"
    flags = ["--reveal_exact_counts", "--anonymity", "5,40", "--max_user_tokens", 20, "--as_printed"]
    assert compare(output, "--input", corpus, *flags) == 0
    return output


def test_files_and_tables(compared):
    names = {path.name for path in compared.iterdir()}
    tables = {"systems", "sweep-epsilon", "sweep-pruning", "sweep-max_contributions"}
    csvs = {f"{name}{suffix}.csv" for name in tables for suffix in ("", "-sd")}
    assert names == {"comparison.json", "comparison.html", *csvs}
    results = json.loads((compared / "comparison.json").read_text())
    found = table(compared / "systems.csv")
    assert found[0] == ["system", "1", "2", "3", "total"]
    assert [row[0] for row in found[1:]] == list(SYSTEMS.values())
    for line, number in zip(found[1:], results["systems"], strict=True):
        row = results["rows"][number]
        assert len(row["released"]) == 2
        means = [sum(repeat[n] for repeat in row["released"]) / 2 for n in range(3)]
        assert [float(cell) for cell in line[1:4]] == means == row["mean"]
        if row["system"] == "dpsu_single":
            assert line[4] == "-"
        else:
            assert float(line[4]) == sum(means) == row["total"]["mean"]
        assert row["sd"][0] == pytest.approx(abs(row["released"][0][0] - row["released"][1][0]) / math.sqrt(2))
        assert min(means[:2]) > 0
    # Two repeats are two draws of noise.
    assert any(row["released"][0] != row["released"][1] for row in results["rows"])
    epsilon = table(compared / "sweep-epsilon.csv")
    assert [row[0] for row in epsilon] == ["epsilon", "10", "20"]
    assert float(epsilon[1][-1]) < float(epsilon[2][-1])


def test_what_is_the_same_is_run_once(compared):
    """The points epsilon = 20, both-side pruning and Delta = 12 are the system DPNE; single-side is one, too."""
    results = json.loads((compared / "comparison.json").read_text())
    assert len(results["rows"]) == len(SYSTEMS) + 2
    dpne, one_side = results["systems"][:2]
    points = {sweep["parameter"]: sweep["rows"] for sweep in results["sweeps"]}
    assert points["epsilon"][1] == points["pruning"][0] == points["max_contributions"][1] == dpne
    assert points["pruning"][1] == one_side


def test_systems_that_agree_keep_their_names():
    """With T = 1 the three baselines are one mechanism; each is still a row, and the sum counts all of them."""
    one = plan_comparison(epsilon=1, delta=1e-7, max_n=1, max_contributions=10)
    assert [one.rows[row].title for row in one.systems] == list(SYSTEMS.values())
    assert one.epsilon_spent == len(SYSTEMS)


def test_budgets_are_rounded_up():
    assert round_up(1.004e-5, 3) == "1.01e-05"
    assert round_up(1.8e-4, 3) == "0.00018"
    assert round_up(66.0, 6) == "66"
    assert round_up(sum([0.1] * 10), 6) == "1"


def test_the_sum_of_all_budgets_is_told(compared):
    results = json.loads((compared / "comparison.json").read_text())
    # Systems: 5 with one plan and DPSU-single with 3; the sweeps add one of epsilon 10 and one of 20. Twice each.
    assert results["spent"]["epsilon"] == pytest.approx(2 * (5 * 20 + 3 * 20 + 10 + 20))
    assert results["spent"]["delta"] == 1.0  # 2 * 10 * 0.1, and a probability ends at 1
    assert "20 releases are made from the same users" in results["spent"]["words"]
    page = (compared / "comparison.html").read_text()
    assert results["spent"]["words"] in page
    assert "public and research data" in page
    comparison = plan_comparison(epsilon=1, delta=1e-7, max_n=6, max_contributions=10, systems="dpne,dpsu_even")
    assert comparison.delta_spent == pytest.approx(2e-7)
    printed = plan_comparison(
        epsilon=1, delta=1e-7, max_n=6, max_contributions=10, systems="dpne,dpsu_even", as_printed=True
    )
    assert printed.delta_spent == pytest.approx(4.5e-7)
    assert "(1, 3.5e-07)-DP, not (1, 1e-07)-DP" in printed.rows[1].note
    assert not comparison.rows[1].note


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
    assert not (compared / APART).exists()


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.attributes = collections.Counter(), []

    def handle_starttag(self, tag, attributes):
        self.tags[tag] += 1
        self.attributes += attributes


def test_one_page_without_the_network(compared, revealed):
    for path, charts in (
        (compared / "comparison.html", 2 + 3),
        (revealed / APART / "comparison-NOT-PRIVATE.html", 2 + len(SYSTEMS)),
    ):
        text = path.read_text()
        page = Page()
        page.feed(text)
        assert not {"script", "img", "link", "iframe", "object"} & set(page.tags)
        assert "://" not in text
        assert "@import" not in text
        assert "url(" not in text
        assert page.tags["figure"] == page.tags["figcaption"] == charts
        assert text.count(">length n<") == charts
        assert "prefers-color-scheme:dark" in text
        assert "@media print" in text


def test_exact_counts_are_apart_and_right(rows, revealed):
    apart = revealed / APART
    assert {path.name for path in revealed.iterdir()} == {
        "comparison.json",
        "comparison.html",
        "systems.csv",
        APART,
    }
    assert {path.name for path in apart.iterdir()} == {
        "exact-counts-NOT-PRIVATE.json",
        "comparison-NOT-PRIVATE.html",
        "README-NOT-PRIVATE.txt",
        "dataset.csv",
        "sequences-per-user.csv",
        "k-anonymity.csv",
        "spurious.csv",
    }
    exact = json.loads((apart / "exact-counts-NOT-PRIVATE.json").read_text())
    assert exact["warning"].startswith("NOT PRIVATE")
    assert html.escape(exact["warning"]) in (apart / "comparison-NOT-PRIVATE.html").read_text()
    users = collections.defaultdict(list)
    for row in rows:
        users[row["user"]].append(row["text"].split())
    kept = {user: posts for user, posts in users.items() if sum(map(len, posts)) <= 20}
    assert 0 < len(kept) < len(users)
    sequences, holders = [], []
    for n in (1, 2, 3):
        found = {
            user: [tuple(post[i : i + n]) for post in posts for i in range(len(post) - n + 1)]
            for user, posts in kept.items()
        }
        sequences.append(sum(map(len, found.values())))
        holders.append(collections.Counter(gram for mine in found.values() for gram in set(mine)))
    unique = sum(map(len, holders))
    assert table(apart / "dataset.csv")[1] == [
        str(len(users)),
        str(len(rows)),
        f"{sum(sequences) / len(kept):.2f}",
        str(sum(sequences)),
        str(unique),
    ]
    assert table(apart / "sequences-per-user.csv")[1] == [
        *(f"{count / len(kept):.2f}" for count in sequences),
        f"{sum(sequences) / len(kept):.2f}",
    ]
    held = {k: [sum(users >= k for users in counts.values()) for counts in holders] for k in (5, 40)}
    anonymity = table(apart / "k-anonymity.csv")
    assert [list(map(int, row[2:])) for row in anonymity[1:3]] == [held[5], held[40]]
    fractions = {(row[0], int(row[1])): [float(cell or 1) for cell in row[2:]] for row in anonymity[3:]}
    assert set(fractions) == {(title, k) for title in titles(revealed) for k in (5, 40)}
    assert all(0 <= part <= 1 for parts in fractions.values() for part in parts)
    assert all(fractions[title, 40][1] >= fractions[title, 5][1] for title in titles(revealed))
    # What DPNE recovers and what is spurious are what it released.
    results = json.loads((revealed / "comparison.json").read_text())
    for system in exact["anonymity"]["systems"]:
        released = results["rows"][system["row"]]["released"][0]
        for n in range(3):
            assert 0 <= system["spurious"][0][n] <= released[n]
            assert system["recovered"][0][0][n] <= released[n] - system["spurious"][0][n]
        if system["title"].startswith("DPSU"):
            assert sum(system["spurious"][0]) == 0


def titles(output):
    results = json.loads((output / "comparison.json").read_text())
    return [results["rows"][row]["title"] for row in results["systems"]]


def test_warning_in_red_and_overspending_said(corpus, tmp_path, capsys):
    flags = ["--input", corpus, "--systems", "dpsu_even", "--as_printed", "--reveal_exact_counts"]
    assert compare(tmp_path / "out", *flags) == 0
    said = capsys.readouterr()
    assert re.search(r"\x1b\[1;31mWARNING: NOT PRIVATE.*\x1b\[0m", said.err)
    assert "(20, 0.2)-DP, not (20, 0.1)-DP" in said.out
    assert "(20, 0.2)-DP, not (20, 0.1)-DP" in (tmp_path / "out" / "comparison.html").read_text()


def test_one_reading_and_one_grouping(corpus, tmp_path, monkeypatch):
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
    flags = ["--systems", "dpne,dpsu_all,dpsu_single", "--repeats", 2, "--reveal_exact_counts", *SWEEPS[:2]]
    assert compare(tmp_path / "out", "--input", corpus, *flags) == 0
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


def test_the_same_key_gives_the_same_comparison(corpus, tmp_path):
    """Cutoffs otherwise, run twice: the same bytes. Other noise for other keys."""
    key = tmp_path / "noise.key"
    key.write_bytes(b"0123456789abcdef" * 2)
    flags = ["--input", corpus, "--systems", "dpne,dpsu_all,dpsu_single", "--noise_key", key]
    assert compare(tmp_path / "a", *flags) == 0
    assert compare(tmp_path / "b", *flags, "--shards", 3, "--direct_runner_bundle_repeat", 1) == 0
    assert (tmp_path / "a" / "comparison.json").read_bytes() == (tmp_path / "b" / "comparison.json").read_bytes()
    other = tmp_path / "other.key"
    other.write_bytes(b"fedcba9876543210" * 2)
    assert compare(tmp_path / "c", *flags[:-1], other) == 0
    assert (tmp_path / "a" / "comparison.json").read_bytes() != (tmp_path / "c" / "comparison.json").read_bytes()


def test_a_key_is_for_one_comparison(corpus, tmp_path, capsys):
    flags = ["--input", corpus, "--systems", "dpsu_all", "--noise_key", tmp_path / "noise.key"]
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
def test_errors_are_one_line_before_anything_is_read(corpus, tmp_path, capsys, flags, message):
    assert compare(tmp_path / "out", "--input", corpus, *flags) == 2
    said = capsys.readouterr()
    assert said.err.startswith("dpngram compare: error: ")
    assert message in said.err
    assert said.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_output_must_be_empty(corpus, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("keep")
    assert compare(tmp_path / "out", "--input", corpus) == 2
    assert "output must be a new or empty directory" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_a_run_that_fails_leaves_no_result(tmp_path, capsys):
    (tmp_path / "in.jsonl").write_text('{"user": "a", "text": "x"}\nbroken\n')
    assert compare(tmp_path / "out", "--input", tmp_path / "in.jsonl", "--systems", "dpne,dpsu_all") == 1
    assert "max_bad_fraction must be at least" in capsys.readouterr().err
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("text", ["", '{"user": "a", "text": ""}\n'])
def test_an_empty_input_is_compared_like_any_other(tmp_path, text):
    (tmp_path / "in.jsonl").write_text(text)
    assert compare(tmp_path / "out", "--input", tmp_path / "in.jsonl", "--reveal_exact_counts") == 0
    assert all(cell in ("0", "-") for row in table(tmp_path / "out" / "systems.csv")[1:] for cell in row[1:])
    assert table(tmp_path / "out" / APART / "dataset.csv")[1] == ["0", "0", "0.00", "0", "0"]


@pytest.mark.parametrize("flag", ["--noise_key", "--bad_records"])
def test_nothing_private_in_the_output(corpus, tmp_path, capsys, flag):
    assert compare(tmp_path / "out", "--input", corpus, flag, tmp_path / "out" / "deep") == 2
    assert f"{flag[2:]} must not be in the output" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_charts_show_what_they_are_given():
    chart = line_chart(
        "a <b>", "x & y", "count", ["1", "2", "3"], [Series("up", [1, None, 9], [0, 0, 3]), Series("q", [0, 0, 0])]
    )
    assert "a &lt;b&gt;" in chart
    assert "x &amp; y" in chart
    assert "up, 3: 9 ± 3" in chart
    assert chart.count("<title>") == 2 + 3
    assert chart.count("whisker") == 1
    assert ">15<" not in chart  # the axis ends above 12
    ordinates = [float(y) for y in re.findall(r"cy='([\d.]+)' r='4.2' class='mark c0'><title>up", chart)]
    assert ordinates[0] > ordinates[1]
    empty = line_chart("none", "x", "y", ["1"], [Series("a", [0])], log=True)
    assert "<title>" not in empty


def test_msnbc_is_the_papers_table(msnbc, tmp_path):
    """The four rows within 3 % by their totals, and the statistics; one key, so the same every time."""
    key = tmp_path / "noise.key"
    key.write_bytes(b"msnbc990928-seq." * 2)
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
    apart = tmp_path / "out" / APART
    # The paper prints 357.84K unique sequences; its other figures fit 356,836.
    assert table(apart / "dataset.csv")[1] == ["989818", "989818", "18.02", "17840487", "356836"]
    assert table(apart / "sequences-per-user.csv")[1] == ["4.67", "3.67", "3.04", "2.57", "2.19", "1.88", "18.02"]

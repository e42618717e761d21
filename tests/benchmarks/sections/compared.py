"""Sections of `dpngram compare`: the paper's tables on MSNBC, its figures on English posts, and exact counts."""

import json
import statistics
import subprocess
import sys

from benchmarks.benchmark import TEXT, unpack_msnbc
from benchmarks.pages import Table
from benchmarks.sections.settings import NONE, Section, number

MSNBC = ["--epsilon", "1", "--delta", "1e-7", "--max_n", "6", "--max_contributions", "10"]
ENGLISH = ["--epsilon", "4", "--delta", "1e-7", "--max_n", "9", "--max_contributions", "100", "--sweep_system", "dpne"]
SWEEPS = {
    "max_contributions": ("10,30,100,300", "Δ"),
    "epsilon": ("1,2,4,8", "ε"),
    "eta": ("0.001,0.01,0.1", "η"),
    "decay": ("0.8,0.9,1.0,1.1", "c"),
}
# Kim et al. 2021, MSNBC: by length, and the total; that of DPSU-single is a sum of six releases.
PUBLISHED = {
    "dpne": [17, 254, 1273, 1954, 2221, 2020],
    "dpsu_all": [17, 249, 930, 1145, 1007, 768],
    "dpsu_even": [17, 246, 899, 1107, 996, 766],
    "dpsu_single": [17, 260, 1483, 2180, 2210, 1819],
}
PUBLISHED_COUNTS = ["Kim et al. 2021", "989,818", "989,818", "17.84M", "357.84K", "18.02"]
PUBLISHED_COUNTS += ["4.67", "3.67", "3.04", "2.57", "2.19", "1.88"]
K = 100


def compare(work, name, *flags):
    """comparison.json, and the exact counts if they were asked for."""
    output = work / name
    words = [sys.executable, "-m", "dpngram.pipelines.cli", "compare", "--quiet", "--output", output, *flags]
    subprocess.run([str(word) for word in words], check=True, capture_output=True)
    made = json.loads((output / "comparison.json").read_text(encoding="utf-8"))
    kept = {"rows": made["rows"], "systems": made["systems"], "sweeps": made["sweeps"]}
    for path in work.glob(f"{name}.exact*/exact*.json"):
        exact = json.loads(path.read_text(encoding="utf-8"))
        kept |= {"dataset": exact["dataset"], "anonymity": exact["anonymity"]}
    return kept


def make_msnbc(settings):
    flags = ["--input", unpack_msnbc(settings.data, settings.work), *TEXT, "--max_user_tokens", "400", *MSNBC]
    flags += ["--repeats", settings.keys]
    exact = ["--as_printed", "--reveal_exact_counts"]
    return {
        "all": settings.part("all", lambda: compare(settings.work, "all", *flags, *exact)),
        "even": settings.part("even", lambda: compare(settings.work, "even", *flags, "--systems", "dpsu_even")),
    }


def make_english(settings):
    sweeps = [word for name, (values, _) in SWEEPS.items() for word in ("--sweep", f"{name}={values}")]
    flags = ["--input", settings.data / "reddit_posts.jsonl.gz", *ENGLISH, *sweeps, "--repeats", 2]
    return {"all": settings.part("all", lambda: compare(settings.work, "english", *flags, "--reveal_exact_counts"))}


def total_of(row):
    """The sum of all lengths; in brackets where they are releases that each spend the whole budget."""
    sums = [sum(released) for released in row["released"]]
    if not row["has_total"]:
        return f"({number(statistics.fmean(sums), 1)})"
    return f"{number(statistics.fmean(sums), 1)} ± {number(statistics.stdev(sums), 1)}"


def cells_of(row, title=None):
    return [title or row["title"], *(number(mean, 1) for mean in row["mean"]), total_of(row)]


def beside_the_paper(figures):
    rows = []
    sound = figures["even"]["rows"][0]
    for row in figures["all"]["rows"]:
        paper = PUBLISHED.get(row["system"])
        mean = statistics.fmean(map(sum, row["released"]))
        if paper:
            total = number(sum(paper)) if row["has_total"] else f"({number(sum(paper))})"
            rows.append([f"{row['title'].partition(' (')[0]}, Kim et al. 2021", *map(number, paper), total, ""])
        rows.append([*cells_of(row), f"{100 * mean / sum(paper):.1f} %" if paper else ""])
        if row["system"] == "dpsu_even":
            rows.append([*cells_of(sound, "DPSU-even, sound"), ""])
    return Table(["", *map(str, range(1, 7)), "total", "of the paper's"], rows)


def summary(figures):
    """The README's: totals."""
    rows = []
    for row in figures["all"]["rows"]:
        paper = PUBLISHED.get(row["system"])
        rows.append([row["title"], number(sum(paper)) if paper else "", total_of(row)])
    rows.append(["DPSU-even, sound", "", total_of(figures["even"]["rows"][0])])
    return Table(["", "Kim et al. 2021", "`dpngram compare`"], rows)


def dataset(made, *rows):
    found = made["dataset"]
    counts = [found["users"], found["posts"], sum(found["sequences"]), sum(found["unique_sequences"])]
    each = found["sequences_per_user"]
    cells = ["`dpngram compare`", *map(number, counts), f"{sum(each):.2f}", *(f"{mean:.2f}" for mean in each)]
    lengths = [f"of length {n + 1}" for n in range(len(each))]
    return Table(["", "users", "posts", "sequences", "different", "for each user", *lengths], [*rows, cells])


def anonymity(made):
    """Of the grams that at least K users have, the share that is released; mean of the runs."""
    found = made["anonymity"]
    at = found["k"].index(K)
    held = found["held"][at]
    rows = [["such grams", *map(number, held)]]
    for system in found["systems"]:
        means = [statistics.fmean(counts) for counts in zip(*system["recovered"][at], strict=True)]
        cells = [f"{100 * mean / count:.1f} %" if count else NONE for mean, count in zip(means, held, strict=True)]
        rows.append([system["title"], *cells])
    return Table([f"K = {K}", *map(str, range(1, len(held) + 1))], rows)


def msnbc_tables(figures):
    made = figures["all"]
    return {
        "systems": beside_the_paper(figures),
        "summary": summary(figures),
        "dataset": dataset(made, PUBLISHED_COUNTS),
        "anonymity": anonymity(made),
    }


def english_tables(figures):
    made = figures["all"]
    rows = [cells_of(made["rows"][row]) for row in made["systems"]]
    for sweep in made["sweeps"]:
        symbol = SWEEPS[sweep["parameter"]][1]
        points = zip(sweep["values"], sweep["rows"], strict=True)
        rows += [cells_of(made["rows"][row], f"DPNE, {symbol} = {value:g}") for value, row in points]
    lengths = len(made["rows"][0]["mean"])
    table = Table(["", *map(str, range(1, lengths + 1)), "total"], rows)
    return {"systems": table, "dataset": dataset(made), "anonymity": anonymity(made)}


SECTIONS = {
    "compare": Section("the paper's tables on MSNBC, five runs of six systems", 3, make_msnbc, msnbc_tables),
    "compare_english": Section("the paper's figures on English posts; 12.5 GB", 6, make_english, english_tables),
}

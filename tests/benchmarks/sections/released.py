"""Sections that count what is released: both policies on the data sets of docs/results.md and on corpora of our own.

A run is given by its key, so the same code makes the same figures on every machine. The corpora are known: a released
gram that no user has can be counted.
"""

import statistics

from benchmarks import utility
from benchmarks.pages import Table
from benchmarks.sections.settings import NONE, TIMES, Section, number, percent

from dpngram.accounting import plan_extraction

EPSILONS = (0.5, 1, 2, 4, 8)
UNTUNED = {"delta": 1e-6, "max_n": 6, "max_contributions": 50}
PUBLISHED = [17, 254, 1273, 1954, 2221, 2020]  # Kim et al. 2021, MSNBC, one run


def runs(corpus, keys, part, name, vocabulary=(), **budget):
    """What each key releases: numbers by length, spurious ones by length."""
    plan = plan_extraction(**budget)
    made = [part(f"{name}, key {key}", lambda key=key: corpus.run(plan, key, vocabulary)) for key in range(keys)]
    return {"released": [released for released, _ in made], "spurious": [found for _, found in made]}


def both(corpus, keys, part, name, **budget):
    return {
        policy: runs(corpus, keys, part, f"{name}, {policy}", policy=policy, **budget) for policy in ("paper", "plus")
    }


def totals(made):
    return [sum(released) for released in made["released"]]


def means(rows):
    return [statistics.fmean(column) for column in zip(*rows, strict=True)]


def deviation(values):
    return statistics.stdev(values) if len(values) > 1 else 0.0


def with_deviation(made, digits=1):
    values = totals(made)
    return f"{statistics.fmean(values):,.{digits}f} ± {deviation(values):,.{digits}f}"


def shares(made):
    """Spurious grams of all keys together, and of the worst key."""
    lost = [sum(found) for found in made["spurious"]]
    return sum(lost) / max(sum(totals(made)), 1), max(a / max(b, 1) for a, b in zip(lost, totals(made), strict=True))


def ratio(made):
    return statistics.fmean(totals(made["plus"])) / statistics.fmean(totals(made["paper"]))


def spurious_words(made):
    share, worst = shares(made)
    return f"{percent(share)}, at most {percent(worst)}"


# --- both policies on the two data sets ---


def make_utility(settings):
    english = utility.jsonl(settings.data / "reddit_posts.jsonl.gz", "gzip")
    return {
        "msnbc": both(utility.msnbc(settings.data), settings.keys, settings.part, "msnbc", **utility.MSNBC),
        "english": both(english, settings.keys, settings.part, "english", **utility.ENGLISH),
    }


def lengths(made):
    """One row a policy: means by length, the total, spurious grams."""
    count = len(made["paper"]["released"][0])
    rows = []
    for policy in ("paper", "plus"):
        more = f" ({ratio(made):.2f} {TIMES})" if policy == "plus" else ""
        by_length = [number(mean, 1) for mean in means(made[policy]["released"])]
        rows.append([f"`{policy}`", *by_length, with_deviation(made[policy]) + more, spurious_words(made[policy])])
    return Table(["policy", *(str(n + 1) for n in range(count)), "total", "spurious"], rows)


def spurious_lengths(figures):
    """The share of spurious grams by length, all keys together."""
    rows = []
    for name, corpus in (("MSNBC", "msnbc"), ("English posts", "english")):
        for policy in ("paper", "plus"):
            made = figures[corpus][policy]
            lost, all_ = (list(map(sum, zip(*made[side], strict=True))) for side in ("spurious", "released"))
            cells = [percent(a / b) if b else NONE for a, b in zip(lost, all_, strict=True)]
            rows.append([name, f"`{policy}`", *cells, *[""] * (9 - len(cells))])
    return Table(["", "policy", *map(str, range(1, 10))], rows)


def utility_summary(figures):
    """The README's."""
    rows = [["MSNBC, 989,818 users, ε = 1, δ = 10⁻⁷, T = 6, Δ = 10", "Kim et al. 2021", f"{sum(PUBLISHED):,}", "", ""]]
    english = "282,564 English posts, ε = 4, δ = 10⁻⁷, T = 9, Δ = 100"
    for corpus, names in (("msnbc", ("", "")), ("english", (english, ""))):
        made = figures[corpus]
        for policy, name in zip(("paper", "plus"), names, strict=True):
            more = f"{ratio(made):.2f} {TIMES}" if policy == "plus" else ""
            share = percent(shares(made[policy])[0])
            rows.append([name, f"`{policy}`", with_deviation(made[policy], 0), more, share])
    return Table(["", "policy", "released", "", "spurious"], rows)


def utility_tables(figures):
    return {
        "msnbc": lengths(figures["msnbc"]),
        "english": lengths(figures["english"]),
        "spurious": spurious_lengths(figures),
        "summary": utility_summary(figures),
    }


# --- `paper` beside the paper, and with its cap on English posts ---


def make_paper(settings):
    english = utility.jsonl(settings.data / "reddit_posts.jsonl.gz", "gzip")
    budget = {**utility.ENGLISH, "max_contributions": 300}
    keys, part = settings.keys, settings.part
    return {
        "msnbc": runs(utility.msnbc(settings.data), 2 * keys, part, "msnbc", policy="paper", **utility.MSNBC),
        "english": runs(english, keys, part, "english", policy="paper", **budget),
    }


def paper_tables(figures):
    made = figures["msnbc"]
    spreads = [*map(deviation, zip(*made["released"], strict=True)), deviation(totals(made))]
    average = [*means(made["released"]), statistics.fmean(totals(made))]
    keys = len(made["released"])
    rows = [
        ["Kim et al. 2021", *(number(count) for count in [*PUBLISHED, sum(PUBLISHED)])],
        [f"dpngram, mean of {keys} keys", *(number(mean, 1) for mean in average)],
        ["standard deviation", *(number(value, 1) for value in spreads)],
    ]
    english = figures["english"]
    row = [*(number(mean, 1) for mean in means(english["released"])), with_deviation(english)]
    return {
        "msnbc": Table(["", *map(str, range(1, 7)), "total"], rows),
        "english": Table([*map(str, range(1, 10)), "total"], [row]),
    }


# --- corpora that nobody tuned on ---


def untuned(name, corpus):
    def make(settings):
        documents, rows = corpus(), []
        for epsilon in EPSILONS:
            made = both(documents, settings.keys, settings.part, f"{epsilon}", epsilon=epsilon, **UNTUNED)
            rows.append({"corpus": name, "epsilon": epsilon, **made})
        return rows

    return make


def untuned_tables(figures):
    head = ["corpus", "ε", "`paper`", "spurious", "`plus`", "spurious", "over `paper`"]
    rows = []
    for row in figures:
        paper, plus = row["paper"], row["plus"]
        cells = [with_deviation(paper), percent(shares(paper)[0]), with_deviation(plus), spurious_words(plus)]
        rows.append([row["corpus"], f"{row['epsilon']:g}", *cells, f"{ratio(row):.2f} {TIMES}"])
    return {"": Table(head, rows)}


# --- parts of plus, and a public vocabulary ---


def make_ablation(settings):
    english = utility.jsonl(settings.data / "reddit_posts.jsonl.gz", "gzip")
    made = {}
    for name, corpus, budget in (
        ("MSNBC", utility.msnbc(settings.data), utility.MSNBC),
        ("English posts", english, utility.ENGLISH),
    ):
        made[name] = {}
        for part, without in utility.PARTS.items():
            with without():
                made[name][part] = runs(
                    corpus, settings.keys, settings.part, f"{name}, {part}", policy="plus", **budget
                )
    return made


def ablation_tables(figures):
    rows = []
    for part in utility.PARTS:
        row = [part]
        for made in figures.values():
            whole, mine = (statistics.fmean(totals(made[name])) for name in ("everything", part))
            row.append(with_deviation(made[part]) if part == "everything" else f"{mine / whole:.2f} {TIMES}")
        rows.append(row)
    return {"": Table(["", *figures], rows)}


UNTUNED_CORPORA = {
    "untuned_python": ("Python files", utility.code),
    "untuned_many": ("planted, many", lambda: utility.synthetic("--users", 40_000, "--phrases", 1500, "--seed", 21)),
    "untuned_few": (
        "planted, few",
        lambda: utility.synthetic("--users", 20_000, "--tokens_per_user", 100, "--zipf", 0.9, "--seed", 22),
    ),
    "untuned_long": (
        "planted, long texts",
        lambda: utility.synthetic("--users", 8_000, "--tokens_per_user", 250, "--zipf", 1.2, "--seed", 23),
    ),
    "untuned_short": (
        "planted, short texts",
        lambda: utility.synthetic("--users", 60_000, "--tokens_per_user", 10, "--phrases", 300, "--seed", 24),
    ),
    "untuned_rare": (
        "planted, rare",
        lambda: utility.synthetic("--users", 50_000, "--phrases", 200, "--phrase_users", "50,80", "--seed", 25),
    ),
}

SECTIONS = {
    "utility": Section("both policies on MSNBC and English posts", 4, make_utility, utility_tables),
    "paper": Section("policy paper beside the paper's figures, and with a cap of 300", 2, make_paper, paper_tables),
    **{
        name: Section(f"both policies on {title}, five values of epsilon", 5, untuned(title, corpus), untuned_tables)
        for name, (title, corpus) in UNTUNED_CORPORA.items()
    },
    "ablation": Section("parts of plus switched off, one by one", 8, make_ablation, ablation_tables),
}

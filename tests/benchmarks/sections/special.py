"""Sections on corpora that are hard for plus, and on what a public vocabulary gains; as in released.py."""

import statistics

from benchmarks import utility
from benchmarks.pages import Table
from benchmarks.sections.released import runs, shares, totals, with_deviation
from benchmarks.sections.settings import TIMES, Section, number, percent

from dpngram.transforms.vocabulary import PublicVocabulary

PAIRS = {"epsilon": 4, "delta": 1e-7, "max_n": 2, "max_contributions": 100}
PHRASES = {**PAIRS, "max_n": 6}
CORPORA = {
    "300 words, 100 common bigrams": (lambda: utility.het(300), PAIRS),
    "1,000 words, 100 common bigrams": (lambda: utility.het(1000), PAIRS),
    "1,000 words, 3,000 common bigrams": (lambda: utility.het(1000, common=3000), PAIRS),
    "the same with 6,000 rare bigrams": (lambda: utility.het(1000, common=3000, rare=6000), PAIRS),
    "1,000 common bigrams, 15 of 3,000 rare ones each": (
        lambda: utility.het(1000, common=1000, rare=3000, each=15),
        PAIRS,
    ),
    "phrases, most of the text": (lambda: utility.planted(60_000, 50_000, 8000, 1.5, (3, 9), 40, 7), PHRASES),
    "phrases, 5,000 users": (lambda: utility.planted(5_000, 20_000, 500, 0.3, (3, 7), 80, 2), PHRASES),
}


def make_common(settings):
    made = {}
    for name, (corpus, budget) in CORPORA.items():
        documents = corpus()
        made[name] = {
            policy: runs(documents, settings.keys, settings.part, f"{name}, {policy}", policy=policy, **budget)
            for policy in ("paper", "plus")
        }
    return made


def long_ones(made):
    """Those of four words and longer, mean of the keys."""
    return statistics.fmean(sum(released[3:]) for released in made["released"])


def common_tables(figures):
    rows = []
    for name, made in figures.items():
        times = statistics.fmean(totals(made["plus"])) / statistics.fmean(totals(made["paper"]))
        row = [name]
        for policy in ("paper", "plus"):
            row += [with_deviation(made[policy]), percent(shares(made[policy])[0])]
        rows.append([*row, f"{times:.2f} {TIMES}"])
        if len(made["plus"]["released"][0]) > 3:
            paper, plus = long_ones(made["paper"]), long_ones(made["plus"])
            cells = [number(paper, 1), "", number(plus, 1), "", f"{plus / paper:.2f} {TIMES}"]
            rows.append(["of them four words and longer", *cells])
    return {"": Table(["corpus", "`paper`", "spurious", "`plus`", "spurious", "over `paper`"], rows)}


def make_vocabulary(settings):
    english = utility.jsonl(settings.data / "reddit_posts.jsonl.gz", "gzip")
    words = PublicVocabulary.of(str(settings.words), english.tokenizer).words
    categories = [str(number_) for number_ in range(1, 18)]
    made = []
    for name, corpus, listed, budget in (
        ("MSNBC", utility.msnbc(settings.data), categories, utility.MSNBC),
        (f"English posts, {len(words):,} words", english, words, utility.ENGLISH),
    ):
        keys, part = settings.keys, settings.part
        without = runs(corpus, keys, part, f"{name}, without", **budget)
        with_list = runs(corpus, keys, part, f"{name}, with", listed, public_vocabulary=True, **budget)
        made.append({"corpus": name, "without": without, "with": with_list})
    return made


def longer(made):
    """What is released of two words or more: the words of a list are not released again."""
    return {side: [counts[1:] for counts in made[side]] for side in ("released", "spurious")}


def vocabulary_tables(figures):
    rows = []
    for row in figures:
        sides = [longer(row[side]) for side in ("without", "with")]
        cells = [f"{with_deviation(made, 0)}, {percent(shares(made)[0])} spurious" for made in sides]
        before, after = (statistics.fmean(totals(made)) for made in sides)
        rows.append([row["corpus"], *cells, f"{after / before:.2f} {TIMES}"])
    return {"": Table(["", "without", "with the list", ""], rows)}


SECTIONS = {
    "common": Section("corpora that are hard for plus", 4, make_common, common_tables),
    "vocabulary": Section("with a public vocabulary", 5, make_vocabulary, vocabulary_tables),
}

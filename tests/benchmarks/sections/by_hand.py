"""Figures that no section makes by itself: too long, or on engines that need more than this checkout.

Their records have the tables as the pages had them, and the command. Whoever runs the command again writes table, date
and commit into the record.
"""

from benchmarks.sections.settings import Section

TITLES = {
    "demo": "some n-grams of dpngram demo",
    "compare_costs": "what larger comparisons cost",
    "scaling_advice": "shards, workers and memory that we suggest",
    "large_levels": "memory of each step for a level of 20 million grams",
    "on_disk": "local runs on disk",
    "engines": "seconds on each engine",
}
SECTIONS = {name: Section(title) for name, title in TITLES.items()}

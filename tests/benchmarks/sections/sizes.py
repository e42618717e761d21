"""Sections about sizes: what tests/benchmarks/blocks.py measures."""

import subprocess
import sys

from benchmarks import blocks
from benchmarks.pages import Table
from benchmarks.sections.settings import Section, number

from dpngram.accounting import plan_extraction

PLAN = {"epsilon": 1, "delta": 1e-7, "max_n": 6, "max_contributions": 10}
SYNTHETIC = ((20_000, 16), (100_000, 16), (100_000, 256), (500_000, 32))
GROWTH = (20_000, 100_000, 250_000, 500_000, 1_000_000, 2_000_000)
BLOCKS = (1_000, 20_000, 40_000, 80_000, 160_000)  # users
KINDS = ("posts", "users", "candidates", "cells", "histogram", "level")


def sums(sizes):
    """Encoded bytes by kind; candidates and cells of all levels, and the largest level."""
    users = sizes["users"]
    made = {"users": users.rows, "tokens": users.tokens - sizes["posts"].rows}
    for kind in KINDS:
        found = [size.encoded for name, size in sizes.items() if name.split(" ")[0] == kind]
        made[f"{kind} bytes"] = max(found) if kind == "level" else sum(found)
    return made


def make_sizes(settings):
    def synthetic(users, shards):
        return lambda: sums(blocks.measure(blocks.synthetic(users), blocks.PLAN, shards=shards))

    rows = []
    for users, shards in SYNTHETIC:
        made = settings.part(f"synthetic, {users}, {shards}", synthetic(users, shards))
        rows.append({"corpus": "synthetic", "shards": shards, **made})
    made = settings.part("english", lambda: sums(blocks.measure(blocks.english(settings.data), blocks.PLAN, shards=32)))
    rows.append({"corpus": "English posts", "shards": 32, **made})
    plan = plan_extraction(**PLAN)
    lines = {"tokenizer": "whitespace", "user_per_document": True}
    made = settings.part("msnbc", lambda: sums(blocks.measure(blocks.msnbc(settings.data), plan, **lines)))
    rows.append({"corpus": "MSNBC", "shards": 16, **made})
    return rows


def sizes_tables(figures):
    rows = []
    for row in figures:
        cells = []
        for kind in KINDS:
            value = row[f"{kind} bytes"] / row["users"]  # bytes a user are MB a million users
            cells.append(number(value, 1 if value < 10 else 0))
        rows.append(
            [row["corpus"], number(row["users"]), number(row["tokens"] / row["users"]), str(row["shards"]), *cells]
        )
    head = ["", "users", "tokens a user", "shards", "posts", "users' blocks", "candidates, all levels"]
    return {"": Table([*head, "cells, all rounds", "histograms", "largest level"], rows)}


def make_block_memory(settings):
    def measure(users):
        command = [sys.executable, blocks.__file__, "--block", str(users)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return [int(word) for word in done.stdout.split()]

    return [settings.part(f"{users}", lambda users=users: measure(users)) for users in BLOCKS]


def block_memory_tables(figures):
    head = ["tokens in the block", *(f"{tokens / 1e6:.1f} million" for tokens, _ in figures)]
    (first, least), (last, most) = figures[0], figures[-1]
    per_token = f"{(most - least) / (last - first):.0f}"
    return {
        "": Table([*head, "bytes a token"], [["peak", *(f"{peak / 1e6:.0f} MB" for _, peak in figures), per_token]])
    }


def make_largest_level(settings):
    def largest(users):
        sizes = blocks.measure(blocks.synthetic(users, seed=1), blocks.PLAN, shards=max(16, users // 16_000))
        return max(size.rows for kind, size in sizes.items() if kind.startswith("table"))

    return {str(users): settings.part(f"{users}", lambda users=users: largest(users)) for users in GROWTH}


def largest_level_tables(figures):
    rows = [
        ["grams in the largest level", *(number(grams) for grams in figures.values())],
        ["for each user", *(f"{grams / int(users):.2f}" for users, grams in figures.items())],
    ]
    return {"": Table(["users", *(number(int(users)) for users in figures)], rows)}


SECTIONS = {
    "sizes": Section("encoded sizes of blocks", 5, make_sizes, sizes_tables),
    "block_memory": Section("memory of one block", 3, make_block_memory, block_memory_tables),
    "largest_level": Section("how the largest level grows", 20, make_largest_level, largest_level_tables),
}

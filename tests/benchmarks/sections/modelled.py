"""Sections that the model of docs/scaling.md decides: nothing is measured, so they are made in no time."""

import dataclasses

from benchmarks.pages import Table
from benchmarks.scaling_model import Workload, estimate, largest_level, settling_memory
from benchmarks.sections.settings import Section, number

TEXT = 5.6  # bytes of a token and the space after it
SIZES = ((1e6, None), (1e8, None), (1e9, None), (1e9, 1024))
NAMES = {1e6: "10⁶ users", 1e8: "10⁸", 1e9: "10⁹"}
GRAMS = (1e6, 1e7, 5e7)


def gigabytes(size):
    if size >= 1e12:
        return f"{size / 1e12:.1f} TB"
    return f"{size / 1e9:.{0 if size >= 9.5e9 else 1 if size >= 9.5e7 else 2}f} GB"


def million(count):
    return f"{count / 1e6:.{0 if count >= 9.5e6 else 1}f} million"


def make_model(_settings):
    rows = []
    for users, shards in SIZES:
        work = Workload(users=users)
        made = dataclasses.asdict(estimate(work, shards))
        made["users_bytes"] = made.pop("users")
        rows.append({"users": users, "given": shards, "tokens": work.tokens, **made})
    return rows


def model_tables(figures):
    kinds = {
        "text": lambda row: gigabytes(row["tokens"] * TEXT),
        "shards": lambda row: number(row["shards"]),
        "posts, shuffled": lambda row: gigabytes(row["posts"]),
        "users' blocks, kept": lambda row: gigabytes(row["users_bytes"]),
        "candidates, all levels": lambda row: gigabytes(row["candidates"]),
        "at most, if nothing were pruned": lambda row: gigabytes(row["candidates_bound"]),
        "cells, shuffled, before lifting": lambda row: gigabytes(row["cells"]),
        "tokens in a block": lambda row: million(row["tokens"] / row["shards"]),
        "memory for a block": lambda row: gigabytes(row["block_memory"]),
    }
    head = [NAMES[row["users"]] + (f", `--shards {row['given']}`" if row["given"] else "") for row in figures]
    return {"": Table(["50 tokens a user", *head], [[name, *map(cell, figures)] for name, cell in kinds.items()])}


def make_levels(_settings):
    rows = []
    for users in (1e8, 1e9):
        work = estimate(Workload(users=users))
        grams = largest_level(users)
        memory = [settling_memory(count) for count in grams]
        rows.append(
            {"users": users, "grams": grams, "settling": memory, "worker": list(map(work.worker_memory, grams))}
        )
    work = estimate(Workload(users=1e9))
    return {"users": rows, "memory": [[grams, work.worker_memory(grams)] for grams in GRAMS]}


def between(values, show):
    low, high = map(show, values)
    return f"{low.partition(' ')[0]} to {high}"


def level_tables(figures):
    rows = figures["users"]
    kinds = {
        "grams in the largest level": lambda row: between(row["grams"], million),
        "for each user": lambda row: between(
            [count / row["users"] for count in row["grams"]], lambda share: f"{share:.2f}"
        ),
        "the worker that makes the level from its parts": lambda row: between(row["settling"], gigabytes),
        "worker process, one block at a time": lambda row: between(row["worker"], gigabytes),
    }
    largest = Table(
        ["users, by the model", *(NAMES[row["users"]] for row in rows)],
        [[name, *map(cell, rows)] for name, cell in kinds.items()],
    )
    memory = figures["memory"]
    row = ["worker process, 10⁹ users, one block at a time", *(gigabytes(size) for _, size in memory)]
    return {
        "largest": largest,
        "memory": Table(["grams in the largest level", *(million(grams) for grams, _ in memory)], [row]),
    }


SECTIONS = {
    "scaling_model": Section("what 1e6 to 1e9 users need, by the model", 0.1, make_model, model_tables),
    "level_model": Section("the largest level and its memory, by the model", 0.1, make_levels, level_tables),
}

"""`dpngram extract` in this process, on small corpora."""

import json
from pathlib import Path

import numpy as np

from dpngram.pipelines.cli import main
from dpngram.pipelines.io import output_directory

BUDGET = ["--epsilon", "20", "--delta", "0.1", "--max_n", "3", "--max_contributions", "12", "--eta", "0.1"]
WORDS = [f"w{i}" for i in range(12)]
GOOD = [{"user": f"u{i}", "text": f"w{i % 5} w{i % 3}"} for i in range(300)]


def extract(output, *flags):
    """The exit status."""
    try:
        return main(["extract", "--quiet", "--output", str(output), *BUDGET, *map(str, flags)])
    except SystemExit as stop:
        return stop.code


def files(output):
    """The release: everything in the output."""
    return {path.name: path.read_bytes() for path in sorted(output.iterdir())}


def notes_of(output):
    """The operator's notes, which are beside the output."""
    return json.loads(Path(f"{output}.operator.json").read_text())


def checkpoints_of(output):
    """The checkpoints of a run, which are beside the output; sorted by level and round."""
    return sorted(Path(f"{output}.checkpoints").glob("checkpoint-*"))


def keep_checkpoints(monkeypatch):
    """Runs leave their checkpoints, as a run does that dies after its last round."""
    monkeypatch.setattr(output_directory, "drop_checkpoints", lambda _: None)


def small_corpus(users, words=WORDS):
    """Users with one to three posts of up to eleven words, the first words the most common."""
    random = np.random.default_rng(0)
    chances = 1 / np.arange(1, len(words) + 1)
    return [
        {
            "user": f"user{user}",
            "text": " ".join(random.choice(words, random.integers(1, 12), p=chances / chances.sum())),
        }
        for user in range(users)
        for _ in range(random.integers(1, 4))
    ]


def jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)

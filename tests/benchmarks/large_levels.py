"""The memory of each step for one large level, which is made by array functions: docs/scaling.md has the table.

    python tests/benchmarks/large_levels.py                    # 20 million grams, policy paper
    python tests/benchmarks/large_levels.py --policy plus      # 20 million active cells, most of them released

S_1 has `--words` tokens, and S_2 the grams; under `plus` the survey has them as active cells. Each step runs in a
separate process, which reads what the step before has left on disk as a worker reads it: pieces of at most 32 MB. The
peak is VmHWM, from the step's first to its last byte; what numpy, Arrow and Beam take by themselves is subtracted for
the bytes of a gram.
"""

import argparse
import dataclasses
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dpngram.accounting import plan_extraction
from dpngram.pipelines.io.writing import _Writer
from dpngram.pipelines.report import write_report
from dpngram.transforms.add_spurious_grams import complete_level
from dpngram.transforms.blocks.columns import Block
from dpngram.transforms.blocks.grams import EMPTY_TABLE
from dpngram.transforms.blocks.levels import EMPTY_LEVEL, Level, pack_keys
from dpngram.transforms.blocks.parts import ReleasedPart, name_zero_cells
from dpngram.transforms.blocks.pieces import cut_block, join_pieces
from dpngram.transforms.decode_grams import _COLUMNS, decode_level
from dpngram.transforms.policies import make_rounds
from dpngram.transforms.policies.budgets import COUNT_UNIT
from dpngram.transforms.randomness.prf import Prf
from dpngram.transforms.testing import key_source
from dpngram.transforms.validity_filter import _COLUMNS as PRUNING

SHARDS = 64  # of the histogram
SOURCE = key_source(b"m" * 32)


def memory(field: str) -> int:
    """Bytes of this process: VmHWM, VmRSS."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) << 10
    raise OSError(f"{field} is not in /proc/self/status")


def plan_of(policy: str) -> Any:
    return plan_extraction(epsilon=8, delta=1e-9, max_n=3, max_contributions=100, policy=policy)


def store(directory: Path, name: str, block: Any) -> None:
    for number, piece in enumerate(cut_block(block)):
        (directory / f"{name}-{number}").write_bytes(piece.to_bytes())


def stored(directory: Path, name: str) -> Iterator[Any]:
    """The pieces one by one, as a side input gives them."""
    for path in directory.glob(f"{name}-*"):
        yield Block.from_bytes(path.read_bytes())


def load(directory: Path, name: str, columns: Any = None) -> Any:
    return join_pieces(stored(directory, name), columns)


def make_words(directory: Path, policy: str, words: int, grams: int) -> None:
    """S_1: words of eight letters, with weights as Zipf has them."""
    letters = np.arange(words)[:, None] // 26 ** np.arange(7, -1, -1)[None, :] % 26 + ord("a")
    data, offsets = letters.astype(np.uint8).reshape(-1), np.arange(words + 1) * 8
    digests = Prf(b"d" * 32).strings(offsets, data)
    weight = (1e12 / np.random.default_rng(1).permutation(np.arange(1, words + 1))).astype(np.int64)
    level = Level.first(offsets, data, digests, weight, 2.0**-14, 1.0)
    store(directory, "S1", make_rounds(plan_of(policy))[0][-1].finish(level, EMPTY_LEVEL))


def make_part(directory: Path, policy: str, words: int, grams: int, number: int) -> None:
    """The cells of one shard of level 2 that reached their floor."""
    random = np.random.default_rng(number)
    share = grams // SHARDS
    prefix = np.floor(words * random.random(share) ** 2).astype(np.int64)
    last = np.floor(words * random.random(share) ** 2).astype(np.int64) // SHARDS * SHARDS + number
    keys = np.unique(pack_keys(prefix, np.minimum(last, words - 1)))
    level = load(directory, "S1")
    policies = make_rounds(plan_of(policy))[1]
    cutoffs = policies[0].cutoffs(level, EMPTY_LEVEL)
    zero, _ = cutoffs.zero_cells(draws(level, 0)("zero cells"))
    floor = np.where((cutoffs.floor > -(1 << 60)) & (cutoffs.floor < 1 << 60), cutoffs.floor, 0)
    noisy = floor[cutoffs.strata.of(keys)] + (random.exponential(2.0, len(keys)) * 2**15).astype(np.int64)
    part = ReleasedPart(
        keys=keys,
        noisy=noisy,
        taken=np.zeros(0, np.uint64),
        zero_cells_name=name_zero_cells(zero),
        past=level.name,
        present=np.zeros(len(cutoffs.size), np.int64) if cutoffs.tallied else np.zeros(0, np.int64),
        below=np.zeros((len(cutoffs.size), 4), np.int64) if cutoffs.tallied else np.zeros((0, 0), np.int64),
    )
    (directory / f"part-{number}").write_bytes(part.to_bytes())


def make_parts(directory: Path, policy: str, words: int, grams: int) -> None:
    for number in range(SHARDS):
        make_part(directory, policy, words, grams, number)


def draws(level: Any, number: int) -> Any:
    return SOURCE.draws(2, number, b"global", SOURCE.binding(b"f" * 16), level.name)


def settle(directory: Path, policy: str, words: int, grams: int) -> int:
    """AddSpuriousGrams: the parts of all shards to S_2 (`paper`), or to the survey (`plus`)."""
    level = load(directory, "S1")
    parts: Any = [Block.from_bytes(path.read_bytes()) for path in directory.glob("part-*")]
    found = complete_level(parts, level, EMPTY_LEVEL, make_rounds(plan_of(policy))[1][0], draws(level, 0))
    del parts
    store(directory, "S2" if policy == "paper" else "survey", found)
    return len(found)


def look_again(directory: Path, policy: str, words: int, grams: int) -> int:
    """Not measured: the parts of the second look. Each shard has the cells it had in the survey, with other noise."""
    level, survey = load(directory, "S1"), load(directory, "survey")
    cutoffs = make_rounds(plan_of(policy))[1][1].cutoffs(level, survey)
    zero, _ = cutoffs.zero_cells(draws(survey, 1)("zero cells"))
    for path in directory.glob("part-*"):
        part: Any = Block.from_bytes(path.read_bytes())
        noisy = np.append(survey.noisy, 0)[survey.find(part.keys)]
        noisy += np.random.default_rng(len(noisy)).normal(0.0, 2.0**14, len(noisy)).astype(np.int64)
        none = np.zeros((0, 0), np.int64)
        second = {"noisy": noisy, "zero_cells_name": name_zero_cells(zero), "past": survey.name}
        part = dataclasses.replace(part, **second, present=none.reshape(-1), below=none)
        path.write_bytes(part.to_bytes())
    return len(survey)


def second(directory: Path, policy: str, words: int, grams: int) -> int:
    """AddSpuriousGrams after the second look, under `plus`: every active cell gets a rank and a weight."""
    level, survey = load(directory, "S1"), load(directory, "survey")
    parts: Any = [Block.from_bytes(path.read_bytes()) for path in directory.glob("part-*")]
    found = complete_level(parts, level, survey, make_rounds(plan_of(policy))[1][1], draws(survey, 1))
    del parts
    store(directory, "ranked", found)
    return len(found)


def count(directory: Path, policy: str, words: int, grams: int) -> int:
    """The end of the count, under `plus`: S_2 in pieces, from the ranking and the exact count."""
    level, ranked = load(directory, "S1"), load(directory, "ranked")
    found = make_rounds(plan_of(policy))[1][2].release(grams * COUNT_UNIT, level, ranked, draws(ranked, 2)("count"))
    store(directory, "S2", found)
    return len(found)


def cutoffs(directory: Path, policy: str, words: int, grams: int) -> int:
    """NoisyThreshold at level 3: strata of V_3, and its zero cells."""
    level = load(directory, "S2")
    found = make_rounds(plan_of(policy))[2][0].cutoffs(level, EMPTY_LEVEL)
    found.zero_cells(draws(level, 0)("zero cells"))
    return len(level)


def prune(directory: Path, policy: str, words: int, grams: int) -> int:
    """ValidityFilter at level 3: what it holds while it works on users."""
    return len(load(directory, "S2", PRUNING))


def encode(directory: Path, policy: str, words: int, grams: int) -> int:
    """A level into pieces."""
    level = load(directory, "S2")
    return sum(len(piece.to_bytes()) and piece.rows * piece.is_first for piece in cut_block(level))


def write(directory: Path, policy: str, words: int, grams: int) -> int:
    """DecodeGrams and WriteRelease, in one process."""

    def tables(number: int) -> Iterator[Any]:
        before = [load(directory, f"S{n}", _COLUMNS).only_keys() for n in range(1, number)]
        return decode_level(load(directory, f"S{number}", _COLUMNS), before)

    (directory / "out").mkdir()
    writer = _Writer(str(directory / "out"), plan_of(policy), {}, "jsonl")
    writer.write("", {"n1": tables(1), "n2": tables(2), "n3": [EMPTY_TABLE]}, {})
    return sum(1 for _ in (directory / "out" / "ngrams-02.jsonl").open("rb"))


def report(directory: Path, policy: str, words: int, grams: int) -> int:
    """report.html"""
    write_report(str(directory / "out"))
    return len((directory / "out" / "report.html").read_bytes())


STEPS = {step.__name__: step for step in (settle, look_again, second, count, encode, cutoffs, prune, write, report)}
_PLUS = ("look_again", "second", "count")


def run_step(name: str, directory: Path, arguments: tuple[str, int, int]) -> None:
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins again
    start = time.process_time()
    rows = STEPS[name](directory, *arguments)
    peak = memory("VmHWM")
    each = (peak - before) / arguments[2]
    if name != "look_again":
        print(
            f"| {name} | {peak / 1e9:.2f} GB | {each:.0f} | {time.process_time() - start:.0f} s | {rows:,} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grams", type=int, default=20_000_000)
    parser.add_argument("--words", type=int, default=200_000)
    parser.add_argument("--policy", choices=["paper", "plus"], default="paper")
    parser.add_argument("--step", choices=list(STEPS))
    parser.add_argument("--directory", type=Path)
    flags = parser.parse_args()
    arguments = flags.policy, flags.words, flags.grams
    if flags.step is not None:
        run_step(flags.step, flags.directory, arguments)
        return
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        make_words(directory, *arguments)
        make_parts(directory, *arguments)
        print("| step | peak | bytes a gram | CPU | rows |\n|---|---|---|---|---|", flush=True)
        steps = [name for name in STEPS if flags.policy == "plus" or name not in _PLUS]
        given = [str(word) for pair in vars(flags).items() if pair[1] is not None for word in (f"--{pair[0]}", pair[1])]
        given += ["--directory", name]
        for step in steps:
            subprocess.run([sys.executable, __file__, *given, "--step", step], check=True)


if __name__ == "__main__":
    main()

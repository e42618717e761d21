"""What an extraction costs, as ratios measured in one run. Run by hand:

    python tests/benchmarks/benchmark.py msnbc english policies_msnbc compare scaling workers [--repeats 3] [--data DIR]

`msnbc`, `english`, `policies_…` and `compare` read the data sets named in docs/results.md; `scaling` and `workers` make
their own. All but `policies_…` run policy paper. Each measurement has one process, imports included. The
commands of a group take turns, and the median of the turns counts.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from helpers.costs import measure

MSNBC = ["--epsilon", "1", "--delta", "1e-7", "--max_n", "6", "--max_contributions", "10"]
PAPER_MSNBC = [*MSNBC, "--policy", "paper"]
PAPER_ENGLISH = ["--epsilon=4", "--delta=1e-7", "--max_n=9", "--max_contributions=300", "--policy=paper"]
TEXT = ["--input_format", "text", "--tokenizer", "whitespace", "--skip_header_lines", "7"]
ONE = ["--direct_num_workers=1"]


def take_turn(commands):
    """{name: Cost} of these commands, one after another."""
    costs = {}
    for name, command in commands.items():
        with tempfile.TemporaryDirectory() as directory:
            costs[name] = measure([str(word).replace("{out}", f"{directory}/out") for word in command])
    return costs


def median_of(turns, name, field):
    return statistics.median(getattr(turn[name], field) for turn in turns)


def ratio_of(turns, name, base, field="cpu"):
    """The median of the turns: two costs are compared within one turn, so a slow minute falls on both."""
    return statistics.median(getattr(turn[name], field) / getattr(turn[base], field) for turn in turns)


def extract(*flags, program="extract"):
    return [sys.executable, "-m", "dpngram.pipelines.cli", program, "--output", "{out}", *flags]


def plain(*arguments):
    return [sys.executable, __file__, "--plain", *arguments]


def unpack_msnbc(data, work):
    path = work / "msnbc.seq"
    if not path.exists():
        with zipfile.ZipFile(data / "msnbc990928.zip") as archive:
            path.write_bytes(archive.read("msnbc990928.seq"))
    return path


def msnbc(data, work):
    path = unpack_msnbc(data, work)
    return {
        "MSNBC, array functions in a plain loop": plain("loop", path),
        "MSNBC, `dpngram extract`": extract("--input", path, *TEXT, *PAPER_MSNBC, *ONE),
    }


def english(data, _work):
    path = data / "reddit_posts.jsonl.gz"
    return {
        "English posts, reading and tokenising only": plain("tokenize", path),
        "English posts, Δ = 300, `dpngram extract`": extract("--input", path, *PAPER_ENGLISH, *ONE),
    }


def policies_msnbc(data, work):
    flags = ["--input", unpack_msnbc(data, work), *TEXT, *MSNBC, *ONE]
    return {f"MSNBC, policy `{policy}`": extract(*flags, "--policy", policy) for policy in ("paper", "plus")}


def policies_english(data, _work):
    flags = ["--epsilon=4", "--delta=1e-7", "--max_n=9", "--max_contributions=100", *ONE]
    flags += ["--input", data / "reddit_posts.jsonl.gz"]
    return {
        f"English posts, Δ = 100, policy `{policy}`": extract(*flags, "--policy", policy)
        for policy in ("paper", "plus")
    }


def systems(data, work):
    flags = ["--input", unpack_msnbc(data, work), *TEXT, *ONE]
    rows = ["--systems", "dpne,dpsu_all,dpsu_even,dpsu_single"]
    return {
        "MSNBC, one `dpngram extract --policy paper`": extract(*flags, *PAPER_MSNBC),
        "MSNBC, four rows, one repeat, in one `dpngram compare`": extract(*flags, *MSNBC, *rows, program="compare"),
    }


def scaling(_data, work):
    return {
        f"synthetic, {users:,} users × 50 tokens": extract("--input", corpus(work, users), *PAPER_ENGLISH, *ONE)  # noqa: RUF001
        for users in (250_000, 500_000, 1_000_000, 2_000_000)
    }


def workers(_data, work):
    flags = ["--input", corpus(work, 2_000_000), *PAPER_ENGLISH]
    modes = {
        "one worker process": ["--direct_running_mode=multi_processing", "--direct_num_workers=1"],
        "two worker processes": ["--direct_running_mode=multi_processing", "--direct_num_workers=2"],
        "one thread, no worker process": ONE,
        "a thread per core, what the command picks": [],
    }
    return {f"2,000,000 users, {name}": extract(*flags, *mode) for name, mode in modes.items()}


# What is compared: the commands, each with the first, and by which cost.
GROUPS = {
    "msnbc": (msnbc, "cpu"),
    "english": (english, "cpu"),
    "policies_msnbc": (policies_msnbc, "cpu"),
    "policies_english": (policies_english, "cpu"),
    "compare": (systems, "wall"),
    "scaling": (scaling, "cpu"),
    "workers": (workers, "wall"),
}


def show(turns, field):
    base = next(iter(turns[0]))
    for name in turns[0]:
        cpu, wall, memory = (median_of(turns, name, cost) for cost in ("cpu", "wall", "memory"))
        print(
            f"{name:<58} CPU {cpu:7.2f} s   wall {wall:7.2f} s   memory {memory / 1e3:5.2f} GB   "
            f"{field} over the first {ratio_of(turns, name, base, field):.2f}",
            flush=True,
        )


def corpus(work, users):
    path = work / f"synthetic-{users}.jsonl"
    if not path.exists():
        command = [sys.executable, "-m", "dpngram.pipelines.cli", "synth", "--users", str(users), "--output", str(path)]
        subprocess.run(command, check=True)
    return path


def run_plain(kind, path):
    """The measured baselines: the same functions on arrays, without Beam's runner."""
    from dpngram.accounting import plan_extraction
    from dpngram.pipelines.io.lines import ByteRange, read_pieces
    from dpngram.pipelines.io.parsing import Fields, parse_jsonl, parse_text
    from dpngram.transforms.blocks.columns import binary_array
    from dpngram.transforms.testing import extract_in_memory, key_source
    from dpngram.transforms.tokenizers import make_tokenizer

    if kind == "tokenize":
        words = make_tokenizer("words")
        for piece in read_pieces(ByteRange(path, 0, -1, "gzip"), 0):
            for block in parse_jsonl(piece.data, Fields(), piece.offset).blocks:
                words.tokenize(binary_array(block.offsets, block.data))
        return
    size = os.path.getsize(path)
    header = sum(map(len, Path(path).read_bytes()[:1000].splitlines(keepends=True)[:7]))
    ranges = [ByteRange(path, at, min(at + (8 << 20), size), "uncompressed") for at in range(header, size, 8 << 20)]
    extract_in_memory(
        (
            block
            for extent in ranges
            for piece in read_pieces(extent, 0)
            for block in parse_text(piece.data, piece.offset).blocks
        ),
        plan_extraction(epsilon=1, delta=1e-7, max_n=6, max_contributions=10, policy="paper"),
        key_source(bytes(32)),
        make_tokenizer("whitespace"),
        user_per_document=True,
        shards=16,
        histogram_shards=2,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", choices=[*GROUPS, []], help="what to measure (default: all)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[3] / "shared" / "data")
    parser.add_argument("--plain", nargs=2, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.plain:
        run_plain(*flags.plain)
        return
    with tempfile.TemporaryDirectory() as work:
        for name in flags.which or GROUPS:
            make, field = GROUPS[name]
            commands = make(flags.data, Path(work))
            show([take_turn(commands) for _ in range(flags.repeats)], field)


if __name__ == "__main__":
    main()

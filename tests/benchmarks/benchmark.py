"""What an extraction costs, as ratios measured in one run. Run by hand:

    python tests/benchmarks/benchmark.py msnbc english policies compare scaling workers [--repeats 3] [--data DIR]

`msnbc`, `english`, `policies` and `compare` read the data sets named in docs/results.md; `scaling` and `workers` make
their own. All but `policies` run policy paper.
Each measurement is a process of its own, imports included; the smallest of the repeats counts.
"""

import argparse
import math
import os
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


def compare(repeats, *commands):
    """For each command the cheapest of some runs.

    The commands take turns, so that a slow minute of the machine does not fall on one of them alone.
    """
    best = [None] * len(commands)
    for _ in range(repeats):
        for number, command in enumerate(commands):
            with tempfile.TemporaryDirectory() as directory:
                cost = measure([str(word).replace("{out}", f"{directory}/out") for word in command])
            best[number] = cost if best[number] is None else min(best[number], cost)  # by CPU
    return best


def extract(*flags, program="extract"):
    return [sys.executable, "-m", "dpngram.pipelines.cli", program, "--output", "{out}", *flags]


def plain(*arguments):
    return [sys.executable, __file__, "--plain", *arguments]


def show(name, result, ratio=None):
    text = f"{name:<58} CPU {result.cpu:7.2f} s   wall {result.wall:7.2f} s   memory {result.memory / 1e3:5.2f} GB"
    print(text + ("" if ratio is None else f"   ratio {ratio:.2f}"), flush=True)


def unpack_msnbc(data, work):
    path = work / "msnbc.seq"
    with zipfile.ZipFile(data / "msnbc990928.zip") as archive:
        path.write_bytes(archive.read("msnbc990928.seq"))
    return path


def bench_msnbc(data, repeats, work):
    path = unpack_msnbc(data, work)
    loop, whole = compare(repeats, plain("loop", path), extract("--input", path, *TEXT, *PAPER_MSNBC, *ONE))
    show("MSNBC, array functions in a plain loop", loop)
    show("MSNBC, dpngram extract (CPU over the loop: at most 1.5)", whole, whole.cpu / loop.cpu)


def bench_english(data, repeats, _work):
    path = data / "reddit_posts.jsonl.gz"
    only, whole = compare(repeats, plain("tokenize", path), extract("--input", path, *PAPER_ENGLISH, *ONE))
    show("English, reading and tokenising only", only)
    show("English, dpngram extract (CPU over that: at most 4)", whole, whole.cpu / only.cpu)


def bench_policies(data, repeats, work):
    path = unpack_msnbc(data, work)
    english = ["--epsilon=4", "--delta=1e-7", "--max_n=9", "--max_contributions=100"]
    for name, flags in {
        "MSNBC": ["--input", path, *TEXT, *MSNBC],
        "English": ["--input", data / "reddit_posts.jsonl.gz", *english],
    }.items():
        paper, plus = compare(repeats, *(extract(*flags, *ONE, "--policy", policy) for policy in ("paper", "plus")))
        show(f"{name}, policy paper", paper)
        show(f"{name}, policy plus (CPU over paper: at most 2.5)", plus, plus.cpu / paper.cpu)


def bench_compare(data, repeats, work):
    flags = ["--input", unpack_msnbc(data, work), *TEXT, *ONE]
    rows = ["--systems", "dpne,dpsu_all,dpsu_even,dpsu_single"]
    one, four = compare(repeats, extract(*flags, *PAPER_MSNBC), extract(*flags, *MSNBC, *rows, program="compare"))
    show("MSNBC, dpngram extract", one)
    show("MSNBC, dpngram compare, four rows (wall: at most 6)", four, four.wall / one.wall)


def bench_scaling(_data, repeats, work):
    costs = []
    for users in (250_000, 500_000, 1_000_000, 2_000_000):
        path = corpus(work, users)
        (result,) = compare(repeats, extract("--input", path, *PAPER_ENGLISH, *ONE))
        exponent = math.log2(result.cpu / costs[-1]) if costs else None
        costs.append(result.cpu)
        show(f"synthetic, {users:,} users x 50 tokens (exponent, at most 1.1)", result, exponent)
    print(f"exponent over the whole range: {math.log(costs[-1] / costs[0]) / math.log(8):.2f}")


def bench_workers(_data, repeats, work):
    path = corpus(work, 2_000_000)
    flags = ["--input", path, *PAPER_ENGLISH]
    modes = {
        "one worker process": ["--direct_running_mode=multi_processing", "--direct_num_workers=1"],
        "two worker processes": ["--direct_running_mode=multi_processing", "--direct_num_workers=2"],
        "one thread in this process": ONE,
        "what dpngram picks by itself": [],
    }
    results = compare(repeats, *(extract(*flags, *mode) for mode in modes.values()))
    for name, result in zip(modes, results, strict=True):
        show(f"2,000,000 users, {name} (speed-up in wall time)", result, results[0].wall / result.wall)


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
    benches = {
        "msnbc": bench_msnbc,
        "english": bench_english,
        "policies": bench_policies,
        "compare": bench_compare,
        "scaling": bench_scaling,
        "workers": bench_workers,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", choices=[*benches, []], help="what to measure (default: all)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[3] / "shared" / "data")
    parser.add_argument("--plain", nargs=2, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.plain:
        run_plain(*flags.plain)
        return
    with tempfile.TemporaryDirectory() as work:
        for name in flags.which or benches:
            benches[name](flags.data, flags.repeats, Path(work))


if __name__ == "__main__":
    main()

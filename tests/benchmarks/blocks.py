"""How large blocks are: every kind of element between the steps, in the bytes that its coder makes. Run by hand:

    python tests/benchmarks/blocks.py synthetic english msnbc memory levels [--data ../shared/data]

docs/scaling.md has the tables and `dpngram.pipelines.launch.scaling` the constants, which test_scaling.py checks. Sizes
are taken from a run in memory (`extract_in_memory`), whose functions are those of the graph.
"""

import argparse
import collections
import contextlib
import dataclasses
import re
import subprocess
import sys
from pathlib import Path

from dpngram.accounting import plan_extraction
from dpngram.pipelines.io.lines import RANGE_BYTES, ByteRange, read_pieces
from dpngram.pipelines.io.parsing import Fields, parse_jsonl, parse_text
from dpngram.pipelines.synth import Corpus
from dpngram.transforms import testing
from dpngram.transforms.blocks.documents import DocumentBlock
from dpngram.transforms.blocks.grams import GramTable
from dpngram.transforms.blocks.levels import Level
from dpngram.transforms.testing import extract_in_memory, key_source
from dpngram.transforms.tokenizers import make_tokenizer

# (function of the loop, what it makes, how to get the blocks from what it returns)
STEPS = (
    ("split_posts", "posts", lambda made: [block for _, block in made]),
    ("group_users", "users", lambda made: [made]),
    ("filter_valid", "candidates", lambda made: [made]),
    ("split_cells", "cells", lambda made: [block for _, block in made]),
    ("merge_cells", "histogram", lambda made: [made]),
    ("threshold_cells", "parts", lambda made: [made]),
    ("complete_level", "level", lambda made: [made]),
    ("decode_level", "table", lambda made: made),
)


@dataclasses.dataclass
class Size:
    """What all blocks of one kind have together."""

    blocks: int = 0
    encoded: int = 0
    largest: int = 0
    rows: int = 0  # posts, users, cells or grams
    tokens: int = 0  # tokens, positions or postings, where there are any
    words: int = 0  # entries of dictionaries

    def add(self, block):
        size = len(block.to_bytes())
        self.blocks += 1
        self.encoded += size
        self.largest = max(self.largest, size)
        self.rows += len(block.keys if hasattr(block, "keys") else block)
        self.tokens += len(getattr(block, "ids", getattr(block, "positions", ())))
        self.words += len(getattr(block, "token_lengths", getattr(block, "digests", ())))


@contextlib.contextmanager
def recorder():
    """{kind: Size} of everything that `extract_in_memory` makes meanwhile; candidates and levels by their length."""
    sizes = collections.defaultdict(Size)
    kept = {name: getattr(testing, name) for name, _, _ in STEPS}
    try:
        for name, kind, unpack in STEPS:
            setattr(testing, name, _recorded(kept[name], kind, unpack, sizes))
        yield sizes
    finally:
        for name, function in kept.items():
            setattr(testing, name, function)


def _recorded(function, kind, unpack, sizes):
    def call(*args, **more):
        made = function(*args, **more)
        made = list(made) if kind in ("posts", "cells") else made
        for block in unpack(made):
            name = kind
            if kind == "candidates":
                name = f"candidates {args[2].n + 1}"
            elif kind in ("level", "table"):
                name = f"{kind} {block.n}" if isinstance(block, (Level, GramTable)) else "survey"
            sizes[name].add(block)
        return made

    return call


def measure(documents, plan, *, tokenizer="words", shards=16, user_per_document=False):
    """{kind: Size} of one extraction."""
    with recorder() as sizes:
        extract_in_memory(
            documents,
            plan,
            key_source(bytes(32)),
            make_tokenizer(tokenizer),
            user_per_document=user_per_document,
            shards=shards,
            histogram_shards=-(-shards // 8),
        )
    return dict(sizes)


def synthetic(users, seed=0):
    """Documents of `dpngram synth`, in blocks of about as much text as a reader gives."""
    step = RANGE_BYTES // 150
    counts = tuple(count for count in (20, 100, 500) if count <= users)
    for names, texts in Corpus(users=users, phrase_users=counts, seed=seed).blocks():
        for start in range(0, len(texts), step):
            yield DocumentBlock.from_texts(names[start : start + step], texts[start : start + step])


def english(data):
    for piece in read_pieces(ByteRange(str(data / "reddit_posts.jsonl.gz"), 0, -1, "gzip"), 0):
        yield from parse_jsonl(piece.data, Fields(), piece.offset).blocks


def msnbc(data):
    import zipfile

    with zipfile.ZipFile(data / "msnbc990928.zip") as archive:
        lines = archive.read("msnbc990928.seq").split(b"\n", 7)[7]
    for start in range(0, len(lines), RANGE_BYTES):  # cut at line ends
        begin = lines.rfind(b"\n", 0, start) + 1
        end = lines.rfind(b"\n", 0, start + RANGE_BYTES) + 1 if start + RANGE_BYTES < len(lines) else len(lines)
        yield from parse_text(lines[begin:end], 0).blocks


def show(title, sizes):
    users = sizes["users"].rows
    print(f"\n{title}: {users:,} users, {sizes['users'].tokens - sizes['posts'].rows:,} tokens")
    print(
        f"{'':<14}{'blocks':>8}{'mean kB':>9}{'largest kB':>12}{'MB per million users':>22}{'rows':>12}{'tokens':>13}"
    )
    for kind, size in sizes.items():
        mean, million = size.encoded / size.blocks / 1e3, size.encoded / users
        print(
            f"{kind:<14}{size.blocks:>8,}{mean:>9,.1f}{size.largest / 1e3:>12,.1f}{million:>22,.1f}"
            f"{size.rows:>12,}{size.tokens:>13,}"
        )


def bench_synthetic(_data):
    for users, shards in ((20_000, 16), (100_000, 16), (100_000, 256), (500_000, 32)):
        show(f"synthetic, {shards} shards", measure(synthetic(users), PLAN, shards=shards))


def bench_english(data):
    show("English, 32 shards", measure(english(data), PLAN, shards=32))


def bench_msnbc(data):
    plan = plan_extraction(epsilon=1, delta=1e-7, max_n=6, max_contributions=10)
    show("MSNBC, 16 shards", measure(msnbc(data), plan, tokenizer="whitespace", user_per_document=True))


def bench_levels(_data):
    """How the largest level grows with the users."""
    print("\ngrams released by length, policy plus")
    for users in (20_000, 100_000, 250_000, 500_000, 1_000_000, 2_000_000):
        sizes = measure(synthetic(users, seed=1), PLAN, shards=max(16, users // 16_000))
        rows = [size.rows for kind, size in sizes.items() if kind.startswith("table")]
        largest = f"{max(rows):,} = {max(rows) / users:.3f} a user"
        print(f"{users:>10,} users, the largest {largest}; {rows}", flush=True)


def bench_memory(_data):
    """Peak memory of a process that has everything of one block, by the block's tokens."""
    print("\none block in one process")
    before = None
    for users in (1_000, 20_000, 40_000, 80_000, 160_000):
        done = subprocess.run(
            [sys.executable, __file__, "--block", str(users)], capture_output=True, text=True, check=True
        )
        tokens, peak = map(int, done.stdout.split())
        slope = "" if before is None else f"{(peak - before[1]) / (tokens - before[0]):>10.0f} bytes a token"
        print(f"{users:>10,} users {tokens:>12,} tokens {peak / 1e6:>10,.0f} MB{slope}", flush=True)
        before = before or (tokens, peak)


def peak_memory():
    """Of this process alone; what getrusage tells begins with the parent's."""
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text()).group(1)) * 1024


PLAN = plan_extraction(epsilon=4, delta=1e-7, max_n=9, max_contributions=100)


def main():
    benches = {
        "synthetic": bench_synthetic,
        "english": bench_english,
        "msnbc": bench_msnbc,
        "memory": bench_memory,
        "levels": bench_levels,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", choices=[*benches, []], help="what to measure (default: all)")
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[3] / "shared" / "data")
    parser.add_argument("--block", type=int, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.block:
        sizes = measure(synthetic(flags.block), PLAN, shards=1)
        print(sizes["users"].tokens, peak_memory())
        return
    for name in flags.which or benches:
        benches[name](flags.data)


if __name__ == "__main__":
    main()

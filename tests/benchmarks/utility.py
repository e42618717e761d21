"""How much each policy releases, and how much of it is spurious. Run by hand:

    python tests/benchmarks/utility.py msnbc english untuned [--keys 5] [--data ../shared/data]
    python tests/benchmarks/utility.py vocabulary --words /usr/share/dict/words

`msnbc` and `english` read the data sets named in docs/results.md. `untuned` takes corpora on which no constant was
chosen: the Python files of this installation (a file is a user, a line a post) and synthetic ones, for several
epsilon. `vocabulary` compares with a public list of words: the categories of MSNBC, and a dictionary for English posts.
The corpora are known, so a released gram that no user has can be counted; a real run never could.
"""

import argparse
import json
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

import numpy as np

from dpngram.accounting import plan_extraction
from dpngram.pipelines.io.lines import RANGE_BYTES, ByteRange, read_pieces
from dpngram.pipelines.io.parsing import Fields, parse_jsonl, parse_text
from dpngram.transforms.blocks.levels import Level
from dpngram.transforms.testing import extract_in_memory, key_source
from dpngram.transforms.tokenizers import make_tokenizer
from dpngram.transforms.vocabulary import PublicVocabulary


class Corpus:
    """Documents, made anew for each run, and how to read them."""

    def __init__(self, blocks, tokenizer="words", user_per_document=False):
        self.blocks, self.tokenizer, self.user_per_document = list(blocks), make_tokenizer(tokenizer), user_per_document

    def run(self, plan, key, vocabulary=()):
        """Released and spurious grams, per level."""
        spurious = {}

        def observe(round_, blocks, released):
            if not isinstance(released, Level):
                return
            present = [block.grams for block in blocks] if round_.n > 1 else []
            held = np.isin(released.keys, np.concatenate([np.zeros(0, np.uint64), *present]))
            spurious[round_.n] = int((~held).sum()) if round_.n > 1 else 0

        tables = extract_in_memory(
            self.blocks,
            plan,
            key_source(key.to_bytes(32, "little"), [plan.to_json()]),
            self.tokenizer,
            user_per_document=self.user_per_document,
            shards=32,
            histogram_shards=2,
            vocabulary=vocabulary,
            observe=observe,
        )
        return [len(table) for table in tables.values()], [spurious.get(n, 0) for n in tables]


def msnbc(data):
    with zipfile.ZipFile(data / "msnbc990928.zip") as archive:
        text = archive.read("msnbc990928.seq").split(b"\n", 7)[7]
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "lines"
        path.write_bytes(text)
        extent = ByteRange(str(path), 0, len(text), "uncompressed")
        parsed = (parse_text(piece.data, piece.offset) for piece in read_pieces(extent, 0))
        return Corpus((block for part in parsed for block in part.blocks), "whitespace", user_per_document=True)


def jsonl(path, compression):
    size = path.stat().st_size
    starts = range(0, size, RANGE_BYTES) if compression == "uncompressed" else (0,)
    ends = (min(start + RANGE_BYTES, size) if compression == "uncompressed" else -1 for start in starts)
    extents = (ByteRange(str(path), start, end, compression) for start, end in zip(starts, ends, strict=True))
    pieces = (piece for extent in extents for piece in read_pieces(extent, 0))
    parsed = (parse_jsonl(piece.data, Fields(("user",), ("text",)), piece.offset) for piece in pieces)
    return Corpus(block for part in parsed for block in part.blocks)


def code():
    """Every Python file of the installed packages, its first 300 lines, a line a post."""
    rows = []
    for path in sorted(Path(sysconfig.get_paths()["purelib"]).rglob("*.py")):
        lines = path.read_text(errors="replace").splitlines()[:300]
        rows += [{"user": str(path), "text": line} for line in lines if line.strip()]
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "code.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return jsonl(path, "uncompressed")


def synthetic(*flags):
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "synthetic.jsonl"
        command = [sys.executable, "-m", "dpngram.pipelines.cli", "synth", "--output", str(path), *map(str, flags)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return jsonl(path, "uncompressed")


def compare(name, corpus, keys, **budget):
    """One line a policy: mean per level, mean and deviation of the total, share of spurious grams over all keys."""
    totals = {}
    for policy in ("paper", "plus"):
        plan = plan_extraction(policy=policy, **budget)
        runs = [corpus.run(plan, key) for key in range(keys)]
        released = np.array([run[0] for run in runs])
        spurious = np.array([run[1] for run in runs]).sum() / max(released.sum(), 1)
        total = released.sum(axis=1)
        totals[policy] = total.mean()
        levels = " ".join(f"{mean:.1f}" for mean in released.mean(axis=0))
        ratio = f"{totals['plus'] / max(totals['paper'], 1e-9):.2f} x" if policy == "plus" else ""
        print(
            f"{name:<34} {policy:<6} {total.mean():>10,.1f} +- {total.std(ddof=1) if keys > 1 else 0:<7.1f} "
            f"spurious {100 * spurious:5.2f} %  {ratio:>7}   {levels}",
            flush=True,
        )


def bench_msnbc(data, keys):
    compare("MSNBC e=1 T=6 D=10", msnbc(data), keys, epsilon=1, delta=1e-7, max_n=6, max_contributions=10)


def bench_english(data, keys):
    corpus = jsonl(data / "reddit_posts.jsonl.gz", "gzip")
    compare("English e=4 T=9 D=100", corpus, keys, epsilon=4, delta=1e-7, max_n=9, max_contributions=100)


def bench_vocabulary(data, keys, words=None):
    categories = [str(number) for number in range(1, 18)]
    settings = [("MSNBC", msnbc(data), categories, {"epsilon": 1, "delta": 1e-7, "max_n": 6, "max_contributions": 10})]
    if words is not None:
        english = jsonl(data / "reddit_posts.jsonl.gz", "gzip")
        listed = PublicVocabulary.of(str(words), english.tokenizer).words
        budget = {"epsilon": 4, "delta": 1e-7, "max_n": 9, "max_contributions": 100}
        settings.append((f"English, {len(listed):,} words", english, listed, budget))
    for name, corpus, listed, budget in settings:
        for public in (False, True):
            plan = plan_extraction(**budget, public_vocabulary=public)
            runs = [corpus.run(plan, key, listed if public else ()) for key in range(keys)]
            longer = np.array([sum(released[1:]) for released, _ in runs])
            spurious = sum(sum(found) for _, found in runs) / longer.sum()
            levels = " ".join(f"{mean:.1f}" for mean in np.mean([released for released, _ in runs], axis=0))
            spread = longer.std(ddof=1) if keys > 1 else 0
            print(
                f"{name:<22} {'public words' if public else 'as always':<12} from length 2 on {longer.mean():>10,.1f} "
                f"+- {spread:<7.1f} spurious {100 * spurious:5.2f} %   {levels}",
                flush=True,
            )


def bench_untuned(_data, keys):
    corpora = {
        "Python files": code(),
        "planted, many": synthetic("--users", 40_000, "--phrases", 1500, "--seed", 21),
        "planted, few": synthetic("--users", 20_000, "--tokens_per_user", 100, "--zipf", 0.9, "--seed", 22),
        "planted, long texts": synthetic("--users", 8_000, "--tokens_per_user", 250, "--zipf", 1.2, "--seed", 23),
        "planted, short texts": synthetic("--users", 60_000, "--tokens_per_user", 10, "--phrases", 300, "--seed", 24),
        "planted, rare": synthetic("--users", 50_000, "--phrases", 200, "--phrase_users", "50,80", "--seed", 25),
    }
    for name, corpus in corpora.items():
        for epsilon in (0.5, 1, 2, 4, 8):
            budget = {"epsilon": epsilon, "delta": 1e-6, "max_n": 6, "max_contributions": 50}
            compare(f"{name} e={epsilon}", corpus, keys, **budget)


def main():
    benches = {"msnbc": bench_msnbc, "english": bench_english, "untuned": bench_untuned}
    choices = [*benches, "vocabulary", []]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", choices=choices, help="which corpora (default: all)")
    parser.add_argument("--keys", type=int, default=5)
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[3] / "shared" / "data")
    parser.add_argument("--words", type=Path, help="a list of English words, for `vocabulary`")
    flags = parser.parse_args()
    for name in flags.which or benches:
        if name == "vocabulary":
            bench_vocabulary(flags.data, flags.keys, flags.words)
        else:
            benches[name](flags.data, flags.keys)


if __name__ == "__main__":
    main()

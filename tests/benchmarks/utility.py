"""How much each policy releases, and how much of it is spurious. Run by hand:

    python tests/benchmarks/utility.py msnbc english untuned het planted [--keys 5] [--data ../shared/data]
    python tests/benchmarks/utility.py ablation [--keys 2]
    python tests/benchmarks/utility.py vocabulary --words /usr/share/dict/words

`msnbc` and `english` read the data sets named in docs/results.md. `untuned` takes corpora on which no constant was
chosen: the Python files of this installation (a file is a user, a line a post) and synthetic ones, for several
epsilon. `het` has users who share most of their bigrams and have a few rarer ones, `planted` corpora full of phrases.
`ablation` switches parts of `plus` off, one by one, on `msnbc` and `english`. `vocabulary` compares with a public list
of words: the categories of MSNBC, and a dictionary for English posts. The corpora are known, so a released gram that no
user has can be counted; a real run never could.
"""

import argparse
import contextlib
import dataclasses
import json
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path
from unittest import mock

import numpy as np

from dpngram.accounting import plan_extraction
from dpngram.accounting.policies import POLICIES
from dpngram.pipelines.io.lines import RANGE_BYTES, ByteRange, read_pieces
from dpngram.pipelines.io.parsing import Fields, parse_jsonl, parse_text
from dpngram.transforms.blocks.levels import Level
from dpngram.transforms.policies import plus, prior, ranking
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


def het(vocabulary, common=100, rare=2000, each=4, users=20_000):
    """Every user has 100 of the common bigrams and a few of the rare ones; a bigram is a post."""
    random = np.random.default_rng(0)
    rows = random.integers(0, vocabulary, (rare, 2)), random.integers(0, vocabulary, (common, 2))
    words = np.array([f"w{word}" for word in range(vocabulary)])
    texts = [np.char.add(np.char.add(words[pairs[:, 0]], " "), words[pairs[:, 1]]) for pairs in rows]
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "het.jsonl"
        with path.open("w") as file:
            for user in range(users):
                mine = random.choice(texts[0], each), random.choice(texts[1], 100, replace=False)
                file.writelines(f'{{"user": "{user}", "text": "{text}"}}\n' for text in np.concatenate(mine))
        return jsonl(path, "uncompressed")


def planted(users, vocabulary, phrases, chance, lengths, mean, seed):
    """Words by Zipf's law, with phrases of rare words written over them; `chance` is that of one in ten words."""
    random = np.random.default_rng(seed)
    law = np.cumsum(np.arange(1, vocabulary + 1) ** -1.05)
    sizes = np.clip(random.lognormal(np.log(mean) - 0.5, 1.0, users).astype(int), 1, 3000)
    texts = [random.integers(vocabulary // 20, vocabulary, random.integers(*lengths)) for _ in range(phrases)]
    popular = np.cumsum(np.arange(1, phrases + 1) ** -0.7)
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "planted.jsonl"
        with path.open("w") as file:
            for user, size in enumerate(sizes.tolist()):
                tokens = np.searchsorted(law, random.random(size) * law[-1])
                for which in np.searchsorted(popular, random.random(random.poisson(chance * size / 10)) * popular[-1]):
                    phrase = texts[which]
                    if size > len(phrase):
                        start = random.integers(0, size - len(phrase))
                        tokens[start : start + len(phrase)] = phrase
                file.write(json.dumps({"user": str(user), "text": " ".join(f"w{token}" for token in tokens)}) + "\n")
        return jsonl(path, "uncompressed")


def measure(corpus, plan, keys):
    """Totals of the keys, mean per level, spurious share of all keys together, and of the worst one."""
    runs = [corpus.run(plan, key) for key in range(keys)]
    released, spurious = (np.array([run[side] for run in runs]) for side in (0, 1))
    total = released.sum(axis=1)
    worst = (spurious.sum(axis=1) / np.maximum(total, 1)).max()
    return total, released.mean(axis=0), spurious.sum() / max(total.sum(), 1), worst


def tell(name, policy, total, levels, spurious, worst, ratio=""):
    deviation = total.std(ddof=1) if len(total) > 1 else 0
    print(
        f"{name:<34} {policy:<6} {total.mean():>10,.1f} +- {deviation:<7.1f} spurious {100 * spurious:5.2f} % "
        f"(at most {100 * worst:.2f} %)  {ratio:>7}   {' '.join(f'{mean:.1f}' for mean in levels)}",
        flush=True,
    )


def compare(name, corpus, keys, policies=("paper", "plus"), **budget):
    """One line a policy: mean per level, mean and deviation of the total, share of spurious grams over all keys."""
    totals = {}
    for policy in policies:
        total, *rest = measure(corpus, plan_extraction(policy=policy, **budget), keys)
        totals[policy] = total.mean()
        ratio = f"{totals['plus'] / max(totals['paper'], 1e-9):.2f} x" if len(totals) == 2 else ""
        tell(name, policy, total, *rest, ratio)


MSNBC = {"epsilon": 1, "delta": 1e-7, "max_n": 6, "max_contributions": 10}
ENGLISH = {"epsilon": 4, "delta": 1e-7, "max_n": 9, "max_contributions": 100}


def bench_msnbc(data, keys):
    compare("MSNBC e=1 T=6 D=10", msnbc(data), keys, **MSNBC)


def bench_english(data, keys):
    compare("English e=4 T=9 D=100", jsonl(data / "reddit_posts.jsonl.gz", "gzip"), keys, **ENGLISH)


def bench_het(_data, keys):
    budget = {"epsilon": 4, "delta": 1e-7, "max_n": 2, "max_contributions": 100}
    compare("het, 300 words", het(300), keys, **budget)
    compare("het, 1,000 words", het(1000), keys, **budget)
    compare("het, 3,000 common bigrams", het(1000, common=3000), keys, **budget)
    compare("het, 3,000 common, 6,000 rare", het(1000, common=3000, rare=6000), keys, **budget)
    compare("het, counted at first", het(1000, common=1000, rare=3000, each=15), keys, **budget)


def bench_planted(_data, keys):
    budget = {"epsilon": 4, "delta": 1e-7, "max_n": 6, "max_contributions": 100}
    compare("phrases, most of the text", planted(60_000, 50_000, 8000, 1.5, (3, 9), 40, 7), keys, **budget)
    compare("phrases, 5,000 users", planted(5_000, 20_000, 500, 0.3, (3, 7), 80, 2), keys, **budget)


def even_law(bins, counts, _floor):
    """A prior in closed form instead of EM: some zero cells, and heights by an exponential law."""
    number = np.maximum(counts.sum(axis=1), 1)
    below = counts[:, : prior.GROUP_STARTS[1]].sum(axis=1)
    real = np.clip(1 - 2 * below / number, 0.5 / np.sqrt(number) + 1 / number, 1 - 1e-3)
    mean = np.clip(counts @ bins.centre / number / real, 0.3, 40)
    widths = np.diff(np.append(prior.HEIGHTS, 2 * prior.HEIGHTS[-1]))
    law = np.exp(-prior.HEIGHTS / mean[:, None]) * widths
    law[:, 0] = 0
    law *= (real / np.maximum(law.sum(axis=1), 1e-300))[:, None]
    law[:, 0] = 1 - law.sum(axis=1)
    return law


def shares(*parts):
    return mock.patch.dict(
        POLICIES, plus=dataclasses.replace(POLICIES["plus"], round_shares=((0.05, 0.25, 0.7), parts))
    )


def no_rest(*args):
    return dataclasses.replace(ranking.make_survey(*args), rest_guide=0)


# Each makes a context in which the part is missing. Parts that share a budget leave it to the others.
PARTS = {
    "everything": contextlib.nullcontext,
    "no second look": lambda: shares(0.919, 0.001, 0.08),
    "no count": lambda: mock.patch.object(ranking, "_LEAST_COUNT", np.inf),
    "zero cells known from the survey alone": lambda: mock.patch.object(ranking, "_LOWEST_SHARE", 0.0),
    "prior in closed form, no EM": lambda: mock.patch.object(ranking, "fit_prior", even_law),
    "no even shares": lambda: mock.patch.object(plus, "_EVEN_SHARES", (0.0, 0.0)),
    "active cells only": lambda: mock.patch.object(plus, "make_survey", no_rest),
    "no gain": lambda: mock.patch.object(ranking, "_GAINS", (1.0,)),
}


def bench_ablation(data, keys):
    for name, corpus, budget in (
        ("MSNBC", msnbc(data), MSNBC),
        ("English", jsonl(data / "reddit_posts.jsonl.gz", "gzip"), ENGLISH),
    ):
        whole = None
        for part, without in PARTS.items():
            with without():
                total, *rest = measure(corpus, plan_extraction(policy="plus", **budget), keys)
            whole = whole or total.mean()
            tell(f"{name}: {part}", "plus", total, *rest, f"{total.mean() / whole:.3f} x")


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
    benches = {
        "msnbc": bench_msnbc,
        "english": bench_english,
        "untuned": bench_untuned,
        "het": bench_het,
        "planted": bench_planted,
        "ablation": bench_ablation,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", choices=[*benches, "vocabulary", []], help="what to measure (default: all)")
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

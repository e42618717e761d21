"""How much is released with the parameters that `dpngram plan --users` proposes, on public corpora. Run by hand:

    python tests/benchmarks/forecast.py measure [reddit ...] [--data ../shared/data] [--clones DIR]
    python tests/benchmarks/forecast.py fit

The first writes forecast.csv, the second prints the constants of `dpngram.accounting.outlook` and how far off they
are. The forecast is a straight line through the logarithms of the corpora in `FITTED`. Those in `HELD_OUT` had no
part in the fit; the error that `dpngram plan` admits is that on them. The data sets are those of docs/results.md. DIR
has clones of repositories of GitHub: cardiffnlp/tweeteval (a tweet is a user), apache/beam (the authors of commits,
and their messages), alexa/Topical-Chat and google-research-datasets/Taskmaster (a conversation is a user; the newest
edition). Python files are those of this installation, `synth` is `dpngram synth --users 40000`.
"""

import argparse
import collections
import csv
import gzip
import json
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
import utility  # noqa: E402
from helpers.outlook import FITTED, TABLE, fit, read_table  # noqa: E402

from dpngram.accounting.advice import propose_plans  # noqa: E402


def shown(clone, path):
    return subprocess.run(["git", "-C", clone, "show", f"HEAD:{path}"], capture_output=True, check=True).stdout.decode()


def listed(clone, suffix):
    names = subprocess.run(
        ["git", "-C", clone, "ls-tree", "-r", "--name-only", "HEAD"], capture_output=True, check=True
    )
    return [name for name in names.stdout.decode().splitlines() if name.endswith(suffix)]


def reddit(data, _clones):
    with gzip.open(data / "reddit_posts.jsonl.gz", "rt") as file:
        return [[json.loads(line)["text"]] for line in file]


def tweets(_data, clones):
    names = [name for name in listed(clones / "tweeteval", "_text.txt") if "/sentiment/" not in name]
    texts = "".join(shown(clones / "tweeteval", name) for name in names)
    return [[line] for line in dict.fromkeys(texts.splitlines())]


def commits(_data, clones):
    log = ["git", "-C", str(clones / "beam"), "log", "--no-merges", "--format=%ae%x01%s %b%x00"]
    users = collections.defaultdict(list)
    for entry in subprocess.run(log, capture_output=True, check=True).stdout.decode(errors="replace").split("\0"):
        author, _, text = entry.strip().partition("\x01")
        users[author].append(text)
    return list(users.values())


def python(_data, _clones):
    paths = sorted(Path(sysconfig.get_paths()["purelib"]).rglob("*.py"))
    return [path.read_text(errors="replace").splitlines()[:300] for path in paths]


def topical_chat(_data, clones):
    names = listed(clones / "Topical-Chat", ".json")
    names = [name for name in names if name.startswith(("conversations/test", "conversations/valid"))]
    chats = [json.loads(shown(clones / "Topical-Chat", name)) for name in names]
    return [[turn["message"] for turn in chat["content"]] for part in chats for chat in part.values()]


def taskmaster(_data, clones):
    users = []
    for name in listed(clones / "Taskmaster", ".json"):
        found = json.loads(shown(clones / "Taskmaster", name)) if name.startswith("TM-4") else []
        found = found if isinstance(found, list) else []
        users += [
            [turn["text"] for turn in chat["utterances"] if "text" in turn] for chat in found if "utterances" in chat
        ]
    return users


def msnbc(data, _clones):
    with zipfile.ZipFile(data / "msnbc990928.zip") as archive:
        lines = archive.read("msnbc990928.seq").split(b"\n", 7)[7].decode().splitlines()
    return [[line] for line in lines if line]


def synth(_data, _clones):
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "synth.jsonl"
        command = [sys.executable, "-m", "dpngram.pipelines.cli", "synth", "--output", str(path), "--users", "40000"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        users = collections.defaultdict(list)
        for line in path.read_text().splitlines():
            row = json.loads(line)
            users[row["user"]].append(row["text"])
    return list(users.values())


# Sizes, and how many documents in a row are taken for one user's.
CUTS = {
    "reddit": [(2_000, 1), (10_000, 1), (50_000, 1), (5_000, 10), (20_000, 10)],
    "tweets": [(2_000, 1), (10_000, 1), (50_000, 1), (5_000, 10)],
    "commits": [(500, 1), (1_500, 1)],
    "python": [(1_000, 1), (5_000, 1)],
    "topical-chat": [(500, 1), (1_500, 1)],
    "taskmaster": [(2_000, 1), (10_000, 1)],
    "msnbc": [(10_000, 1), (100_000, 1)],
    "synth": [(5_000, 1), (40_000, 1)],
}


def corpus(users):
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "users.jsonl"
        with path.open("w") as file:
            for number, texts in enumerate(users):
                file.writelines(json.dumps({"user": str(number), "text": text}) + "\n" for text in texts)
        return utility.jsonl(path, "uncompressed")


def measure(data, clones, names):
    """Rows of other corpora are kept."""
    kept = [row for row in read_table() if row["corpus"] not in names] if TABLE.exists() else []
    with TABLE.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["corpus", "users", "tokens_per_user", "epsilon", "released"])
        table.writerows(
            [name, *(f"{value:.0f}" for value in values)] for name, *values in (row.values() for row in kept)
        )
        for name in names:
            texts = globals()[name.replace("-", "_")](data, clones)
            order = np.random.default_rng(0).permutation(len(texts))
            for users, each in CUTS[name]:
                chosen = [
                    [text for place in order[user * each : (user + 1) * each] for text in texts[place]]
                    for user in range(min(users, len(texts) // each))
                ]
                documents = corpus(chosen)
                mean = max(1, round(sum(len(text.split()) for user in chosen for text in user) / len(chosen)))
                for proposal in propose_plans(len(chosen), mean):
                    released, _ = documents.run(proposal.plan, 0)
                    row = [name, len(chosen), mean, f"{proposal.plan.epsilon:g}", sum(released)]
                    print(*row, flush=True)
                    table.writerow(row)
                    file.flush()


def show_fit():
    rows = read_table()
    constants, factors = fit(rows)
    print("constant, by users, by tokens:", *constants.round(3))
    for name in CUTS:
        mine = factors[[row["corpus"] == name for row in rows]]
        spread = np.exp(np.sqrt(np.mean(np.log(mine) ** 2)))
        kind = "fitted" if name in FITTED else "held out"
        print(f"{name:<14} {kind:<9} released / forecast from {mine.min():.2f} to {mine.max():.2f}, rms {spread:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "fit"])
    parser.add_argument("corpora", nargs="*", choices=[*CUTS, []], help="which to measure (default: all)")
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[3] / "shared" / "data")
    parser.add_argument("--clones", type=Path, default=Path("clones"))
    flags = parser.parse_args()
    if flags.what == "fit":
        show_fit()
    else:
        measure(flags.data, flags.clones, flags.corpora or list(CUTS))

"""Other systems on the same tokens: PipelineDP on Beam, and the paper's algorithm as a Spark job.

All read one text file, one user a line, tokens separated by spaces, and have the same epsilon and delta. The systems
take turns; a turn is measured in one go. Each peer has an environment under .cache/peers, made by pip the first time.
"""

import gzip
import itertools
import json
import os
import statistics
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pyarrow as pa
from benchmarks import record
from benchmarks.pages import Table
from benchmarks.sections.settings import TIMES, Section, number
from helpers.costs import measure

from dpngram.transforms.tokenizers import make_tokenizer

HERE = Path(__file__).resolve().parents[1]
PEERS = {
    "spark": ("pyspark==4.3.0", "numpy", "pandas", "pyarrow"),
    "pipelinedp": ("pipeline-dp==0.3.1", "apache-beam==2.77.0"),
}
HEAP = "4g"  # of Spark
# N-grams of a user, of all lengths together, chosen by looking at what they release, which is to the peer's advantage.
# Of 5, 10, 20, 40 and of 3, 5, 10, 20 with 20,000 users of MSNBC (3 released 3 % more than 5), and of 20, 60, 200 and
# of 5, 20, 60 with 4,000 English posts.
MSNBC_CAPS = {"gaussian": 20, "geometric": 5}
ENGLISH_CAPS = {"gaussian": 200, "geometric": 5}
NAMES = {
    "paper": "dpngram, `paper`",
    "plus": "dpngram, `plus`",
    "spark": "the paper's algorithm on PySpark 4.3.0",
    "gaussian": "PipelineDP 0.3.1 on Beam, Gaussian",
    "geometric": "PipelineDP 0.3.1 on Beam, truncated geometric (its default)",
}
MSNBC = {"epsilon": 1, "delta": 1e-7, "max_n": 6, "max_contributions": 10}
ENGLISH = {"epsilon": 4, "delta": 1e-7, "max_n": 9, "max_contributions": 100}


def environment(name):
    place = record.ROOT / ".cache" / "peers" / name
    if not (place / "bin" / "pip").exists():
        venv.create(place, with_pip=True)
    subprocess.run([place / "bin" / "pip", "install", "--quiet", *PEERS[name]], check=True)
    return place / "bin"


def msnbc_lines(data):
    with zipfile.ZipFile(data / "msnbc990928.zip") as archive:
        lines = archive.read("msnbc990928.seq").decode().splitlines()[7:]
    return (line.strip() for line in lines)


def english_lines(data):
    words = make_tokenizer("words")
    with gzip.open(data / "reddit_posts.jsonl.gz", "rt", encoding="utf-8") as file:
        texts = (json.loads(line)["text"].encode() for line in file)
        while batch := list(itertools.islice(texts, 10_000)):
            tokens = words.tokenize(pa.array(batch, pa.large_binary()))
            names = [token.decode() for token in tokens.vocabulary.to_pylist()]
            ids = tokens.ids.tolist()
            for begin, end in itertools.pairwise(tokens.bounds.tolist()):
                yield " ".join(names[token] for token in ids[begin:end])


def write_lines(path, lines, users):
    """The number of lines that were written: users without a token have none."""
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            if line and (users is None or count < users):
                file.write(line + "\n")
                count += 1
    return count


def flags_of(budget):
    return [word for name, value in budget.items() for word in (f"--{name}", value)]


def commands(work, budget, caps):
    """{system: (command, where its n-grams will be)}; OUT is a new place in each turn."""
    given = work / "tokens.txt"
    ours = [sys.executable, "-m", "dpngram.pipelines.cli"]
    plan = subprocess.run(
        [*ours, "plan", "--policy", "paper", "--json", *map(str, flags_of(budget))], capture_output=True, check=True
    )
    (work / "plan.json").write_bytes(plan.stdout)
    text = ["--input", given, "--input_format", "text", "--tokenizer", "whitespace", "--quiet", "--output", "OUT"]
    made = {}
    for policy in ("paper", "plus"):
        made[policy] = [*ours, "extract", *text, *flags_of(budget), "--policy", policy]
    home = environment("spark")
    os.environ["PYSPARK_PYTHON"] = str(home / "python")
    options = ["--master", f"local[{os.cpu_count()}]", "--driver-memory", HEAP]
    job = [HERE / "spark_job.py", "--plan", work / "plan.json", "--input", given, "--output", "OUT"]
    made["spark"] = [home / "spark-submit", *options, *job]
    shared = flags_of({name: budget[name] for name in ("epsilon", "delta", "max_n")})
    for strategy, cap in caps.items():
        job = [HERE / "pipelinedp_job.py", "--input", given, "--output", "OUT", "--strategy", strategy]
        made[strategy] = [environment("pipelinedp") / "python", *job, "--cap", cap, *shared]
    return made


def released_in(place):
    """All n-grams of a release, as tuples."""
    if place.is_file():
        return {tuple(line.split(" ")) for line in place.read_text(encoding="utf-8").splitlines()}
    lines = (line for path in place.glob("ngrams-*.jsonl") for line in path.read_text(encoding="utf-8").splitlines())
    return {tuple(json.loads(line)["tokens"]) for line in lines}


def found_in(path, grams):
    """Those of the n-grams that some user has."""
    starts = {gram[:length] for gram in grams for length in range(1, len(gram) + 1)}
    found = set()
    with path.open(encoding="utf-8") as file:
        for line in file:
            words = tuple(line.split())
            for begin in range(len(words)):
                for end in range(begin + 1, len(words) + 1):
                    gram = words[begin:end]
                    if gram not in starts:
                        break
                    found.add(gram)
    return found & grams


def take_turn(made, work, number_):
    watch, costs, released = record.Watch(), {}, {}
    for system, command in made.items():
        place = work / f"{system}-{number_}"
        costs[system] = measure([str(place) if word == "OUT" else word for word in command])._asdict()
        released[system] = released_in(place)
    load = watch.load()
    known = found_in(work / "tokens.txt", set().union(*released.values()))
    for system, grams in released.items():
        costs[system] |= {"released": len(grams), "spurious": len(grams - known)}
    return {"load": load, "systems": costs}


def peers(lines, users, budget, caps):
    def make(settings):
        work = settings.work
        count = write_lines(work / "tokens.txt", lines(settings.data), users)
        made = commands(work, budget, caps)
        turns = [
            settings.part(f"turn {turn}", lambda turn=turn: take_turn(made, work, turn))
            for turn in range(settings.repeats)
        ]
        return {"users": count, "budget": budget, "caps": caps, "turns": turns}

    return make


def peers_tables(figures):
    turns = [turn["systems"] for turn in figures["turns"]]
    rows = []
    for system in turns[0]:
        mine = [turn[system] for turn in turns]
        cells = [NAMES[system]]
        for field, unit, digits, scale in (("cpu", " s", 1, 1), ("wall", " s", 1, 1), ("memory", " GB", 2, 1e3)):
            values = record.spread([cost[field] / scale for cost in mine])
            cells.append(
                f"{number(values['median'], digits)}{unit} "
                f"({number(values['least'], digits)} to {number(values['most'], digits)})"
            )
        times = statistics.median(turn[system]["cpu"] / turn["paper"]["cpu"] for turn in turns)
        released = statistics.median(cost["released"] for cost in mine)
        spurious = sum(cost["spurious"] for cost in mine) / max(sum(cost["released"] for cost in mine), 1)
        rows.append([*cells, f"{times:.1f} {TIMES}", number(released), f"{100 * spurious:.2f} %"])
    head = ["", "CPU", "wall", "memory, largest process", "CPU over `paper`", "n-grams", "spurious"]
    return {"": Table(head, rows)}


def section(title, minutes, *what):
    return Section(title, minutes, peers(*what), peers_tables, timed=True)


SECTIONS = {
    "peers": section(
        "PipelineDP and Spark beside us, 50,000 users of MSNBC", 4, msnbc_lines, 50_000, MSNBC, MSNBC_CAPS
    ),
    "peers_msnbc": section("PipelineDP and Spark beside us, all of MSNBC", 12, msnbc_lines, None, MSNBC, MSNBC_CAPS),
    "peers_english": section(
        "PipelineDP and Spark beside us, 20,000 English posts", 15, english_lines, 20_000, ENGLISH, ENGLISH_CAPS
    ),
}

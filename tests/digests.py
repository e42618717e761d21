"""Makes releases with fixed keys and prints one digest for each: a change of the code that must not change a release
prints the same lines before and after.

    python tests/digests.py                 # all of them, some minutes
    python tests/digests.py extract/plus    # those whose names begin so
    python tests/digests.py --check         # compares with tests/digests.txt; exit status 1 if a line differs
    python tests/digests.py --record        # writes tests/digests.txt

A digest covers the rows and the manifest of a release (the manifest without the version of dpngram), or the rows of
each window. It does not cover report.html, which is drawn from the manifest, nor checkpoints. Only the command line
and the names exported by `dpngram.accounting` and `dpngram.transforms` are used: it runs on any version.
"""

import contextlib
import gzip
import hashlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms.window import FixedWindows, SlidingWindows, TimestampedValue

from dpngram.accounting import plan_extraction
from dpngram.pipelines.cli import main
from dpngram.transforms import ExtractLevels, ExtractNgrams

RECORDED = Path(__file__).with_suffix(".txt")
KEY = bytes(range(32))
BUDGET = {"epsilon": 12.0, "delta": 0.01, "max_contributions": 20, "eta": 0.05}
WORDS = [f"w{i}" for i in range(14)] + ["été", "東京", "Straße"]
PHRASE = ["there", "is", "no", "such", "thing", "as", "a", "free", "lunch", "today"]


def posts(users: int = 220) -> list[tuple[str, str]]:
    """(user, text): Zipf words, and a phrase of ten words that many users begin somewhere."""
    random = np.random.default_rng(7)
    chances = 1 / np.arange(1, len(WORDS) + 1)
    found = []
    for user in range(users):
        for _ in range(int(random.integers(1, 5))):
            words = list(random.choice(WORDS, int(random.integers(0, 14)), p=chances / chances.sum()))
            if random.random() < 0.6:
                words += PHRASE[int(random.integers(0, 2)) :]
            found.append((f"user{user}", " ".join(map(str, words))))
    return found


def key_file(directory: Path) -> str:
    path = directory / "noise.key"
    path.write_bytes(KEY)
    path.chmod(0o600)
    os.environ["DPNGRAM_STATE"] = str(directory / "state")  # one key serves all cases, each with its own record
    return f"file:{path}"


def jsonl(rows: list[tuple[str, str]]) -> bytes:
    return "".join(json.dumps({"user": user, "text": text}) + "\n" for user, text in rows).encode()


def digest(parts: dict[str, bytes]) -> str:
    summed = hashlib.sha256()
    for name, data in sorted(parts.items()):
        summed.update(f"{name} {len(data)}\n".encode() + data)
    return f"{summed.hexdigest()[:32]} {sum(map(len, parts.values())):>8} bytes"


def release_files(output: Path) -> dict[str, bytes]:
    parts = {}
    apart = output.with_name(f"{output.name}.exact-counts-NOT-PRIVATE")  # of a comparison; once inside the output
    for path in sorted([*output.rglob("*"), *apart.rglob("*")]):
        if path.is_file() and path.suffix != ".html" and path.name != "operator.json":
            data = path.read_bytes()
            if path.suffix == ".json":
                document = json.loads(data)
                document.pop("dpngram", None)
                data = json.dumps(document, indent=1).encode()
            parts[str(path.relative_to(output.parent)).removeprefix(output.name)[1:]] = data
    return parts


def command(directory: Path, program: str, *flags: str) -> dict[str, bytes]:
    output = directory / "release"
    budget = [word for name, value in BUDGET.items() for word in (f"--{name}", str(value))]
    given = [program, "--output", str(output), *budget, "--noise_key", key_file(directory), *flags]
    if program == "extract":
        given.append("--quiet")
    if status := main(given):
        raise SystemExit(f"{' '.join(given)}: exit status {status}")
    return release_files(output)


def extract(data: bytes, name: str, *flags: str) -> Callable[[Path], dict[str, bytes]]:
    def make(directory: Path) -> dict[str, bytes]:
        path = directory / name
        path.write_bytes(data)
        return command(directory, "extract", "--input", str(path), *flags)

    return make


def compare(directory: Path) -> dict[str, bytes]:
    path = directory / "posts.jsonl"
    path.write_bytes(jsonl(posts()))
    flags = ["--input", str(path), "--max_n", "4", "--repeats", "2", "--as_printed", "--reveal_exact_counts"]
    return command(
        directory,
        "compare",
        *flags,
        "--sweep",
        "pruning=both,single",
        "--sweep",
        "eta=0.01,0.1",
        "--sweep_system",
        "dpne",
        "--max_user_tokens",
        "90",
    )


def damaged(directory: Path) -> dict[str, bytes]:
    """Lines that cannot be used among those that can, and a gzip file that breaks off."""
    lines = jsonl(posts()).splitlines(keepends=True)
    bad = [b"{\n", b'{"user": 3}\n', b'{"user": "", "text": "x"}\n', b"\xff\xfe\n", b'["user", "text"]\n', b"\n"]
    plain, broken = directory / "posts.jsonl", directory / "more.jsonl.gz"
    plain.write_bytes(b"".join(lines[:200] + bad[:3] + lines[200:400] + bad[3:] + lines[400:]))
    broken.write_bytes(gzip.compress(jsonl(posts()), mtime=0)[:-200])
    flags = ["--input", str(plain), "--input", str(broken), "--max_n", "3", "--max_bad_fraction", "0.5"]
    return command(directory, "extract", *flags)


def rows_by_window(gram, window=beam.DoFn.WindowParam):
    return json.dumps([str(window), gram.n, gram.tokens, gram.weight], ensure_ascii=False)


class Write(beam.DoFn):
    """Rows into files of one directory, a file for a row: names sort them."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)

    def process(self, row: str):
        name = hashlib.sha256(row.encode()).hexdigest()[:24]
        (self._directory / name).write_text(row, encoding="utf-8")
        yield name


def timed() -> list[tuple[int, tuple[str, str]]]:
    return [(20 * place % 600 + 3, post) for place, post in enumerate(posts())]


def windows(how, plan_windows: int = 1, policy: str = "plus", stream: bool = False):
    def make(directory: Path) -> dict[str, bytes]:
        (directory / "rows").mkdir()
        plan = plan_extraction(**BUDGET, max_n=3, policy=policy, windows=plan_windows)
        options = PipelineOptions(["--allow_unsafe_triggers"])
        if stream:
            options = PipelineOptions(["--streaming"])
            source = TestStream().add_elements([TimestampedValue(post, time) for time, post in sorted(timed())])
            source = source.advance_watermark_to_infinity()
        else:
            source = beam.Create(timed()) | beam.MapTuple(lambda time, post: TimestampedValue(post, time))
        runner = "BundleBasedDirectRunner" if stream else "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
        with beam.Pipeline(runner=runner, options=options) as pipeline:
            released = (
                pipeline
                | "Posts" >> source
                | beam.WindowInto(how)
                | ExtractNgrams(plan, noise_key=key_file(directory), shards=5, bound_windows=plan_windows > 1)
            )
            released | beam.Map(rows_by_window) | beam.ParDo(Write(str(directory / "rows")))
        return {path.name: path.read_bytes() for path in (directory / "rows").iterdir()}

    return make


def tables(directory: Path, policy: str, pruning: str) -> dict[str, bytes]:
    """One run that keeps its checkpoints beside the rows."""
    rows = directory / "rows"
    rows.mkdir()
    (directory / "kept").mkdir(exist_ok=True)
    plan = plan_extraction(**BUDGET, max_n=4, policy=policy)
    with beam.Pipeline(runner="apache_beam.runners.portability.fn_api_runner.FnApiRunner") as pipeline:
        levels = (
            pipeline
            | beam.Create(posts())
            | ExtractLevels(
                plan, pruning=pruning, noise_key=key_file(directory), shards=7, checkpoints=str(directory / "kept")
            )
        )
        for n, level in levels.items():
            (
                level
                | f"Rows{n}" >> beam.FlatMap(lambda table: table.rows())
                | f"Text{n}" >> beam.Map(rows_by_window)
                | f"Write{n}" >> beam.ParDo(Write(str(rows)))
            )
    parts = {path.name: path.read_bytes() for path in rows.iterdir()}
    for path in rows.iterdir():
        path.unlink()
    rows.rmdir()
    return parts


def resumed(policy: str, pruning: str = "both"):
    """A run, and again with only the first, only the last, and every second of its checkpoints."""

    def make(directory: Path) -> dict[str, bytes]:
        whole = tables(directory, policy, pruning)
        kept = {path: path.read_bytes() for path in sorted((directory / "kept").iterdir())}
        for chosen in (list(kept)[:1], list(kept)[-1:], list(kept)[::2]):
            for path, data in kept.items():
                path.write_bytes(data) if path in chosen else path.unlink(missing_ok=True)
            if tables(directory, policy, pruning) != whole:
                raise SystemExit(f"resumed/{policy}: a resumed run differs from the whole one")
        return whole

    return make


def cases() -> dict[str, Callable[[Path], dict[str, bytes]]]:
    records = jsonl(posts())
    text = "".join(f"{text}\n" for _, text in posts()).encode()
    tsv = "user\ttext\n" + "".join(f"{user}\t{text}\n" for user, text in posts())
    made: dict[str, Callable[[Path], dict[str, bytes]]] = {}
    for n in range(1, 10):
        for policy, pruning in (("paper", "both"), ("paper", "single"), ("plus", "both")):
            flags = ["--max_n", str(n), "--policy", policy, "--pruning", pruning]
            made[f"extract/{policy}/{pruning}/{n}"] = extract(records, "posts.jsonl", *flags)
    lines = ["--max_n", "4", "--input_format", "text", "--tokenizer", "whitespace"]
    made["text/paper"] = extract(text, "posts.txt", *lines, "--policy", "paper")
    made["text/plus"] = extract(text, "posts.txt", *lines, "--skip_header_lines", "3")
    made["tsv/plus"] = extract(tsv.encode(), "posts.tsv", "--max_n", "3", "--input_format", "tsv", "--sentences")
    made["csv/regex"] = extract(
        tsv.replace("\t", ",").encode(),
        "posts.csv",
        "--max_n",
        "3",
        "--input_format",
        "csv",
        "--tokenizer",
        r"regex:\S+",
    )
    for name in ("csv", "parquet", "avro", "vocab"):
        made[f"output/{name}"] = extract(records, "posts.jsonl", "--max_n", "3", "--output_format", name)
    made["damaged/plus"] = damaged
    made["shards/paper"] = extract(records, "posts.jsonl", "--max_n", "3", "--policy", "paper", "--shards", "200")
    made["caps/paper"] = extract(
        records, "posts.jsonl", "--max_n", "3", "--policy", "paper", "--max_contributions", "9,5,3", "--decay", "0.9"
    )
    made["windows/fixed/plus"] = windows(FixedWindows(200))
    made["windows/fixed/paper"] = windows(FixedWindows(200), policy="paper")
    made["windows/sliding/plus"] = windows(SlidingWindows(300, 150))
    made["windows/bounded/plus"] = windows(SlidingWindows(300, 150), plan_windows=3)
    made["windows/stream/paper"] = windows(FixedWindows(300), plan_windows=2, policy="paper", stream=True)
    made["resumed/paper"] = resumed("paper")
    made["resumed/single"] = resumed("paper", "single")
    made["resumed/plus"] = resumed("plus")
    made["compare"] = compare
    return made


def recorded() -> dict[str, str]:
    return dict(line.split(maxsplit=1) for line in RECORDED.read_text(encoding="utf-8").splitlines())


def run(wanted: list[str]) -> dict[str, str]:
    """The digests of the cases whose names begin with one of these words (none: all), printed as they are made."""
    made = {}
    for name, make in cases().items():
        if not wanted or name.startswith(tuple(wanted)):
            with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()):
                made[name] = digest(make(Path(directory)))
            print(f"{name:<24} {made[name]}", flush=True)
    return made


if __name__ == "__main__":
    digests = run([word for word in sys.argv[1:] if not word.startswith("--")])
    if "--record" in sys.argv:
        RECORDED.write_text("".join(f"{name:<24} {value}\n" for name, value in digests.items()), encoding="utf-8")
    if "--check" in sys.argv:
        known = recorded()
        wrong = [name for name, value in digests.items() if known.get(name) != value]
        print(f"{len(digests) - len(wrong)} the same, {len(wrong)} differ{': ' if wrong else ''}{', '.join(wrong)}")
        sys.exit(bool(wrong))

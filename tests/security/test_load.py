"""Corpora made to hurt: no quadratic step, bounded memory, and the right release all the same.

Exponents are those of CPU time (the cheapest of some runs) between two sizes, the second four times the first. A
linear step has 1, a sort a little more, a quadratic one 2; the line is at 1.5, since small runs on a busy machine
are noisy. `tests/benchmarks/load.py` measures the same corpora at full size.
"""

import itertools
import json
import math

import numpy as np
import pyarrow as pa
import pytest
from helpers.blocks import ONE_CELL
from helpers.costs import cheapest, measure
from helpers.keys import write_key
from helpers.loads import CHAIN, LOADS, background, extraction
from helpers.runs import extract, files, jsonl, notes_of, small_corpus
from scipy.stats import norm

from dpngram.accounting import RoundingCost, plan_extraction
from dpngram.pipelines.io import parsing
from dpngram.pipelines.io.lines import RANGE_BYTES, ByteRange, is_damage, read_pieces
from dpngram.transforms.blocks.posts import PostBlock, split_posts
from dpngram.transforms.randomness.prf import Prf
from dpngram.transforms.sum_cells import RunningSum
from dpngram.transforms.tokenizers import make_tokenizer
from dpngram.transforms.tokenizers.by_text import CallableTokenizer

WORDS = make_tokenizer("words")
MOST = 1.5


def tokenize(text):
    column = pa.array([text.encode()], pa.large_binary())
    return lambda: WORDS.tokenize(column)


# Steps that could be quadratic; all but the last three once were.


def cut_posts(shards):
    """A post of a thousand words for each shard, and all words distinct: a reader's block of a large vocabulary."""
    words = 1000 * shards
    posts = PostBlock(
        user=np.stack([np.arange(shards, dtype=np.uint64)] * 2, axis=1),
        sequence=np.zeros((shards, 2), np.uint64),
        lengths=np.full(shards, 1000, np.int32),
        ids=np.arange(words, dtype=np.int32),
        token_lengths=np.ones(words, np.uint8),
        token_bytes=np.zeros(words, np.uint8),
        key_check=0,
    )
    return lambda: [number for number, _ in split_posts(posts, shards)]


def sum_cells(blocks):
    """Many blocks with one cell each."""

    def add():
        running = RunningSum()
        for _ in range(blocks):
            running.add(ONE_CELL)
        assert running.total().weight.tolist() == [3 * blocks]

    return add


STEPS = {
    "combining marks": (lambda size: tokenize("a" + "\u0301\u0327" * size), 10_000),
    "marks that decompose": (lambda size: tokenize("\u0f73" * size), 10_000),
    "text that grows elevenfold": (lambda size: tokenize("\ufdfa" * size), 40_000),
    "posts in many shards": (cut_posts, 1000),
    "many small histograms": (sum_cells, 5_000),
    "text without a space": (lambda size: tokenize("\u6587\u5b57" * size), 300_000),
    "nothing but spaces": (lambda size: tokenize(" " * size), 3_000_000),
}


@pytest.mark.parametrize("step", STEPS)
def test_no_quadratic_step(step):
    prepare, size = STEPS[step]
    for rounds in (3, 6, 12):  # the least of more rounds, where the machine was busy
        small, large = cheapest(prepare(size), prepare(4 * size), rounds=rounds)
        exponent = math.log(large / small, 4)
        if exponent < MOST:
            break
    assert exponent < MOST


def test_a_long_user_id_costs_no_more_than_its_bytes():
    """Within a factor of AES on as many bytes; block by block in Python it would be some thousand."""
    prf, data = Prf(bytes(32)), np.full(1_000_000, 120, np.uint8)
    blocks = np.zeros((len(data) // 16, 2), np.uint64)
    whole, aes = cheapest(lambda: prf.strings(np.array([0, len(data)]), data), lambda: prf.encrypt(blocks))
    assert whole < 300 * max(aes, 1e-4)


def test_a_huge_line_is_read_once(tmp_path):
    """Every range of it stops at its own end; before, each read all that was left of the line."""
    path = tmp_path / "line"
    path.write_bytes(b"first\n" + b"y" * (30 * RANGE_BYTES) + b"\nlast\n")
    size, read = path.stat().st_size, 0
    found = []
    for start in range(0, size, RANGE_BYTES):
        before = read_bytes()
        found += read_pieces(ByteRange(str(path), start, min(start + RANGE_BYTES, size), "uncompressed"), 0)
        read += read_bytes() - before
    assert [(piece.data, piece.length) for piece in found] == [
        (b"first\n", 6),
        (None, 30 * RANGE_BYTES + 1),
        (b"last\n", 5),
    ]
    assert read < 3.5 * size


def read_bytes():
    """What this process has read from files so far."""
    with open("/proc/self/io", encoding="ascii") as file:
        return int(file.readline().split()[1])


# Whole runs.

# The policy, the smaller size, and the largest process at four times that, in MB; ordinary users alone have 270.
RUNS = {"one_user": ("paper", 400_000, 600), "repeated": ("plus", 500_000, 600), "vocabulary": ("plus", 300_000, 900)}


@pytest.fixture(scope="module")
def idle(tmp_path_factory):
    """A run on ordinary users alone: what all others have on top is theirs."""
    directory = tmp_path_factory.mktemp("idle")
    (directory / "in.jsonl").write_bytes(background())
    return measure(extraction(directory / "in.jsonl", directory / "out", "--max_n=6"))


@pytest.mark.campaign
@pytest.mark.parametrize("name", RUNS)
def test_time_and_memory_of_a_run(tmp_path, idle, name):
    policy, size, memory = RUNS[name]
    costs = []
    for actual in (size, 4 * size):
        LOADS[name].write(tmp_path / "in.jsonl", actual)
        flags = [f"--policy={policy}", "--max_n=6", "--overwrite"]
        costs.append(measure(extraction(tmp_path / "in.jsonl", tmp_path / "out", *flags)))
    small, large = costs
    # The small run may add less than the machine's mood to the three seconds of a start: then the line is on the large.
    assert large.cpu - idle.cpu < 4**MOST * max(small.cpu - idle.cpu, 0.5)
    assert large.memory < memory


@pytest.mark.parametrize(("policy", "records"), [("paper", 1), ("plus", 3000)])
def test_one_user_moves_the_release_by_norm_one(tmp_path, policy, records, monkeypatch):
    """600,000 tokens of one user, in one post or in thousands: what others have moves by at most 1 in all.

    Noise is small here (epsilon is 10,000: more than a plan accepts, as its rounding could not be paid for), and the
    others are not clipped. Level 1, since later levels of `plus` weigh grams by noisy weights. The noise of 12 cells is
    beyond sqrt(12) + 8 standard deviations once in 10^15 times.
    """
    monkeypatch.setattr("dpngram.accounting.plan.rounding_cost", lambda *_: RoundingCost(0.0, 0.0))
    rows = small_corpus(3000)
    words = [f"w{i}" for i in range(12)] + [f"mine{i}" for i in range(40_000)]
    text = np.random.default_rng(1).choice(words, 600_000).tolist()
    cut = len(text) // records
    heavy = [{"user": "heavy", "text": " ".join(text[at : at + cut])} for at in range(0, len(text), cut)]
    budget = ["--epsilon", "10000", "--policy", policy, "--max_n", "2", "--max_contributions", "1000"]
    weights = []
    for name, corpus in (("without", rows), ("with", rows + heavy)):
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(jsonl(corpus))
        assert extract(tmp_path / name, "--input", path, "--noise_key", key(tmp_path, name), *budget) == 0
        weights.append(release_of(tmp_path / name))
    before, after = weights
    plan = plan_extraction(epsilon=10000, delta=0.1, max_n=2, max_contributions=1000, policy=policy)
    noise = plan.level(1).sigma / math.sqrt(plan.level(1).rounds[0].share)
    assert noise < 0.05
    common = [(word,) for word in words[:12]]
    moved = math.sqrt(sum((after[gram] - before[gram]) ** 2 for gram in common))
    assert moved < 1 + math.sqrt(2) * noise * (math.sqrt(12) + 8)
    assert not any("mine" in token for gram in after for token in gram)


def key(directory, name):
    write_key(directory / f"{name}.key", name.encode().ljust(32, b"."))
    return directory / f"{name}.key"


def manifest_of(output):
    return json.loads((output / "manifest.json").read_text())


def release_of(output):
    rows = (json.loads(line) for path in output.glob("ngrams-*.jsonl") for line in path.read_text().splitlines())
    return {tuple(row["tokens"]): row["weight"] for row in rows}


def test_a_gram_that_everybody_has(tmp_path):
    """Policy paper: each user's only 4-gram weighs 1, so it has the number of users, up to noise (8 sigma: 1e-15)."""
    users = 20_000
    (tmp_path / "in.jsonl").write_bytes(b"".join(LOADS["everyone"].lines(users)))
    for policy in ("paper", "plus"):
        out = tmp_path / policy
        flags = ["--input", tmp_path / "in.jsonl", "--noise_key", key(tmp_path, policy), "--max_n", "4"]
        assert extract(out, *flags, "--policy", policy) == 0
        weight = release_of(out)["thank", "you", "very", "much"]
        if policy == "paper":
            assert abs(weight - users) < 8 * manifest_of(out)["levels"][3]["sigma"]
        else:
            assert 0.2 * users < weight < users


def test_what_is_empty_or_too_large_changes_nothing(tmp_path):
    """The same bytes with 50,000 empty posts, and a token, an id and marks of megabytes among the records."""
    rows = jsonl(small_corpus(2000))
    hostile = [line for name in ("long_token", "spaces", "marks", "no_spaces") for line in LOADS[name].lines(3_000_000)]
    hostile.append(json.dumps({"user": "u" * 3_000_000, "text": "..."}).encode() + b"\n")
    (tmp_path / "plain.jsonl").write_bytes(rows)
    with (tmp_path / "all.jsonl").open("wb") as file:
        file.writelines([*LOADS["empty"].lines(25_000), rows, *hostile, *LOADS["empty"].lines(25_000)])
    for name in ("plain", "all"):
        flags = ["--input", tmp_path / f"{name}.jsonl", "--noise_key", key(tmp_path, "same"), "--max_n", "3"]
        assert extract(tmp_path / name, *flags) == 0
    notes = notes_of(tmp_path / "all")
    assert notes["bad_records"] == {"over_cap": 3}
    assert files(tmp_path / "all") == files(tmp_path / "plain")
    assert len(release_of(tmp_path / "all")) > 100


@pytest.mark.parametrize("policy", ["paper", "plus"])
@pytest.mark.parametrize("most", [16, pytest.param(64, marks=pytest.mark.campaign)])
def test_many_levels(tmp_path, policy, most):
    """A plan whose noise adds up to its budget, and a chain of 100 tokens that is released at every length."""
    plan = plan_extraction(epsilon=4, delta=1e-7, max_n=most, max_contributions=100, policy=policy)
    assert [level.n for level in plan.levels] == list(range(1, most + 1))
    if policy == "paper":  # as many Gaussians of a user of norm 1 each, and the gate
        spent = math.sqrt(sum(level.sigma**-2 for level in plan.levels) + plan.gate_sigma**-2)
        tail = norm.cdf(spent / 2 - 4 / spent) - math.exp(4) * norm.cdf(-spent / 2 - 4 / spent)
        assert 0 < tail + plan.threshold_delta <= 1e-7
        assert tail + plan.threshold_delta > 0.999e-7
    (tmp_path / "in.jsonl").write_bytes(b"".join(itertools.islice(LOADS["levels"].lines(most), 1000)))
    out = tmp_path / "out"
    flags = ["--input", tmp_path / "in.jsonl", "--noise_key", key(tmp_path, policy), "--policy", policy]
    flags += ["--max_n", most, "--max_contributions", "100", "--decay", "1"]
    assert extract(out, *flags) == 0
    released = release_of(out)
    assert [level["n"] for level in manifest_of(out)["levels"]] == list(range(1, most + 1))
    for n in (1, 2, most // 2, most - 1, most):
        for family in range(5):
            chain = [f"c{family}x{place}" for place in range(CHAIN)]
            found = sum(tuple(chain[at : at + n]) in released for at in range(CHAIN - n + 1))
            assert found > 0.9 * (CHAIN - n + 1)


@pytest.mark.parametrize("kind", [MemoryError, pa.ArrowMemoryError])
def test_memory_that_runs_out_is_no_bad_record(tmp_path, monkeypatch, kind):
    """One huge record must not make its neighbours unreadable: the run fails instead of leaving out their users."""
    (tmp_path / "in.jsonl").write_bytes(background())

    def run_out(*_, **__):
        raise kind

    monkeypatch.setattr(parsing.pyarrow.json, "read_json", run_out)
    assert extract(tmp_path / "out", "--input", tmp_path / "in.jsonl", "--max_bad_fraction", "1") == 1
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert not is_damage(kind(), "uncompressed")
    tokenizer = CallableTokenizer("math:sqrt")
    monkeypatch.setattr(CallableTokenizer, "_splitter", lambda self: run_out)
    with pytest.raises(kind):
        tokenizer.tokenize(pa.array([b"x"], pa.large_binary()))


def test_a_worker_in_trouble_is_no_damaged_file():
    """Threads that cannot be started, a pool that is shut: the run fails. A reader cut short is damage."""
    assert not is_damage(RuntimeError("can't start new thread"), "")
    assert not is_damage(pa.ArrowNotImplementedError("2 GiB in one row of a nested column"), "")
    assert not is_damage(pa.lib.ArrowCapacityError("array cannot contain more than 2147483646 bytes"), "")

    def cut_short():
        yield next(iter(()))

    with pytest.raises(RuntimeError) as caught:
        list(cut_short())
    assert is_damage(caught.value, "")

"""Fixtures of the programs' tests."""

import json
import signal

import numpy as np
import pytest
from helpers.comparisons import SWEEPS, compare
from helpers.keys import write_key
from helpers.runs import BUDGET, small_corpus

from dpngram.pipelines.cli import main


@pytest.fixture
def _usual_signals():
    """The handlers that a program finds when a person starts it. Processes in the background ignore Ctrl-C."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def key(tmp_path):
    """A key of the operator's."""
    path = tmp_path / "noise.key"
    write_key(path, b"0123456789abcdef" * 2)
    return str(path)


EVIL = ["<script>alert(1)</script>", "a&b", '"quoted"', "it's", "<b>", "\u202eright to left"]


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    directory = tmp_path_factory.mktemp("report")
    random = np.random.default_rng(0)
    words = [*(f"w{i}" for i in range(8)), *EVIL]
    rows = [{"user": f"u{i}", "text": " ".join(random.choice(words, 6))} for i in range(400)]
    (directory / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = ["--input", str(directory / "in.jsonl"), "--output", str(directory / "out"), "--tokenizer", "whitespace"]
    assert main(["extract", *flags, *BUDGET, "--quiet"]) == 0
    return directory / "out"


@pytest.fixture(scope="session")
def compared_rows():
    return small_corpus(150)


@pytest.fixture(scope="session")
def compared_file(compared_rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "in.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in compared_rows))
    return path


@pytest.fixture(scope="session")
def compared(compared_file, tmp_path_factory):
    """Every system, three sweeps, two repeats, and nothing exact."""
    output = tmp_path_factory.mktemp("compared") / "out"
    assert compare(output, "--input", compared_file, "--repeats", 2, *SWEEPS) == 0
    return output


@pytest.fixture(scope="session")
def revealed(compared_file, tmp_path_factory):
    output = tmp_path_factory.mktemp("revealed") / "out"
    flags = ["--reveal_exact_counts", "--anonymity", "5,40", "--max_user_tokens", 20, "--as_printed"]
    assert compare(output, "--input", compared_file, *flags) == 0
    return output

"""Records that cannot be used: never a dead job, never a vanished line, never their content."""

import collections
import gzip
import hashlib
import json
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.costs import measure
from helpers.runs import BUDGET, GOOD, extract, files, notes_of
from helpers.runs import jsonl as body

from dpngram.pipelines.io.parsing import Fields, parse_jsonl
from dpngram.transforms.messages import Message

HOSTILE = {
    "bad_json": [
        b"not json",
        b'{"user": "a", "text": "x"',
        b'{"user": "a", "text": "\x00"}',
        b'{"user": "a" "text": "x"}',
        b'{"user": "a", "text": "x",}',
        b"{'user': 'a', 'text': 'x'}",
        b'{"user": "a", "text": "x"} {"user": "b", "text": "y"}',
        b'{"user": "a", "text": "tab\there"}',
        b'{"user": NaN, "text": "x"}'.replace(b"NaN", b"nan"),
        b"{",
        b"}",
        b'{"user": "a", "text": "bad escape \\q"}',
        b'{"user": 12345678901234567890123' + b"4" * 5000 + b', "text": "x"}',
    ],
    "no_object": [b"null", b"[1, 2]", b'"string"', b"17", b"true"],
    "missing_user": [
        b'{"text": "x"}',
        b'{"user": null, "text": "x"}',
        b'{"user": "", "text": "x"}',
        b"{}",
    ],
    "bad_user": [
        b'{"user": true, "text": "x"}',
        b'{"user": 1.5, "text": "x"}',
        b'{"user": ["a"], "text": "x"}',
        b'{"user": {"id": 1}, "text": "x"}',
        b'{"user": 99999999999999999999, "text": "x"}',
    ],
    "missing_text": [b'{"user": "a"}', b'{"user": "a", "text": null}'],
    "bad_text": [b'{"user": "a", "text": 5}', b'{"user": "a", "text": ["x"]}', b'{"user": "a", "text": false}'],
    "bad_utf8": [
        b'{"user": "a", "text": "\xff"}',
        b'{"user": "a", "text": "\xc3("}',
        b"\xfe\xff",
        b'{"user": "\xed\xa0\x80"}',
    ],
    "lone_surrogate": [b'{"user": "a", "text": "\\ud800"}', b'{"user": "\\udfff", "text": "x"}'],
    "repeated_field": [b'{"user": "a", "user": "b", "text": "x"}', b'{"user": "a", "text": "x", "text": "y"}'],
    "too_deep": [b'{"user": "a", "text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"],
}


def test_two_thousand_hostile_lines(tmp_path, capsys):
    """41 kinds of lines, 2,010 in all, between 300 good ones: each is counted under its reason, at its place."""
    random = np.random.default_rng(3)
    kinds = [(reason, line) for reason, lines in HOSTILE.items() for line in lines]
    assert len(kinds) >= 20
    hostile = [kind for kind in kinds if kind[0] != "too_deep"] * 50 + [
        kind for kind in kinds if kind[0] == "too_deep"
    ] * 10
    assert len(hostile) >= 2000
    everything = [(None, json.dumps(row).encode()) for row in GOOD] + hostile
    everything = [everything[i] for i in random.permutation(len(everything))]
    data = b"\n".join(line for _, line in everything)
    (tmp_path / "in.jsonl").write_bytes(data)
    flags = ["--input", tmp_path / "in.jsonl", "--bad_records", tmp_path / "bad", "--max_bad_fraction", "1"]
    assert extract(tmp_path / "out", *flags) == 0
    notes = notes_of(tmp_path / "out")
    expected = collections.Counter(reason for reason, _ in hostile)
    assert notes["bad_records"] == expected
    assert notes["records"] == len(everything)
    listed = [json.loads(line) for path in (tmp_path / "bad").iterdir() for line in path.read_text().splitlines()]
    assert collections.Counter(entry["reason"] for entry in listed) == expected
    places = collections.Counter(data[entry["offset"] : entry["offset"] + entry["length"]] for entry in listed)
    assert places == collections.Counter(line for _, line in hostile)
    assert all(sorted(entry) == ["file", "length", "offset", "reason"] for entry in listed)
    # The good ones are read as if the others were not there.
    (tmp_path / "good.jsonl").write_bytes(body(GOOD))
    parsed = parse_jsonl(data, Fields(("user",), ("text",)))
    users = sorted(user for block in parsed.blocks for user in block.users.to_pylist())
    assert users == sorted(row["user"].encode() for row in GOOD)
    # Too many of them, and nothing is released; one line says so.
    capsys.readouterr()
    refused = ["--input", tmp_path / "in.jsonl", "--noise_key", tmp_path / "noise.key"]
    assert extract(tmp_path / "refused", *refused) == 1
    error = capsys.readouterr().err
    assert error == f"dpngram extract: error: {Message.TOO_MANY_BAD_RECORDS.format(allowed=0.01)}\n"
    assert list((tmp_path / "refused").iterdir()) == []
    assert not (tmp_path / "refused.checkpoints").exists()


def test_a_line_of_a_hundred_megabytes(tmp_path):
    """In a process of its own, with less memory than the line and the run would need together."""
    with open(tmp_path / "in.jsonl", "wb") as file:
        file.write(body(GOOD))
        file.write(b'{"user": "big", "text": "' + b"y" * 100_000_000 + b'"}\n')
        file.write(body(GOOD))
    command = [sys.executable, "-m", "dpngram.pipelines.cli", "extract", "--quiet", "--input", tmp_path / "in.jsonl"]
    command += ["--output", tmp_path / "out", *BUDGET]
    cost = measure(command)
    notes = notes_of(tmp_path / "out")
    assert notes["bad_records"] == {"too_long": 1}
    assert notes["records"] == 601
    assert cost.memory < 900  # MB


def test_broken_files(tmp_path):
    """A gzip file that ends too early, Parquet without the column, with a broken page, and no Parquet at all."""
    whole = gzip.compress(body(GOOD * 50))
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    flags = ["--max_bad_fraction", "1"]
    assert extract(tmp_path / "a", "--input", tmp_path / "cut.jsonl.gz", *flags) == 0
    notes = notes_of(tmp_path / "a")
    assert sum(notes["bad_records"].values()) >= 1
    pq.write_table(pa.table({"user": ["a"] * 9, "body": ["x"] * 9}), tmp_path / "no.parquet")
    pq.write_table(pa.table({"user": ["a", None, "", "b"], "text": ["x", "y", "z", None]}), tmp_path / "null.parquet")
    pq.write_table(pa.table({"user": [1.5, 2.5], "text": ["x", "y"]}), tmp_path / "float.parquet")
    (tmp_path / "junk.parquet").write_bytes(b"PAR1 this is not parquet PAR1")
    pattern = ["--input", tmp_path / "*.parquet", "--input_format", "parquet"]
    assert extract(tmp_path / "b", *pattern, *flags) == 0
    notes = notes_of(tmp_path / "b")
    assert notes["bad_records"] == {"missing_text": 10, "missing_user": 2, "bad_user": 2, "unreadable": 1}
    (tmp_path / "junk.avro").write_bytes(b"Obj\x01 no avro")
    assert extract(tmp_path / "c", "--input", tmp_path / "junk.avro", "--input_format", "avro") == 2


# Runs commands one after another, each in a fork that kills itself before the given file operation below a directory.
# Answers with the exit status, and how many operations there were if the end was reached.
KILLED = """
import json, os, signal, sys
from dpngram.pipelines import extract  # all that a run needs, imported once
from dpngram.pipelines.cli import main

def run(told, moment, directory, words):
    seen = 0

    def watch(event, arguments):
        nonlocal seen
        writes = event in ("os.rename", "os.remove", "os.link", "os.mkdir")
        if event == "open":
            writes = isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if writes and str(arguments[0]).startswith(directory):
            if seen == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1

    sys.addaudithook(watch)
    status = main(words)
    os.write(told, str(seen).encode())
    sys.exit(status)

answers, sys.stdout = sys.stdout, sys.stderr
for line in sys.stdin:
    heard, told = os.pipe()
    child = os.fork()
    if not child:
        run(told, *json.loads(line))
    os.close(told)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([status, int(os.read(heard, 99) or 0)]), file=answers, flush=True)
    os.close(heard)
"""


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.campaign)])
def test_killed_at_many_moments(tmp_path, kills):
    """kill -9 before a file is opened, renamed, linked or removed: no manifest, or all that it names is there with its
    checksum; then --resume gives the same bytes."""
    (tmp_path / "in.jsonl").write_bytes(body(GOOD))
    place = tmp_path / "run"  # the key and its record are written here, too
    place.mkdir()
    command = [sys.executable, "-c", KILLED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as runs:

        def run(moment, out, *more):
            """(exit status, operations)"""
            words = ["extract", "--quiet", *BUDGET, "--input", tmp_path / "in.jsonl", "--output", out, *more]
            words += ["--noise_key", place / "noise.key"]
            runs.stdin.write(json.dumps([int(moment), str(place), [*map(str, words)]]) + "\n")
            return json.loads(runs.stdout.readline())

        assert run(-1, place / "first")[0] == 0  # makes the key and the record of it; later runs do not
        status, moments = run(-1, place / "whole")
        assert status == 0
        assert moments > 25
        unfinished, finished = [], []
        for moment in np.linspace(0, moments - 1, kills).astype(int):
            out = place / f"out{moment}"
            assert run(moment, out) == [-signal.SIGKILL, 0]
            if (out / "manifest.json").exists():
                finished.append(out)
                manifest = json.loads((out / "manifest.json").read_text())
                for level in manifest["levels"]:
                    assert hashlib.sha256((out / level["file"]).read_bytes()).hexdigest() == level["sha256"]
            else:
                unfinished.append(out)
        assert kills / 4 <= len(unfinished) < kills
        for out in unfinished[:: max(1, len(unfinished) // 3)]:
            assert run(-1, out, "--resume")[0] == 0
            assert files(out) == files(place / "whole")
            assert not (place / f"{out.name}.checkpoints").exists()
        if kills >= 20:  # some died while cleaning up
            assert [out for out in finished if (place / f"{out.name}.checkpoints").exists()]
        for out in finished[:1]:
            assert run(-1, out, "--resume")[0] == 0
            assert files(out) == files(place / "whole")
            assert not (place / f"{out.name}.checkpoints").exists()


def test_no_secrets_in_what_is_printed(tmp_path, capsys):
    """A record's content, a user or a token that is not released is in no message and in no file."""
    canary = "canary7391"
    rows = [*GOOD, {"user": canary, "text": canary}]
    (tmp_path / "in.jsonl").write_bytes(body(rows) + b'{"user": "' + canary.encode() + b'", "text": 5}\n')
    flags = ["--input", tmp_path / "in.jsonl", "--bad_records", tmp_path / "bad"]
    assert extract(tmp_path / "out", *flags) == 0
    printed = capsys.readouterr()
    assert canary not in printed.out + printed.err
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.name != "in.jsonl":
            assert canary.encode() not in path.read_bytes()

"""Progress: a live line on a terminal, plain lines elsewhere, metrics of a job elsewhere."""

import os
import pty
import subprocess
import sys
import time
import types

from dpngram.pipelines.launch import progress
from dpngram.pipelines.launch.progress import show_metrics

FLAGS = ["--epsilon", "20", "--delta", "0.1", "--max_n", "3", "--max_contributions", "12"]


def test_metrics_of_a_job_elsewhere(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_POLL", 0.05)
    counter = types.SimpleNamespace(
        key=types.SimpleNamespace(metric=types.SimpleNamespace(name="records")), committed=None, attempted=1234567
    )
    metrics = types.SimpleNamespace(query=lambda _: {"counters": [counter]})
    result = types.SimpleNamespace(state="RUNNING", metrics=lambda: metrics)
    with show_metrics(result, quiet=False):
        time.sleep(0.2)
    assert "RUNNING  1,234,567 records" in capsys.readouterr().err
    del result.metrics  # a runner without any
    with show_metrics(result, quiet=False):
        time.sleep(0.12)
    assert "RUNNING\n" in capsys.readouterr().err
    with show_metrics(result, quiet=True):
        time.sleep(0.12)
    assert capsys.readouterr().err == ""


def test_a_live_line_on_a_terminal(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"user": "a", "text": "b c d"}\n')
    command = [sys.executable, "-m", "dpngram.pipelines.cli", "extract", *FLAGS]
    command += ["--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out")]
    ours, theirs = pty.openpty()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, check=True)
    os.close(theirs)
    seen = b""
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # the other end is closed, and all is read
            break
        if not chunk:
            break
        seen += chunk
    os.close(ours)
    assert b"\r\x1b[2K" in seen
    assert b"reading" in seen or b"level" in seen
    assert b"\n" not in seen  # one line, drawn over and taken away at the end
    assert seen.endswith(b"\r\x1b[2K")
    assert done.stdout.startswith(b"Released 0 n-grams")

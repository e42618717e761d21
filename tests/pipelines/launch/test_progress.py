"""Progress: a live line on a terminal, plain lines elsewhere, metrics of a job elsewhere."""

import os
import pty
import subprocess
import sys
import threading
import types

from dpngram.pipelines.launch import progress
from dpngram.pipelines.launch.progress import show_metrics

FLAGS = ["--epsilon", "20", "--delta", "0.1", "--max_n", "3", "--max_contributions", "12"]


class _Job:
    """A job elsewhere that notes whenever its state is looked at."""

    def __init__(self):
        self._looks = threading.Semaphore(0)

    @property
    def state(self):
        self._looks.release()
        return "RUNNING"

    def wait_for_a_line(self):
        """Until the state is looked at for the second time: what was said of the first look is printed by then."""
        assert all(self._looks.acquire(timeout=300) for _ in range(2))


class _JobWithMetrics(_Job):
    def metrics(self):
        metric = types.SimpleNamespace(metric=types.SimpleNamespace(name="records"))
        counter = types.SimpleNamespace(key=metric, committed=None, attempted=1234567)
        return types.SimpleNamespace(query=lambda _: {"counters": [counter]})


def test_metrics_of_a_job_elsewhere(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_POLL", 0.01)
    for job, said in ((_JobWithMetrics(), "RUNNING  1,234,567 records\n"), (_Job(), "RUNNING\n")):
        with show_metrics(job, quiet=False):
            job.wait_for_a_line()
        assert said in capsys.readouterr().err
    before = set(threading.enumerate())
    with show_metrics(_Job(), quiet=True):
        assert set(threading.enumerate()) <= before  # nobody is there to look
    assert capsys.readouterr().err == ""


def test_a_live_line_on_a_terminal(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"user": "a", "text": "b c d"}\n')
    command = [sys.executable, "-m", "dpngram.pipelines.cli", "extract", *FLAGS]
    command += ["--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out")]
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs) as run:
        os.close(theirs)
        seen = b""
        while True:  # at once: who writes to a terminal that nobody reads has to wait
            try:
                seen += os.read(ours, 65536)
            except OSError:  # the other end is closed, and all is read
                break
        printed = run.stdout.read()
    os.close(ours)
    assert run.returncode == 0
    assert b"\r\x1b[2K" in seen
    assert b"reading" in seen or b"level" in seen
    drawn, advice = seen.split(b"\r\x1b[2Kdpngram: note: ")
    drawn = drawn.split(b"Values from 1 to 8 are usual.\r\n")[-1]  # the warning is written before
    assert b"\n" not in drawn  # one line, drawn over and taken away at the end
    assert advice.count(b"\n") == 1
    assert printed.startswith(b"Released 0 n-grams")


def test_a_long_comparison_prints_few_lines():
    """Fifty runs of nine levels, each begun for itself: 450 levels, at most forty-odd lines, the count never falls."""
    watched = progress._Progress(9, 0, lambda: 0, 50)
    names = [
        f"Compare/Run{run}/Level{n}/Sum Compare/Run{run}/Level{n + 1}/Weigh"
        for n in range(1, 10)
        for run in range(1, 51)
    ]
    lines = [line for name in [*names, "WriteResults"] if (line := watched.enter(name)) is not None]
    assert 30 < len(lines) <= 42
    assert "writing" in lines[-1]
    counts = [int(line.split(" s  ")[1].split(" of 450 levels")[0]) for line in lines[:-1]]
    assert counts == sorted(set(counts))
    assert counts[-1] > 430
    assert watched.enter("WriteResults") is None

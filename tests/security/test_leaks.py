"""What must not be released is nowhere: 500 canaries and the key, looked for in all that a run leaves or says."""

import inspect
import io
import json
import logging
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.display import DisplayData
from helpers.canaries import BUDGET, CANARIES, FORMATS, MARK, encodings, search, traces, write_input
from helpers.keys import write_key
from helpers.runs import checkpoints_of, extract, keep_checkpoints, notes_of

from dpngram.pipelines import extract as extract_module
from dpngram.pipelines.io import writing
from dpngram.pipelines.launch import program
from dpngram.transforms.blocks import columns

KEY = bytes(range(100, 132))
COMMAND = [sys.executable, "-m", "dpngram.pipelines.cli", "extract", *BUDGET, "--max_bad_fraction", "1"]


def test_the_search_finds_what_is_there(tmp_path):
    """Each encoding, wherever it stands; and the canaries are 500 different ones."""
    assert len(set(CANARIES)) == 500
    assert all(canary.startswith(MARK) for canary in CANARIES)
    for name, coded in encodings(MARK).items():
        assert name in traces(b"before " + coded + b" after")
    import base64

    import numpy as np

    for shift in range(4):
        text = "x" * shift + CANARIES[7] + "tail"
        assert any("base64" in name for name in traces(base64.b64encode(text.encode())))
    assert "decimal" in traces(repr(np.frombuffer(b"is " + CANARIES[0].encode(), np.uint8)))
    assert traces("a canary of another kind") == []
    write_input(tmp_path / "in", "jsonl")
    assert len(search(tmp_path)) >= 2


class _Watch:
    """Runs in this process, with the pipeline, its result and all log records at hand."""

    def __init__(self, monkeypatch):
        self.pipelines, self.results, self.log = [], [], io.StringIO()
        make, notes = extract_module.make_pipeline, extract_module.write_operator_notes
        monkeypatch.setattr(extract_module, "make_pipeline", lambda *a, **k: self._keep(self.pipelines, make(*a, **k)))
        monkeypatch.setattr(
            extract_module, "write_operator_notes", lambda d, result, *a: notes(d, self._keep(self.results, result), *a)
        )
        monkeypatch.setattr(program, "quiet_logging", lambda _: self._log_all(monkeypatch))

    @staticmethod
    def _keep(kept, value):
        kept.append(value)
        return value

    def _log_all(self, monkeypatch):
        handler = logging.StreamHandler(self.log)
        monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
        logging.getLogger().setLevel(logging.DEBUG)

    def job(self):
        """The graph as it is sent, options, all display data, all metrics."""
        (pipeline,), shown = self.pipelines, []
        pipeline.visit(_Displays(shown))
        options = json.dumps(PipelineOptions.get_all_options(pipeline._options), default=str)
        metrics = repr(self.results[0].metrics().query()) if self.results else ""
        assert len(shown) > 50
        return pipeline.to_runner_api().SerializeToString() + "\n".join([options, metrics, *shown]).encode()


class _Displays:
    def __init__(self, shown):
        self._shown = shown

    def visit_transform(self, node):
        self.enter_composite_transform(node)

    def enter_composite_transform(self, node):
        if node.transform is not None:
            items = DisplayData.create_from(node.transform).items
            self._shown.append(f"{node.full_label} {[item.get_dict() for item in items]}")

    def leave_composite_transform(self, node):
        pass

    def visit_value(self, value, producer):
        pass


@pytest.fixture
def _log_level():
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


@pytest.mark.usefixtures("_log_level")
@pytest.mark.parametrize("number", range(len(FORMATS)))
def test_no_canary_anywhere(tmp_path, monkeypatch, capfd, number):
    """Every input format and every output format: files, bad records, the job, metrics, screen, logs at any level."""
    name = FORMATS[number]
    watch = _Watch(monkeypatch)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    write_key(tmp_path / "noise.key", KEY)
    pattern = write_input(tmp_path / "in", name)
    flags = ["--input", pattern, "--input_format", name, "--bad_records", tmp_path / "bad", "--max_bad_fraction", "1"]
    flags += ["--policy", ("plus", "paper")[number % 2], "--noise_key", tmp_path / "noise.key", "--verbose"]
    flags += ["--output_format", ("jsonl", "csv", "parquet", "avro", "vocab", "jsonl")[number]]
    keep_checkpoints(monkeypatch)
    assert extract(tmp_path / "out", *flags, *BUDGET) == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    notes = notes_of(tmp_path / "out")
    assert manifest["released"] > 10
    assert sum(notes["bad_records"].values()) >= 50
    assert len(checkpoints_of(tmp_path / "out")) >= 2
    assert list((tmp_path / "tmp").iterdir()) == []
    inputs = {tmp_path / "in", *(tmp_path / "in").iterdir()}
    assert len(search(tmp_path / "in")) >= 2
    assert search(tmp_path, leave_out=inputs) == {}
    assert search(tmp_path, KEY, leave_out={*inputs, tmp_path / "noise.key"}) == {}
    printed = capfd.readouterr()
    log = watch.log.getvalue()
    assert "Processing [" in log  # Beam writes elements at this level
    for said in (printed.out, printed.err, log, watch.job()):
        assert traces(said) == []
        assert traces(said, KEY) == []


@pytest.mark.usefixtures("_log_level")
def test_a_small_corpus_is_not_in_the_log(tmp_path, monkeypatch):
    """Long arrays are shortened when they are printed; those of a few words are not."""
    watch = _Watch(monkeypatch)
    (tmp_path / "in.jsonl").write_text(json.dumps({"user": CANARIES[0], "text": f"{CANARIES[1]} {CANARIES[2]}"}))
    assert extract(tmp_path / "out", "--input", tmp_path / "in.jsonl", "--max_n", "1", "--verbose") == 0
    assert "Processing [" in watch.log.getvalue()
    assert traces(watch.log.getvalue()) == []


def test_a_block_shows_nothing_of_itself():
    """Its text form gets into logs and into the messages of other people's exceptions."""
    assert len(columns._CLASSES) >= 8
    for kind in columns._CLASSES.values():
        if inspect.isabstract(kind):
            continue
        assert repr(object.__new__(kind)) == f"<{kind.__name__}>"


class _Process:
    """A run in a process of its own, watched while it works: what lies in its temporary directory, mode and content."""

    def __init__(self, tmp_path, *flags, code=""):
        self.tmp, self.out, self.keys, self.seen = tmp_path / "tmp", tmp_path / "out", {}, set()
        self.tmp.mkdir(exist_ok=True)
        command = [*COMMAND, *map(str, flags), "--output", str(self.out)]
        if code:
            command[1:3] = ["-c", f"{code}\nimport sys\nfrom dpngram.pipelines.cli import main\nsys.exit(main())"]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env={
                **os.environ,
                "TMPDIR": str(self.tmp),
                "PYTHONPATH": os.pathsep.join(sys.path),
                "PYTHONWARNINGS": "ignore::FutureWarning",  # Google's old packages; the program does so, but later
            },
        )

    def watch(self, until=lambda self: False):
        """Looks until it has ended, or until something is so."""
        while self.process.poll() is None and not until(self):
            for directory, _, names in os.walk(self.tmp):  # which takes what goes meanwhile for gone
                for name in names:
                    self._look(Path(directory, name))
            for place in self._processes():
                for name in ("cmdline", "environ"):
                    self._note(place / name)
            time.sleep(0.05)

    def end(self):
        self.watch()
        self.printed = b"".join(self.process.communicate())
        return self.process.returncode

    def _look(self, path):
        try:
            if ".key" in path.name and ".used" not in path.name:  # also while it is written, under another name
                modes = path.stat().st_mode, path.parent.stat().st_mode
                if key := path.read_bytes():
                    self.keys.setdefault(key, set()).add(modes)
                    (self.tmp.parent / "seen").touch()
            elif path.is_file():
                self.seen.add(path.read_bytes())
        except FileNotFoundError:
            return  # gone meanwhile

    def _note(self, path):
        try:
            self.seen.add(path.read_bytes())
        except (FileNotFoundError, ProcessLookupError):
            return

    def _processes(self):
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        try:
            pids = [self.process.pid, *children.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            return []
        return [Path(f"/proc/{pid}") for pid in pids]


# A run that goes on only when somebody has seen its key.
SEEN = """
import os, time
from dpngram.transforms.randomness.noise_key import KeyReference
create = KeyReference.create_if_missing

def create_and_wait(self):
    create(self)
    while not os.path.exists("seen"):
        time.sleep(0.01)

KeyReference.create_if_missing = create_and_wait
"""
WORKERS = ["--direct_running_mode=multi_processing", "--direct_num_workers=2", "--default_sdk_harness_log_level=DEBUG"]


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc to look at other processes")
@pytest.mark.parametrize("ending", ["success", "failure", "terminated"])
def test_a_fresh_key_is_in_its_file_only_and_gone_at_the_end(tmp_path, ending):
    """With workers of their own that log all they can; in a run that fails; in one that is told to stop (SIGTERM)."""
    pattern = write_input(tmp_path / "in", "jsonl")
    more = [*WORKERS, "--verbose", "--policy", "paper", "--max_n", "1"]
    if ending != "success":
        (tmp_path / "in" / "broken.jsonl").write_text(f"{CANARIES[0]}\n" * 1000)
        more = ["--max_bad_fraction", "0", "--policy", "plus", "--input", tmp_path / "in" / "broken.jsonl"]
    run = _Process(tmp_path, "--input", pattern, *more, code=SEEN)
    if ending == "terminated":
        run.watch(until=lambda self: self.keys)
        run.process.terminate()
    assert run.end() == (0 if ending == "success" else 1)
    ((key, modes),) = run.keys.items()
    assert len(key) == 32
    assert {(stat.S_IMODE(file), stat.S_IMODE(directory)) for file, directory in modes} == {(0o600, 0o700)}
    assert not list(run.tmp.rglob("*.key"))
    if ending != "terminated":  # Beam's own directory may stay then
        assert list(run.tmp.iterdir()) == []
    assert (run.out / "manifest.json").exists() == (ending == "success")
    inputs = {tmp_path / "in", *(tmp_path / "in").iterdir()}
    assert search(tmp_path, MARK, key, leave_out=inputs) == {}
    for said in (run.printed, *run.seen):
        assert traces(said) + traces(said, key) == []
    if ending == "success":
        assert b"sdk_worker_main" in run.printed  # the workers' logs are there
    else:
        assert run.printed.count(b"\n") == 1 + run.printed.count(b" s  ")  # one line, and progress


SLOW = """
import time
from dpngram.pipelines.io import writing
writing._Writer.write = lambda *a, **k: time.sleep(60)
"""


def test_a_run_that_is_killed_leaves_only_what_is_released(tmp_path):
    """kill -9 with a --noise_key: checkpoints, the record beside the key, nothing else; no canary, no key bytes."""
    pattern = write_input(tmp_path / "in", "jsonl")
    (tmp_path / "key").mkdir()
    key = tmp_path / "key" / "noise.key"
    run = _Process(tmp_path, "--input", pattern, "--noise_key", key, code=SLOW)
    run.watch(until=lambda self: len([path for path in checkpoints_of(self.out) if path.suffix == ".block"]) >= 5)
    run.process.kill()
    run.process.communicate()
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert list(run.out.iterdir()) == []
    places = [tmp_path / "out.checkpoints", run.tmp, key.parent]
    assert {*tmp_path.iterdir()} - {*places} == {run.out, tmp_path / "in"}
    left = {path.relative_to(tmp_path) for place in places for path in place.iterdir()}
    left = {path for path in left if not path.match("tmp/beam-pipeline-temp*")}  # Beam's, searched below
    kinds = ("out.checkpoints/checkpoint-*.block*", "key/noise.key", "key/*.used")
    assert all(any(path.match(kind) for kind in kinds) for path in left)
    assert len([path for path in left if path.suffix == ".block"]) >= 5
    assert len([path for path in left if path.suffix == ".used"]) == 1
    inputs = {tmp_path / "in", *(tmp_path / "in").iterdir()}
    assert search(tmp_path, leave_out=inputs) == {}
    assert search(tmp_path, key.read_bytes(), leave_out={*inputs, key}) == {}
    assert stat.S_IMODE(places[0].stat().st_mode) == 0o700
    for path in [*places[0].iterdir(), *key.parent.iterdir()]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("flag", ["--noise_key", "--bad_records", "--operator_notes", "--checkpoints"])
@pytest.mark.parametrize("place", ["out", "out/deep", "link/x", "out/../out/x"])
def test_nothing_private_in_the_output(tmp_path, capfd, flag, place):
    """Whoever publishes the directory would publish them; with the key the noise can be taken off."""
    (tmp_path / "in.jsonl").write_text('{"user": "a", "text": "b"}\n')
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "out")
    more = ["--noise_key", tmp_path / "noise.key"] if flag == "--checkpoints" else []
    assert extract(tmp_path / "out", "--input", tmp_path / "in.jsonl", flag, tmp_path / place, *more) == 2
    assert f"{flag[2:]} must not be in the output" in capfd.readouterr().err
    assert list((tmp_path / "out").iterdir()) == []


def test_what_a_dying_worker_was_writing_goes(tmp_path, monkeypatch):
    """A name that a file has while it is written: of this try, when it fails; of others, when the run ends."""
    (tmp_path / "in.jsonl").write_text('{"user": "a", "text": "b"}\n')
    left = f"ngrams-01.jsonl.{'0' * 16}.tmp"
    write = writing._Writer.write

    def dying(self, *args, **more):
        (tmp_path / "out" / left).write_text("half a li")
        return write(self, *args, **more)

    monkeypatch.setattr(writing._Writer, "write", dying)
    assert extract(tmp_path / "out", "--input", tmp_path / "in.jsonl") == 0
    assert not list((tmp_path / "out").glob("*.tmp"))

    def broken(*_):
        raise OSError("the disk is gone")

    monkeypatch.setattr(writing.FileSystems, "rename", broken)
    with pytest.raises(OSError, match="the disk is gone"):
        writing.write_whole(str(tmp_path / "file"), b"data")
    assert not list(tmp_path.glob("file*"))

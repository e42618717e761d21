"""How much memory a local run may take, and what happens beyond: the same release, and nothing left on disk."""

import json
import os
import resource
import subprocess
import sys
import tempfile

import pytest
from helpers.keys import write_key
from helpers.runs import extract, files, jsonl, small_corpus

from dpngram.accounting import ParameterError
from dpngram.pipelines import extract as extract_module
from dpngram.pipelines.launch import local_memory
from dpngram.pipelines.launch.beam_flags import beam_options
from dpngram.pipelines.launch.flags import OneLineParser
from dpngram.pipelines.launch.local_memory import machine_memory, memory_flags, parse_size, scratch_from_flags
from dpngram.transforms.blocks import scratch as scratch_module

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GB", 2 * 10**9),
        (" 1.5 gib ", 3 << 29),
        ("500MB", 5 * 10**8),
        ("1KiB", 1024),
        (".5TB", 5 * 10**11),
        ("0B", 0),
        ("17b", 17),
    ],
)
def test_sizes(text, size):
    assert parse_size("memory", text) == size


@pytest.mark.parametrize("text", ["", "2", "GB", "-1GB", "1e3GB", "2GBs", "nanGB", "2 PB", "1.2.3GB", "2G\nB", "٣GB"])
def test_what_is_no_size(text):
    with pytest.raises(ParameterError, match="memory must be a size such as 2GB"):
        parse_size("memory", text)


def system(root, groups, limits):
    """The files in which a system says what a process may take."""
    for path, text in {
        "proc/self/cgroup": groups,
        **{f"sys/fs/cgroup/{at}": f"{text}\n" for at, text in limits.items()},
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return machine_memory(root)


def test_memory_of_the_machine(tmp_path):
    assert machine_memory(tmp_path) == MACHINE  # no cgroups
    assert 0 < machine_memory() <= MACHINE


@pytest.mark.parametrize(
    ("groups", "limits", "least"),
    [
        ("0::/\n", {"memory.max": 10**8}, 10**8),  # version 2, in a container
        ("0::/user/app\n", {"user/app/memory.max": "max", "user/memory.max": 10**8}, 10**8),  # one above counts, too
        ("0::/user/app\n", {"user/app/memory.max": 10**7, "user/memory.max": 10**8}, 10**7),
        ("0::/user/app\n", {"user/app/memory.max": "max"}, MACHINE),
        ("0::/host/name\n", {"memory.max": 10**8}, 10**8),  # in a container, under the name that the host has for it
        ("5:memory:/docker/1\n0::/\n", {"memory/docker/1/memory.limit_in_bytes": 10**8}, 10**8),  # version 1
        ("5:memory:/docker/1\n", {"memory/memory.limit_in_bytes": 10**8}, 10**8),
        ("5:memory:/\n", {"memory/memory.limit_in_bytes": (1 << 63) - 4096}, MACHINE),  # which is no limit
        ("3:cpu,cpuacct:/a\n1:name=systemd:/b:c\n", {}, MACHINE),
    ],
)
def test_memory_of_a_container(tmp_path, groups, limits, least):
    assert system(tmp_path, groups, limits) == least


def test_limits_of_a_process(tmp_path, monkeypatch):
    limits = {resource.RLIMIT_AS: (-1, -1), resource.RLIMIT_DATA: (10**8, -1)}
    monkeypatch.setattr(resource, "getrlimit", limits.get)
    assert machine_memory(tmp_path) == 10**8


MOUNTS = "d / ext4 rw 0 0\nt /tmp tmpfs rw 0 0\ne /tmp/disk ext4 rw 0 0\nr /rammed ramfs rw 0 0\n"


@pytest.mark.parametrize(
    ("directory", "is_memory"),
    [("/", False), ("/tmp", True), ("/tmp/a/b", True), ("/tmp/disk/a", False), ("/tmporary", False), ("/rammed", True)],
)
def test_what_is_no_disk(tmp_path, directory, is_memory):
    (tmp_path / "mounts").write_text(MOUNTS)
    assert local_memory._in_memory(directory, str(tmp_path / "mounts")) is is_memory
    assert not local_memory._in_memory(directory, str(tmp_path / "none"))


def test_the_default_place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert local_memory._directory(None) == str(tmp_path)
    monkeypatch.setattr(local_memory, "_in_memory", lambda _: True)
    monkeypatch.delenv("TMPDIR", raising=False)
    assert local_memory._directory(None) in ("/var/tmp", str(tmp_path))  # the latter where there is no /var/tmp
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # somebody chose it
    assert local_memory._directory(None) == str(tmp_path)


def make(size, *words):
    parser = OneLineParser("program", "")
    parser.add_flags(memory_flags())
    flags, beam_words = parser.parse_known_args(list(words))
    return scratch_from_flags(flags, beam_options(beam_words), size)


def test_when_blocks_go_to_disk(tmp_path):
    """From the first on if much is expected; otherwise when much has come."""
    directory = f"--scratch={tmp_path}"
    large, small = make(1 << 30, "--memory=2GB", directory)(), make(1 << 20, "--memory=2GB", directory)()
    assert [in_memory(scratch, 5000) for scratch in (large, small)] == [False, True]
    unknown = make(0, "--memory=301MB", directory)()
    assert [in_memory(unknown, 10**8) for _ in range(4)] == [True, True, True, False]


def in_memory(scratch, size):
    """Whether the next block of this size stays in memory."""
    before = scratch.written
    assert scratch.load(scratch.store(bytes(size))) == bytes(size)
    return scratch.written == before


def test_the_default_is_half_of_the_machine(monkeypatch):
    monkeypatch.setattr(local_memory, "machine_memory", lambda: 4 * 10**9)
    assert [in_memory(make(size)(), 5000) for size in (2 * 10**8, 3 * 10**8)] == [True, False]


@pytest.mark.parametrize("flag", ["--memory=1GB", "--scratch=/"])
@pytest.mark.parametrize(
    "words",
    [
        ["--runner=FlinkRunner"],
        ["--runner=DataflowRunner"],
        ["--runner=PrismRunner"],
        ["--direct_running_mode=multi_processing"],
    ],
)
def test_only_for_threads_of_this_machine(flag, words):
    """Said where it is asked for; otherwise these runs have no scratch."""
    assert make(1 << 40, *words) is None
    with pytest.raises(ParameterError, match=r"^(memory|scratch) must be left out unless threads of this machine"):
        make(0, flag, *words)


def test_a_directory_that_cannot_be_written(tmp_path, capsys):
    write_key(tmp_path / "run.key", b"k" * 32)
    (tmp_path / "in.jsonl").write_bytes(jsonl(small_corpus(5)))
    flags = ["--input", tmp_path / "in.jsonl", "--noise_key", tmp_path / "run.key"]
    assert extract(tmp_path / "out", *flags, "--scratch", tmp_path / "none") == 2
    assert "scratch must be a directory to write in" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("policy", ["paper", "plus"])
def test_the_release_is_the_same(tmp_path, monkeypatch, capsys, policy):
    """Byte for byte, with every block on disk, by one thread and by two."""
    (tmp_path / "in.jsonl").write_bytes(jsonl(small_corpus(300)))
    write_key(tmp_path / "run.key", b"k" * 32)
    disk = tmp_path / "disk"
    disk.mkdir()
    monkeypatch.setattr(scratch_module, "LEAST", 0)
    flags = ["--input", tmp_path / "in.jsonl", "--noise_key", tmp_path / "run.key", "--policy", policy]
    flags += ["--max_n", "2"]
    assert extract(tmp_path / "memory", *flags) == 0
    assert "on disk" not in capsys.readouterr().err
    written = []

    class Watched(scratch_module.Scratch):
        def close(self):
            written.append(self.written)
            super().close()

    monkeypatch.setattr(local_memory, "Scratch", Watched)
    for threads in (1, 2):
        more = ["--memory", "0B", "--scratch", disk, f"--direct_num_workers={threads}"]
        assert extract(tmp_path / f"disk{threads}", *flags, *more) == 0
        assert files(tmp_path / f"disk{threads}") == files(tmp_path / "memory")
    assert min(written) > 10_000
    assert list(disk.iterdir()) == []


def test_progress_tells_what_is_on_disk(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scratch_module, "LEAST", 0)
    (tmp_path / "in.jsonl").write_bytes(jsonl(small_corpus(30)))
    words = ["--input", tmp_path / "in.jsonl", "--output", tmp_path / "out", "--max_n", "1", "--memory=0B"]
    words += ["--epsilon", "20", "--delta", "0.1", "--max_contributions", "12", "--scratch", tmp_path]
    assert extract_module.run([*map(str, words)]) == 0
    said = capsys.readouterr().err
    assert f"blocks go to {tmp_path}, encrypted (" in said
    assert " MB on disk\n" in said


# Runs that end badly, in one process each, all forked from one that has imported everything. Each is stopped where
# the posts of a user meet: the text is on disk by then.
DRIVER = """
import json, os, resource, signal, sys, warnings
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it
warnings.simplefilter("ignore")  # Google's packages warn of their own versions when they are imported
from dpngram.pipelines import cli, extract
from dpngram.transforms import group_users
from dpngram.transforms.blocks import scratch

directory, canary, words = json.loads(sys.argv[1])
scratch.LEAST = 0
real = group_users.group_users

def die(how):
    def dying(*rest, **more):
        names = os.listdir(directory)
        (one,) = scratch._OPEN.values()
        held = b"".join(os.pread(file.number, 1 << 30, 0) for file in one._files.values())
        print(json.dumps([names, len(held), canary.encode() in held]), flush=True)
        os.kill(os.getpid(), how)
        return real(*rest, **more)
    group_users.group_users = dying
    return words

def fill():
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, -1))
    return words

ends = [lambda: die(signal.SIGTERM), lambda: die(signal.SIGINT), lambda: die(signal.SIGKILL), fill]
for number, prepare in enumerate(ends):
    child = os.fork()
    if not child:
        os._exit(cli.main([*prepare(), "--output", f"{directory}-out{number}"]))
    print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])), flush=True)
"""


def test_runs_that_end_badly(tmp_path):
    """SIGTERM, Ctrl-C, kill -9 and a full disk: nothing to read while they run, nothing afterwards, no release."""
    disk, canary = tmp_path / "disk", "canaryword"
    disk.mkdir()
    (tmp_path / "in.jsonl").write_bytes(jsonl(small_corpus(100, words=[canary, "b", "c", "d"])))
    words = ["extract", "--quiet", "--epsilon=20", "--delta=0.1", "--max_n=1", "--max_contributions=12"]
    words += ["--policy=paper", "--memory=0B"]
    words += ["--input", tmp_path / "in.jsonl", "--scratch", disk]
    work = json.dumps([str(disk), canary, [str(word) for word in words]])
    environment = {**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "0"}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, work], capture_output=True, text=True, check=False, env=environment
    )
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [said[place] for place in (1, 3, 5, 6)] == [1, 130, -9, 1], done.stderr
    for names, size, readable in said[:6:2]:
        assert names == []
        assert size > 5000
        assert not readable
    assert list(disk.iterdir()) == []
    lines = done.stderr.splitlines()
    assert lines[:2] == ["dpngram extract: error: stopped."] * 2
    assert lines[2:] == [
        "dpngram extract: error: scratch: the disk is full; --scratch DIR names a directory on a larger one."
    ]
    outputs = [path.name for path in tmp_path.glob("disk-out*/*")]
    assert outputs == []

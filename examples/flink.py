"""A Flink cluster on this machine, to try dpngram on: real processes, nothing but Java, Maven and pip needed.

    python examples/flink.py -- extract --input posts.jsonl --output released --noise_key run.key ...

fetches Flink and Beam's job server into a cache, starts a JobManager, TaskManagers and the job server on loopback, runs
that `dpngram` command on them and stops them all. Each TaskManager starts Python workers of its own (`PROCESS`
environment). A cluster of your own needs the same three things: Beam's job server for its version of Flink, a Python on
every worker that can import dpngram, and a noise key and files that every worker can read.
"""

import argparse
import contextlib
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# A pair that works together, and with the Beam of this project: the protocol between a job server and Python has not
# changed in years, so the job server may be older than the Python SDK.
FLINK = "1.19.3"
BEAM_RUNNER = "2.62.0"

_POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>dpngram</groupId><artifactId>job-server</artifactId><version>1</version>
<dependencies><dependency><groupId>org.apache.beam</groupId>
<artifactId>beam-runners-flink-{flink}</artifactId><version>{beam}</version></dependency></dependencies>
</project>"""

_LOGGING = """rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
appender.console.name = console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1} %m%n
"""

# What a TaskManager starts for Python's steps.
_WORKER = Path(__file__).absolute().with_name("flink_worker.py")

# What Flink's own start scripts open to it on Java 17.
_OPENED = (
    "java.lang java.lang.reflect java.net java.io java.nio java.text java.time java.util java.util.concurrent "
    "java.util.concurrent.atomic java.util.concurrent.locks sun.net.util sun.nio.ch"
)


# Class paths. Beam's classes are on the cluster's own, too: then a Python worker outlives the stage it was started for.
_CLUSTER = ("flink/*.jar", "beam/*.jar")
_JOB_SERVER = ("beam/*.jar", "flink/log4j-*.jar")


def fetch(cache: Path | None = None) -> Path:
    """A directory with Flink (flink/) and Beam's job server (beam/); fetched once, then taken from the cache."""
    if cache is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dpngram"
    home = cache / f"flink-{FLINK}-beam-{BEAM_RUNNER}"
    if home.is_dir():
        return home
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "flink.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be fetching: then it is waited for
        if not home.is_dir():
            building = Path(tempfile.mkdtemp(dir=cache))
            try:
                _fetch_flink(building)
                _fetch_job_server(building)
                building.rename(home)
            finally:
                shutil.rmtree(building, ignore_errors=True)
    return home


def _fetch_flink(into: Path) -> None:
    package = f"apache-flink-libraries=={FLINK}"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(into), package]
    subprocess.run(pip, check=True)
    (archive,) = into.glob("apache*flink*libraries*.tar.gz")
    with tarfile.open(archive) as file:
        for member in file:
            parts = Path(member.name).parts
            if parts[1:3] == ("deps", "lib") and member.isfile() and (content := file.extractfile(member)):
                target = into / "flink" / parts[-1]
                target.parent.mkdir(exist_ok=True)
                with content, target.open("wb") as out:
                    shutil.copyfileobj(content, out)
    archive.unlink()


def _fetch_job_server(into: Path) -> None:
    """The job server as one jar, since every job sends it to the cluster: Beam's runner and what it depends on."""
    pom, parts = into / "pom.xml", into / "parts"
    pom.write_text(_POM.format(flink=FLINK.rpartition(".")[0], beam=BEAM_RUNNER))
    maven = ["mvn", "--batch-mode", "--quiet", "--file", str(pom), "dependency:copy-dependencies"]
    subprocess.run([*maven, f"-DoutputDirectory={parts}"], check=True)
    services: dict[str, bytes] = {}
    seen: set[str] = set()
    (into / "beam").mkdir()
    with zipfile.ZipFile(into / "beam" / "job-server.jar", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as merged:
        for jar in sorted(parts.glob("*.jar")):
            with zipfile.ZipFile(jar) as part:
                for name in part.namelist():
                    if name.startswith("META-INF/services/") and not name.endswith("/"):
                        services[name] = services.get(name, b"") + part.read(name) + b"\n"
                    elif not name.endswith(("/", ".SF", ".DSA", ".RSA", "MANIFEST.MF")) and name not in seen:
                        seen.add(name)
                        merged.writestr(name, part.read(name))
        for name, providers in services.items():
            merged.writestr(name, providers)
    shutil.rmtree(parts)


class FlinkCluster:
    """One JobManager, some TaskManagers with their Python workers, and Beam's job server, on loopback.

    Args:
        home: from `fetch`.
        directory: for logs and temporary files.
        task_managers: how many.
        heap: of each TaskManager, in MiB.
        parts: into how many each step is cut (default: one for each TaskManager); batch only, if more than that.
        worker_memory: the most that a Python worker may take for its data, in MiB; beyond, it fails.
        settings: more of Flink's configuration.
    """

    def __init__(
        self,
        home: Path,
        directory: Path,
        *,
        task_managers: int = 2,
        heap: int = 1024,
        parts: int | None = None,
        worker_memory: int | None = None,
        settings: dict[str, str] | None = None,
    ) -> None:
        self.home, self.directory = home, directory
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._task_managers, self._heap, self._worker_memory = task_managers, heap, worker_memory
        self._parts = task_managers if parts is None else parts
        self._rest = self._rpc = self._jobs = 0  # ports: every process takes a free one, and says so in its log
        self._settings = settings or {}

    @property
    def flags(self) -> list[str]:
        """What to add to a `dpngram` command to run it here."""
        return [
            "--runner=PortableRunner",
            f"--job_endpoint=127.0.0.1:{self._jobs}",
            "--environment_type=PROCESS",
            "--environment_config=" + json.dumps({"command": str(self.directory / "worker.sh")}),
            "--environment_cache_millis=5000",  # keeps a Python worker for the next stage
            f"--parallelism={self._parts}",
            # All that a step gives for one of its parts is kept in the heap until the part is done. So a large input
            # needs many parts; shuffles that go to disk let them take turns.
            *(["--execution_mode_for_batch=BATCH_FORCED"] if self._parts > self._task_managers else []),
        ]

    def __enter__(self) -> "FlinkCluster":
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "temporary").mkdir(exist_ok=True)
        (self.directory / "config.yaml").write_text(
            "".join(f"{name}: {value}\n" for name, value in self._configuration().items())
        )
        (self.directory / "log4j2.properties").write_text(_LOGGING)
        worker = self.directory / "worker.sh"
        limit = (
            ""
            if self._worker_memory is None
            # Stacks count, used or not, and a worker has dozens of threads: 1 MiB for each instead of 8. So does what
            # BLAS keeps for its threads. What is freed goes back at once, and all of it comes from one allocator.
            else "export MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=262144 ARROW_DEFAULT_MEMORY_POOL=system\n"
            f"export OPENBLAS_NUM_THREADS=1\nulimit -s 1024\nulimit -d {self._worker_memory * 1024}\n"
        )
        command = f'exec {shlex.quote(sys.executable)} {shlex.quote(str(_WORKER))} "$@"\n'
        worker.write_text(f"#!/bin/sh\n{limit}{command}")
        worker.chmod(0o755)
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.processes):
            self.kill(name)

    def _start(self) -> None:
        entry = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
        self._java("jobmanager", 1024, _CLUSTER, entry, "--configDir", str(self.directory))
        self._rpc = self._port("jobmanager", r"Actor system started at \S+://flink@127\.0\.0\.1:(\d+)\s")
        self._rest = self._port("jobmanager", r"Rest endpoint listening at 127\.0\.0\.1:(\d+)\s")
        for number in range(self._task_managers):
            self.start_task_manager(number)
        server = "org.apache.beam.runners.flink.FlinkJobServerDriver"
        self._java(
            "jobserver",
            1024,
            _JOB_SERVER,
            server,
            f"--flink-master=127.0.0.1:{self._rest}",
            f"--flink-conf-dir={self.directory}",
            "--job-host=127.0.0.1",
            "--job-port=0",
            "--artifact-port=0",
            "--expansion-port=0",
            f"--artifacts-dir={self.directory / 'artifacts'}",
        )
        self._jobs = self._port("jobserver", r"JobService started on \S*:(\d+)\s")
        self._wait("the TaskManagers", lambda: self.overview()["taskmanagers"] == self._task_managers)

    def start_task_manager(self, number: int) -> None:
        runner = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
        name = f"taskmanager{number}"
        where = ["--configDir", str(self.directory), f"-Djobmanager.rpc.port={self._rpc}"]
        self._java(name, self._heap + 128, _CLUSTER, runner, *where)

    def kill(self, name: str) -> None:
        """Kills a process of the cluster, and what it has started, without a chance to say goodbye."""
        process = self.processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def python_workers(self) -> list[int]:
        """The process ids of the Python workers that run now."""
        found = []
        mine = {process.pid for process in self.processes.values()}
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.getpgid(int(entry.name)) not in mine:
                    continue
                command = (entry / "cmdline").read_bytes().split(b"\0")
                if str(_WORKER).encode() in command:
                    found.append(int(entry.name))
        return sorted(found)

    def overview(self) -> Any:
        """What Flink says of the cluster."""
        return self.ask("overview")

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._rest}/{path}", timeout=10) as answer:
            return json.load(answer)

    def _configuration(self) -> dict[str, str]:
        loopback = "127.0.0.1"
        return {
            "jobmanager.rpc.address": loopback,
            "jobmanager.bind-host": loopback,
            "jobmanager.rpc.port": "0",
            "rest.address": loopback,
            "rest.bind-address": loopback,
            "rest.bind-port": "0",
            "taskmanager.host": loopback,
            "taskmanager.bind-host": loopback,
            "taskmanager.cpu.cores": "1",
            # Two, so that one TaskManager can be lost; parts that take turns need only one, and half the memory.
            "taskmanager.numberOfTaskSlots": "1" if self._parts > self._task_managers else "2",
            "taskmanager.memory.task.heap.size": f"{self._heap}m",
            "taskmanager.memory.task.off-heap.size": "128m",
            "taskmanager.memory.framework.heap.size": "128m",
            "taskmanager.memory.framework.off-heap.size": "128m",
            "taskmanager.memory.network.min": "256m",
            "taskmanager.memory.network.max": "256m",
            "taskmanager.network.sort-shuffle.min-buffers": "32",  # a level has many small shuffles
            "taskmanager.memory.managed.size": "256m",
            "taskmanager.memory.jvm-metaspace.size": "256m",
            "taskmanager.memory.jvm-overhead.min": "192m",
            "taskmanager.memory.jvm-overhead.max": "192m",
            "classloader.resolve-order": "parent-first",
            "cluster.evenly-spread-out-slots": "true",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "10",
            "restart-strategy.fixed-delay.delay": "8 s",  # longer than a dead Python worker is kept
            "cluster.uncaught-exception-handling": "FAIL",  # out of memory is the end of a process, not of a thread
            # A window of a stream passes some 60 tasks. What one of them gives is sent at once: a shorter wait than the
            # default keeps a thread for each task busy.
            "execution.buffer-timeout.interval": "0 ms",
            "heartbeat.interval": "2000",
            "heartbeat.timeout": "10000",
            "io.tmp.dirs": str(self.directory / "temporary"),
            **self._settings,
        }

    def _java(self, name: str, heap: int, libraries: Sequence[str], main: str, *arguments: str) -> None:
        classes = [str(path) for pattern in libraries for path in sorted(self.home.glob(pattern))]
        self._popen(
            name,
            [
                "java",
                *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED.split()),
                f"-Xmx{heap}m",
                f"-Dlog4j.configurationFile={self.directory / 'log4j2.properties'}",
                "-cp",
                os.pathsep.join(classes),
                main,
                *arguments,
            ],
        )

    def _popen(self, name: str, command: list[str]) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def _port(self, name: str, said: str) -> int:
        """The port that a process has taken, once it says so."""
        log = self.directory / f"{name}.log"
        found: list[str] = []
        self._wait(name, lambda: found.extend(re.findall(said, log.read_text(errors="replace"))) or found)
        return int(found[0])

    def _wait(self, what: str, ready: Any, seconds: float = 300) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise RuntimeError(f"{name} ended; see {self.directory / name}.log")
            with contextlib.suppress(OSError):
                if ready():
                    return
            time.sleep(0.2)
        raise TimeoutError(f"{what} did not start in {seconds:.0f} s; the logs are in {self.directory}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Run a dpngram command on a Flink cluster of its own, on this machine."
    )
    parser.add_argument("--task_managers", type=int, default=2)
    parser.add_argument("--heap", type=int, default=1024, metavar="MIB", help="of a TaskManager (default 1024)")
    parser.add_argument("--parts", type=int, help="of each step; more for large inputs (default: one a TaskManager)")
    parser.add_argument("--worker_memory", type=int, metavar="MIB", help="most data of a Python worker (default: any)")
    parser.add_argument("--logs", help="directory that keeps the logs (default: thrown away)")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- extract ..., or nothing: only fetch")
    given = parser.parse_args(argv)
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    home = fetch()
    if not command:
        print(home)
        return 0
    with contextlib.ExitStack() as held:
        logs = given.logs or held.enter_context(tempfile.TemporaryDirectory(prefix="dpngram-flink-"))
        cluster = held.enter_context(
            FlinkCluster(
                home,
                Path(logs).absolute(),
                task_managers=given.task_managers,
                heap=given.heap,
                parts=given.parts,
                worker_memory=given.worker_memory,
            )
        )
        program = [sys.executable, "-m", "dpngram.pipelines.cli", *command, *cluster.flags]
        return subprocess.run(program, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

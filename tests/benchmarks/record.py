"""Records of figures: what was measured, and when, from which code, on which machine, beside what load.

A section of tests/benchmarks/all.py is one file, tests/benchmarks/figures/SECTION.json. Figures that were not made
again since they were written into a page have `"made": "earlier"` and the commit that wrote them.
"""

import datetime
import importlib.metadata
import importlib.util
import json
import os
import platform
import resource
import statistics
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIGURES = Path(__file__).resolve().parent / "figures"
_HALF = ROOT / ".cache" / "figures"
MEASURED = ("accounting", "transforms", "pipelines", "package", "setup.py")  # what a figure is a figure of
PACKAGES = ("dpngram", "apache-beam", "numpy", "scipy", "pyarrow", "cryptography")
BUSY = 0.5  # of each core, taken by other programs: above it a time is marked
_LOOK = 3.0  # seconds


def path_of(section):
    return FIGURES / f"{section}.json"


def load(section):
    return json.loads(path_of(section).read_text(encoding="utf-8"))


def store(record):
    FIGURES.mkdir(exist_ok=True)
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    half = FIGURES / f"{record['section']}.json.part"  # a run that is stopped leaves the file as it was
    half.write_text(text, encoding="utf-8")
    half.replace(path_of(record["section"]))


def commit():
    """The last commit that changed the measured code; figures and pages can be committed without making another."""
    found = _git("log", "-1", "--format=%h", "--abbrev=7", "--", *MEASURED)
    return found + ("-changed" if _git("status", "--porcelain", "--", *MEASURED) else "")


def check_installed():
    """The package that is measured must be that of this checkout, or its commit would be a wrong one."""
    for room in ("accounting", "transforms", "pipelines"):
        (place,) = importlib.util.find_spec(f"dpngram.{room}").submodule_search_locations
        for path in sorted((ROOT / room).rglob("*.py")):
            installed = Path(place) / path.relative_to(ROOT / room)
            if not installed.exists() or installed.read_bytes() != path.read_bytes():
                name = path.relative_to(ROOT)
                raise SystemExit(f"{name} is not the installed one: install this checkout before you measure it.")


def _git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=True).stdout.strip()


def machine():
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 2**30),
        "processor": names[0] if names else platform.machine(),
    }


def versions():
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in PACKAGES}}


def is_current(section, command):
    """Whether this command made the section from this code on this machine. Code with changes is never the same."""
    if not path_of(section).exists():
        return False
    record, now = load(section), commit()
    if record["made"] != "again" or now.endswith("-changed"):
        return False
    return (record["commit"], record["command"], record["machine"]) == (now, command, machine())


def _used():
    """Processor seconds that this machine has used since it started, stolen ones of a virtual machine included."""
    words = Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:9]
    user, nice, system, _idle, _wait, interrupt, soft, stolen = map(int, words)
    return (user + nice + system + interrupt + soft + stolen) / os.sysconf("SC_CLK_TCK")


def _mine():
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


class Watch:
    """The load of other programs: the share of each core that they take, 0 on an idle machine."""

    def __init__(self):
        self.begin = time.monotonic(), _used(), _mine()

    def load(self):
        (start, used, mine), now = self.begin, (time.monotonic(), _used(), _mine())
        share = (now[1] - used - (now[2] - mine)) / ((now[0] - start) * (os.cpu_count() or 1))
        return round(min(max(share, 0.0), 1.0), 2)


def load_now():
    watch = Watch()
    time.sleep(_LOOK)
    return watch.load()


class Parts:
    """Finished parts of a section that was stopped, by name; those of another commit are not taken.

    A part of what is timed side by side is one turn of everybody, made in one go, with the load of its time.
    """

    def __init__(self, section):
        self.path = _HALF / f"{section}-{commit()}.json"
        self.known = {}
        if self.path.exists() and not self.path.stem.endswith("-changed"):
            self.known = json.loads(self.path.read_text(encoding="utf-8"))

    def __call__(self, name, function):
        if name not in self.known:
            self.known[name] = function()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(self.known), encoding="utf-8")
        return self.known[name]

    def forget(self):
        self.path.unlink(missing_ok=True)


def make(section, function, command, before):
    """Runs the function of a section, and stores what it returns with the conditions."""
    check_installed()
    watch, start, parts = Watch(), time.monotonic(), Parts(section)
    figures = function(parts)
    seconds = time.monotonic() - start
    during = watch.load()
    record = {
        "section": section,
        "made": "again",
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "commit": commit(),
        "command": command,
        "machine": machine(),
        "versions": versions(),
        "load": {"before": before, "during": during, "after": load_now()},
        "seconds": round(seconds),
        "figures": figures,
    }
    store(record)
    parts.forget()
    return record


def busy(record):
    """Whether other programs took more than BUSY of each core: at the start, meanwhile, or in a turn of the timing."""
    figures = record["figures"]
    turns = figures.get("turns", []) if isinstance(figures, dict) else []
    return max(record["load"]["before"], record["load"]["during"], *(turn["load"] for turn in turns)) > BUSY


def spread(values):
    """Median, least and most of at least three."""
    if len(values) < 3:
        raise ValueError(f"a figure that is measured side by side needs three values or more, got {len(values)}")
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}

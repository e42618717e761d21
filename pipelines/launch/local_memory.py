"""How much memory a local run may take, and where it puts what is beyond: `--memory` and `--scratch`."""

import argparse
import functools
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions

from dpngram.accounting import ParameterError
from dpngram.pipelines.launch.flags import Flag, Kind, show_note
from dpngram.pipelines.launch.runner import runs_here
from dpngram.transforms.blocks.scratch import Scratch

__all__ = ["machine_memory", "memory_flags", "parse_size", "scratch_from_flags"]

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}
_SIZE = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+) ?([kmgt]|[kmg]i|)b", re.IGNORECASE)
# What a run without scratch takes at the most: for the program, and for each byte of text.
_PROGRAM = 300_000_000
_FOR_EACH_BYTE = 8
_SHARE = 2  # by default a run may take one part in so many of the machine
_IN_MEMORY = ("tmpfs", "ramfs")  # filesystems that are no disk


def memory_flags() -> list[Flag]:
    """The flags of programs that run on large inputs."""
    memory = (
        "for local runs: blocks go to disk if the input is likely to need more than this, e.g. 2GB, or from this on "
        "(default: half of the memory of the machine, or of its container)"
    )
    scratch = (
        "for local runs: directory for blocks that go to disk, encrypted (default: the system's for temporary files)"
    )
    return [
        Flag("memory", memory, pattern=r"[0-9.]+ ?([KMGTkmgt]i?)?[Bb]", metavar="SIZE"),
        Flag("scratch", scratch, Kind.PATH, metavar="DIR"),
    ]


def scratch_from_flags(
    flags: argparse.Namespace, options: PipelineOptions, input_bytes: int
) -> Callable[[], Scratch] | None:
    """What makes the scratch of a run; None: this run keeps everything in memory. Raises ParameterError.

    If the input is likely to need more than the limit, blocks go to disk from the first on. Otherwise they do so when
    the limit is reached: the size of an input is not always known.

    Args:
        flags: with `memory`, `scratch` and, if the program has it, `quiet`.
        options: Beam's.
        input_bytes: the likely size of the text; 0 if nothing is known of it.
    """
    given = [name for name in ("memory", "scratch") if getattr(flags, name) is not None]
    limit = machine_memory() // _SHARE if flags.memory is None else parse_size("memory", flags.memory)
    direct: Any = options.view_as(DirectOptions)
    if not runs_here(options) or direct.direct_running_mode == "multi_processing" or not hasattr(os, "pwrite"):
        if given:
            raise ParameterError(
                f"{given[0]} must be left out unless threads of this machine do the work (the default): other engines, "
                "and worker processes, keep their data themselves."
            )
        return None
    directory = _directory(flags.scratch)
    need = _PROGRAM + _FOR_EACH_BYTE * input_bytes
    if need <= limit:
        return functools.partial(Scratch, directory, limit)
    if not getattr(flags, "quiet", True):
        free = shutil.disk_usage(directory).free
        show_note(
            f"this input may need {need / 1e9:.1f} GB of memory, and --memory is {limit / 1e9:.1f} GB: blocks go to "
            f"{directory}, encrypted ({free / 1e9:.0f} GB free)."
        )
    return functools.partial(Scratch, directory)


def parse_size(name: str, text: str) -> int:
    """Bytes of a size with its unit: 2GB, 1.5 GiB, 500MB, 0B."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ParameterError(f"{name} must be a size such as 2GB or 500MB, got {text!r:.80}.")
    return int(float(found[1]) * _UNITS[found[2].lower()])


def machine_memory(root: Path = Path("/")) -> int:
    """Bytes that this process may take: of the machine, its container (cgroups of version 1 or 2), or its limits.

    Args:
        root: where the files of the system are.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    try:
        import resource

        limits += [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    except ImportError:
        pass
    try:
        groups = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        groups = []
    for group in groups:
        _, controllers, path = group.split(":", 2)
        if controllers in ("", "memory"):
            base, name = (("", "memory.max"), ("memory", "memory.limit_in_bytes"))[bool(controllers)]
            top = root / "sys/fs/cgroup" / base
            place = top / path.strip("/")
            # In a container the path may be that of the host; then the top is the container's.
            limits += [_limit(level / name) for level in (place, *place.parents) if level.is_relative_to(top)]
    return min(limit for limit in limits if limit > 0)  # -1: no limit


def _limit(path: Path) -> int:
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # it is not there; or says "max"
        return -1


def _directory(given: str | None) -> str:
    """The directory for the files; raises ParameterError if nothing can be written there."""
    directory = given
    if directory is None:
        directory = tempfile.gettempdir()
        if "TMPDIR" not in os.environ and _in_memory(directory) and os.path.isdir("/var/tmp"):
            directory = "/var/tmp"
    try:
        with tempfile.TemporaryFile(dir=directory):
            return directory
    except OSError as error:
        raise ParameterError(f"scratch must be a directory to write in, got {directory!r}: {error.strerror}.") from None


def _in_memory(directory: str, mounts: str = "/proc/self/mounts") -> bool:
    """Whether files in this directory are in memory, not on a disk."""
    try:
        lines = [line.split() for line in Path(mounts).read_text(encoding="utf-8").splitlines()]
    except OSError:
        return False
    real = os.path.realpath(directory)
    above = [(point, kind) for _, point, kind, *_ in lines if os.path.commonpath([real, point]) == point]
    return max(above, key=lambda mount: len(mount[0]), default=("", ""))[1] in _IN_MEMORY

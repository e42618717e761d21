"""What a command costs: time, and the memory of its largest process. What a function costs: CPU time."""

import subprocess
import sys
import time
from typing import NamedTuple


class Cost(NamedTuple):
    """What a process and its children took."""

    cpu: float  # seconds
    wall: float
    memory: float  # MB, the largest process


def measure(command: list[object]) -> Cost:
    """Runs a command to its end. A small process in between reads its cost: a fork of a large one starts large."""
    script = (
        "import resource,subprocess,sys,time\n"
        "start = time.perf_counter()\n"
        "done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)\n"
        "wall = time.perf_counter() - start\n"
        "use = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "sys.stderr.buffer.write(done.stderr if done.returncode else b'')\n"
        "print(use.ru_utime + use.ru_stime, wall, use.ru_maxrss / 1e3)\n"
        "sys.exit(done.returncode)\n"
    )
    words = [sys.executable, "-c", script, *map(str, command)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"failed: {' '.join(map(str, command))}\n{done.stderr}")
    return Cost(*map(float, done.stdout.split()))


def cheapest(*works, rounds=3):
    """CPU seconds of each function, the least of some rounds. They take turns: a slow moment is nobody's alone."""
    costs = [[] for _ in works]
    for _ in range(rounds):
        for work, mine in zip(works, costs, strict=True):
            start = time.process_time()
            work()
            mine.append(time.process_time() - start)
    return [min(mine) for mine in costs]

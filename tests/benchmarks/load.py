"""What hostile corpora cost: time and memory at a quarter, at half and at all of the size they are known for.

    python tests/benchmarks/load.py [CASE ...] [--scale 1.0] [--steps 4 2 1]

Each run has one process: `dpngram extract` with one thread. The exponent is that of CPU time between two sizes,
less what a run on the ordinary users alone takes; it is shown once there are two seconds to compare. No step may be
quadratic: exponents stay below about 1.2, and memory grows no faster than the input.
"""

import argparse
import functools
import math
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from helpers.costs import measure
from helpers.loads import LOADS, POLICIES, background, extraction

LEAST = 2.0  # seconds; less is mostly the machine's mood


@functools.cache
def idle(work, policy, flags):
    """A run on ordinary users alone."""
    (work / "idle.jsonl").write_bytes(background())
    cost = measure(extraction(work / "idle.jsonl", work / "out", f"--policy={policy}", "--overwrite", *flags))
    print(f"ordinary users alone, {policy} {' '.join(flags)}: CPU {cost.cpu:.1f} s, memory {cost.memory:.0f} MB")
    return cost


def run_load(name, scale, steps, work):
    load, before = LOADS[name], {}
    for step in steps:
        size = max(int(load.full * scale) // step, 1)
        size_bytes = load.write(work / "in.jsonl", size)
        for policy in POLICIES:
            flags = [*load.flags(size), f"--policy={policy}", "--overwrite"]
            cost = measure(extraction(work / "in.jsonl", work / "out", *flags))
            spent = cost.cpu - idle(work, policy, load.idle).cpu
            smaller, least = before.get(policy, (size, 0.0))
            exponent = f"{math.log(spent / least) / math.log(size / smaller):5.2f}" if least >= LEAST else "    -"
            before[policy] = size, spent
            print(
                f"{name:<17} {policy:<6} {size:>13,} {load.unit:<40} {size_bytes / 1e6:7.1f} MB   "
                f"CPU {cost.cpu:6.1f} s   wall {cost.wall:6.1f} s   memory {cost.memory:6.0f} MB   exponent {exponent}",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", choices=[*LOADS, []], help="which corpora (default: all)")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the full sizes (default 1)")
    parser.add_argument("--steps", type=int, nargs="+", default=[4, 2, 1], help="divide the size (default 4 2 1)")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        for name in flags.which or LOADS:
            run_load(name, flags.scale, flags.steps, work)


if __name__ == "__main__":
    main()

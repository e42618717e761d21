"""The `dpngram` command. Each program is imported only when asked for: `plan` needs no Beam."""

import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from dpngram import __version__
from dpngram.pipelines.launch.startup import import_quickly, quiet_imports, stop_in_order, stop_status

__all__ = ["main"]

PROGRAMS = {
    "demo": "run an extraction on a small generated corpus",
    "plan": "show what a privacy budget buys: noise, thresholds, users needed",
    "extract": "release private n-grams from files",
    "stream": "release private n-grams from messages as they arrive, window by window",
    "verify": "check a finished release, and print its guarantee in words",
    "ledger": "show what all releases of a data set have spent together",
    "report": "make report.html again from a finished release",
    "compare": "run the paper's systems side by side: tables, figures, sweeps",
    "audit": "try to break the privacy of this build: lower bounds on epsilon",
    "synth": "write a synthetic corpus, to try things out",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one program. Exit status: 0 done, 1 the run failed, 2 bad flags, parameters or input, 130 Ctrl-C."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print(_usage())
        return 0 if words else 2
    name, rest = words[0], words[1:]
    if name == "--version":
        print(f"dpngram {__version__}")
        return 0
    if name not in PROGRAMS:
        close = difflib.get_close_matches(name, PROGRAMS, 1)
        hint = f"; did you mean {close[0]}?" if close else "."
        print(f"dpngram: error: program must be one of {', '.join(PROGRAMS)}, got {name!r:.80}{hint}", file=sys.stderr)
        return 2
    quiet_imports()
    try:
        with stop_in_order():
            try:
                program = _import(f"dpngram.pipelines.{name}")
            except ModuleNotFoundError as error:
                print(
                    f"dpngram: error: {name} needs the package {error.name}, which is not installed.", file=sys.stderr
                )
                return 1
            return int(program.run(rest))
    except KeyboardInterrupt:  # no traceback: it may quote the data
        print("dpngram: error: stopped.", file=sys.stderr)
        return stop_status() or 130
    except BrokenPipeError:  # whoever read our output stopped reading: not an error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _import(name: str) -> Any:
    if name in sys.modules:
        return sys.modules[name]
    with import_quickly():
        return importlib.import_module(name)


def _usage() -> str:
    width = max(map(len, PROGRAMS))
    programs = "\n".join(f"  {name:<{width}}  {what}" for name, what in PROGRAMS.items())
    return (
        "usage: dpngram PROGRAM [flags]\n\n"
        "Release n-grams from private text under user-level differential privacy.\n\n"
        f"{programs}\n\n'dpngram PROGRAM --help' lists a program's flags."
    )


if __name__ == "__main__":
    sys.exit(main())

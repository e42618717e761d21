"""The `dpngram` command. Each program is imported only when asked for: `plan` needs no Beam."""

import contextlib
import importlib
import importlib.metadata
import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Sequence

__all__ = ["main"]

PROGRAMS = {
    "demo": "the whole thing on a small generated corpus",
    "plan": "what a budget buys: noise, thresholds, users needed",
    "extract": "private n-grams from files",
    "stream": "private n-grams from messages as they arrive, window by window",
    "report": "make report.html again from a finished release",
    "compare": "the paper's systems side by side: tables, figures, sweeps",
    "audit": "try to break the privacy of this build: lower bounds on epsilon",
    "synth": "write a corpus with a known law, to try things out",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one program. Exit status: 0 done, 1 the run failed, 2 bad flags or parameters."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print(_usage())
        return 0 if words else 2
    name, rest = words[0], words[1:]
    if name == "--version":
        print(f"dpngram {importlib.metadata.version('dpngram')}")
        return 0
    if name not in PROGRAMS:
        print(f"dpngram: error: program must be one of {', '.join(PROGRAMS)}, got {name!r:.80}.", file=sys.stderr)
        return 2
    logging.getLogger().setLevel(logging.CRITICAL)  # importing Beam warns of extras nobody asked for
    # Beam makes an argument parser for every look at an option, and argparse asks the terminal for its size for every
    # argument of it: half of the time it takes to build a graph. These two variables answer instead.
    size = shutil.get_terminal_size()
    os.environ.setdefault("COLUMNS", str(size.columns))
    os.environ.setdefault("LINES", str(size.lines))
    program = importlib.import_module(f"dpngram.pipelines.{name}")
    try:
        with _stop_in_order():
            return int(program.run(rest))
    except KeyboardInterrupt:  # without a traceback, which may quote data
        print("dpngram: error: stopped.", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of a pipe went away: not an error of ours
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


@contextlib.contextmanager
def _stop_in_order() -> Iterator[None]:
    """SIGTERM ends a program as Ctrl-C does: what goes with the process, such as a fresh key, goes then, too."""
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


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

"""What a program changes in its own process: all of it is here.

- `quiet_imports`, `quiet_logging`: the level of the root logger, and the hooks for errors that nobody handles.
- `stop_in_order`: the handlers of SIGTERM and SIGINT; `stop_status`: the exit status of a program that was stopped.
- `import_quickly`: the collector of cyclic garbage, while a program is imported.
- `keep_memory`: switches of glibc's allocator.
- `allow_long_chains`: how deep functions may call each other.
"""

import contextlib
import ctypes
import gc
import logging
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

__all__ = [
    "MALLOC_SETTINGS",
    "allow_long_chains",
    "import_quickly",
    "keep_memory",
    "quiet_imports",
    "quiet_logging",
    "stop_in_order",
    "stop_status",
]

# glibc's mallopt numbers, values and the variables that set the same for a new process.
MALLOC_SETTINGS = (
    (-8, 1, "MALLOC_ARENA_MAX"),
    (-3, 1 << 25, "MALLOC_MMAP_THRESHOLD_"),
    (-1, 1 << 30, "MALLOC_TRIM_THRESHOLD_"),
    (-2, 1 << 26, "MALLOC_TOP_PAD_"),
)

_DEEPEST = 6000  # calls: 64 levels of `plus` need more than the 1,000 that Python allows


def allow_long_chains() -> None:
    """Lets the local runner plan graphs of 64 levels: it follows a chain of stages by calls within calls."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _DEEPEST))


def quiet_imports() -> None:
    """Keeps quiet what is logged before a program has read its flags: Beam warns of extras that are not installed.

    Google's packages, which Beam imports where they are installed, also warn of versions of Python and gRPC.
    """
    logging.getLogger().setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", category=FutureWarning, module="google")


@contextlib.contextmanager
def import_quickly() -> Iterator[None]:
    """While the body imports, nobody looks for cyclic garbage; what is there afterwards is never looked at again.

    Beam and what it needs are 200,000 objects that stay to the end. Python's collector would go through them again and
    again: it took 0.35 s of a run of 4 s. Garbage that comes later is collected as usual.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def quiet_logging(verbose: bool) -> None:
    """Keeps Beam's messages, and tracebacks of a failed worker, off the screen unless they are asked for.

    Also the tracebacks that Python itself prints, of threads and of callbacks: their texts may quote the data.
    """
    logging.basicConfig(level=logging.INFO if verbose else logging.CRITICAL, stream=sys.stderr, force=True)
    if not verbose and threading.excepthook is threading.__excepthook__:
        threading.excepthook = _say_nothing
    if not verbose and sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _say_nothing


def _say_nothing(_unhandled: Any) -> None:
    pass


_seen: list[int] = []  # the signals that came since the program started


def _stop(number: int, _frame: Any) -> None:
    _seen.append(number)
    raise KeyboardInterrupt


def stop_status() -> int | None:
    """The exit status if a signal stopped the program: 130 for Ctrl-C (SIGINT), as shells count it; 1 for SIGTERM.

    None if none came. A worker in this process may turn the KeyboardInterrupt into an error like any other, so the
    signals are remembered.
    """
    return None if not _seen else 130 if _seen[0] == signal.SIGINT else 1


@contextlib.contextmanager
def stop_in_order() -> Iterator[None]:
    """SIGTERM ends the body as Ctrl-C does. So what is deleted at the end of a process, such as a fresh key, is."""
    usual = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    main = threading.current_thread() is threading.main_thread()
    ours = {number: handler for number, handler in usual.items() if main and signal.getsignal(number) is handler}
    _seen.clear()
    for number in ours:
        signal.signal(number, _stop)
    try:
        yield
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)


def keep_memory() -> None:
    """Lets the allocator keep freed blocks instead of handing every large array back to the system at once.

    Page faults on fresh memory cost a local run up to a third of its time. Only glibc has these switches.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    for switch, value, _ in MALLOC_SETTINGS:
        mallopt(switch, value)

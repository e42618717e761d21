"""What a program changes in its own process: all of it is here.

- `quiet_imports`, `quiet_logging`: the level of the root logger, and the hooks for errors that nobody handles.
- `stop_in_order`: the handler of SIGTERM; `stop_status`: the exit status of a program that was stopped.
- `keep_memory`: switches of glibc's allocator.
"""

import contextlib
import ctypes
import logging
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

__all__ = ["MALLOC_SETTINGS", "keep_memory", "quiet_imports", "quiet_logging", "stop_in_order", "stop_status"]

# glibc's mallopt numbers, values and the variables that set the same for a new process.
MALLOC_SETTINGS = (
    (-8, 1, "MALLOC_ARENA_MAX"),
    (-3, 1 << 25, "MALLOC_MMAP_THRESHOLD_"),
    (-1, 1 << 30, "MALLOC_TRIM_THRESHOLD_"),
    (-2, 1 << 26, "MALLOC_TOP_PAD_"),
)


def quiet_imports() -> None:
    """Keeps quiet what is logged before a program has read its flags: Beam warns of extras that are not installed.

    Google's packages, which Beam imports where they are installed, also warn of versions of Python and gRPC.
    """
    logging.getLogger().setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", category=FutureWarning, module="google")


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


class _Terminated(KeyboardInterrupt):
    """What SIGTERM raises: whatever waits for Ctrl-C gets it, too."""


def _terminate(_signal: int, _frame: Any) -> None:
    raise _Terminated


def stop_status(stop: KeyboardInterrupt) -> int:
    """The exit status of a program that was stopped: 130 by Ctrl-C (SIGINT), as shells count it; 1 by SIGTERM."""
    return 1 if isinstance(stop, _Terminated) else 130


@contextlib.contextmanager
def stop_in_order() -> Iterator[None]:
    """SIGTERM ends the body as Ctrl-C does. So what is deleted at the end of a process, such as a fresh key, is."""
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


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

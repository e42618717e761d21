"""What a program changes in its own process, all in one place."""

import ctypes
import logging
import sys
import threading
from typing import Any

__all__ = ["keep_memory", "quiet_logging"]
# glibc's mallopt numbers, values and the variables that set the same for a new process.
MALLOC_SETTINGS = (
    (-8, 1, "MALLOC_ARENA_MAX"),
    (-3, 1 << 25, "MALLOC_MMAP_THRESHOLD_"),
    (-1, 1 << 30, "MALLOC_TRIM_THRESHOLD_"),
    (-2, 1 << 26, "MALLOC_TOP_PAD_"),
)


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


def quiet_logging(verbose: bool) -> None:
    """Keeps Beam's start-up noise, and tracebacks of a failed worker, off the screen unless asked for.

    Also those that Python prints by itself, of threads and of callbacks: their texts may quote the data.
    """
    logging.basicConfig(level=logging.INFO if verbose else logging.CRITICAL, stream=sys.stderr, force=True)
    if not verbose and threading.excepthook is threading.__excepthook__:
        threading.excepthook = _say_nothing
    if not verbose and sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _say_nothing


def _say_nothing(_unhandled: Any) -> None:
    pass

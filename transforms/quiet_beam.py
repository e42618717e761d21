"""The first import of Beam by dpngram. It prints nothing, and leaves the host's logging as it found it.

Without the extra `gcp`, Beam (seen in 2.77) warns through the root logger, while it is imported, that "apitools" was
not found. Nobody who reads files needs it. That call of `logging.warning` also gives the root logger a handler if it
has none, and then a later `logging.basicConfig` of the host does nothing. `import dpngram.transforms` imports this
module first, so neither happens, unless the host imported Beam before.
"""

import contextlib
import logging
from collections.abc import Iterator

__all__ = ["without_missing_extras"]


def _worth_logging(record: logging.LogRecord) -> bool:
    missing_extra = record.levelno <= logging.WARNING and "/apache_beam/io/" in record.pathname.replace("\\", "/")
    return not missing_extra


@contextlib.contextmanager
def without_missing_extras() -> Iterator[None]:
    """While the body runs, the root logger drops warnings that come from Beam's `io` modules, and nothing else.

    If the root logger has no handler, it has Python's handler of last resort meanwhile: what others log appears as it
    would have appeared.
    """
    root = logging.getLogger()
    lent = logging.lastResort if not root.handlers else None
    root.addFilter(_worth_logging)
    if lent is not None:
        root.addHandler(lent)
    try:
        yield
    finally:
        root.removeFilter(_worth_logging)
        if lent is not None:
            root.removeHandler(lent)


with without_missing_extras():
    import apache_beam as apache_beam

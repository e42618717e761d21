"""Notes for the operator: exact figures about the input, which are not part of the release."""

import importlib.metadata
import json
import platform
import time
from datetime import datetime, timezone
from typing import Any

from apache_beam.metrics import MetricsFilter

from dpngram.pipelines.io.output_directory import NOTE
from dpngram.transforms.whole_files import write_whole

__all__ = ["read_counters", "write_operator_notes"]

_SIZE = 4096  # bytes
_PACKAGES = ("dpngram", "apache-beam", "numpy", "scipy", "pyarrow", "cryptography")


def write_operator_notes(path: str, result: Any, start: float, input_bytes: int, runner: str) -> None:
    """Writes the operator's notes: records read, bad records by reason, times, versions; not for publication.

    Times are here and not in the manifest: a release that is made again has the same manifest. So are versions of what
    the release does not depend on.

    Privacy: only the owner can read the file, and it is not in the output. Others may list the directory and see the
    file's size, so the size is the same for all notes: blanks follow the JSON.

    Args:
        path: of the file.
        result: of the pipeline, for its counters.
        start: when the run began, in seconds since 1970.
        input_bytes: the likely size of the text.
        runner: that ran it.
    """
    counters = read_counters(result)
    bad = {name.removeprefix("bad_"): value for name, value in sorted(counters.items()) if name.startswith("bad_")}
    notes = {
        "note": NOTE,
        "records": counters.get("records"),
        "bad_records": {name: value for name, value in bad.items() if value},
        "input_bytes": input_bytes,
        "seconds": round(time.time() - start, 3),
        "started": _utc(start),
        "finished": _utc(time.time()),
        "runner": runner,
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES}
        | {"python": platform.python_version()},
    }
    text = json.dumps(notes, indent=2) + "\n"
    write_whole(path, (text.ljust(_SIZE - 1) + "\n").encode(), private=True)


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")


def read_counters(result: Any) -> dict[str, int]:
    """dpngram's counters by name; empty if the runner has no metrics."""
    counters: dict[str, int] = {}
    try:
        for counter in result.metrics().query(MetricsFilter().with_namespace("dpngram"))["counters"]:
            name = counter.key.metric.name
            value = counter.committed if counter.committed is not None else counter.attempted
            counters[name] = counters.get(name, 0) + (value or 0)
    except (NotImplementedError, AttributeError):
        pass
    return counters

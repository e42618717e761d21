"""Notes for the operator: exact figures about the input, which are not part of the release."""

import json
from typing import Any

from apache_beam.metrics import MetricsFilter

from dpngram.pipelines.io.output_directory import NOTE
from dpngram.transforms.whole_files import write_whole

__all__ = ["read_counters", "write_operator_notes"]

_SIZE = 4096  # bytes


def write_operator_notes(path: str, result: Any, seconds: float, input_bytes: int) -> None:
    """Writes the operator's notes: records read, bad records by reason, time. They are exact and not for publication.

    Privacy: only the owner can read the file, and it is not in the output. Others may list the directory and see the
    file's size, so the size is the same for all notes: blanks follow the JSON.

    Args:
        path: of the file.
        result: of the pipeline, for its counters.
        seconds: how long the run took.
        input_bytes: the likely size of the text.
    """
    counters = read_counters(result)
    bad = {name.removeprefix("bad_"): value for name, value in sorted(counters.items()) if name.startswith("bad_")}
    notes = {
        "note": NOTE,
        "records": counters.get("records"),
        "bad_records": {name: value for name, value in bad.items() if value},
        "input_bytes": input_bytes,
        "seconds": round(seconds, 3),
    }
    text = json.dumps(notes, indent=2) + "\n"
    write_whole(path, (text.ljust(_SIZE - 1) + "\n").encode(), private=True)


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

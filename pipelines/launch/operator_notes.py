"""Notes for the operator: exact figures about the input, which are not part of the release."""

import json
from typing import Any

from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import MetricsFilter

from dpngram.pipelines.io.release_files import OPERATOR_NOTES
from dpngram.transforms.whole_files import write_whole

__all__ = ["read_counters", "write_operator_notes"]


def write_operator_notes(directory: str, result: Any, seconds: float, input_bytes: int) -> None:
    """Writes operator.json: records read, bad records by reason, time. They are exact and must not be published.

    Args:
        directory: of the release.
        result: of the pipeline, for its counters.
        seconds: how long the run took.
        input_bytes: the likely size of the text.
    """
    counters = read_counters(result)
    bad = {name.removeprefix("bad_"): value for name, value in sorted(counters.items()) if name.startswith("bad_")}
    notes = {
        "note": "For the operator only. These figures are exact and NOT differentially private; they are not part of "
        "the release and must not be published with it.",
        "records": counters.get("records"),
        "bad_records": {name: value for name, value in bad.items() if value},
        "input_bytes": input_bytes,
        "seconds": round(seconds, 3),
    }
    write_whole(FileSystems.join(directory, OPERATOR_NOTES), (json.dumps(notes, indent=2) + "\n").encode())


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

"""A failed run in one line that tells nothing of the data."""

import itertools
import re

import apache_beam as beam

from dpngram.pipelines.launch.beam_flags import all_subclasses

__all__ = ["failure_line"]
# What our own errors on workers say, see failure_line.
_SENTENCES = (
    "noise_key: the environment variable {key} is not set on this worker.",
    "noise_key: {key} cannot be read on this worker ({kind}).",
    "noise_key: secret {key} cannot be read ({kind}).",
    "noise_key: {key} must hold 32 bytes or 64 hexadecimal digits, got {number} bytes.",
    "noise_key: gcp-secret needs the package google-cloud-secret-manager on the workers.",
    "noise_key: {key} was already used for this release label with other data, parameters or version; take a new key, "
    "or a new --release label (a new release spends epsilon and delta again).",
    "noise_key: workers hold different keys; was the variable or secret changed meanwhile?",
    "noise_key: the checkpoints in the output were made with another key, or from other data; --overwrite starts anew.",
    "noise_key: a window of the output has a release already, with other noise or data.",
    "max_bad_fraction must be at least the share of bad records: {number} of {number} cannot be used (allowed: "
    "{number}); --bad_records DIR lists them. Nothing was released.",
    "sigma must be below 2^26 for exact sums, got {number}: the budget is too small.",
)


def failure_line(error: BaseException, pipeline: beam.Pipeline | None = None, noise_key: str | None = None) -> str:
    """What to tell a user of a failed run: a sentence of ours, or the kind of error and the step, never its text.

    All that a worker tells is one text, in which nothing tells our words from those of somebody else's exception, and
    those may quote the data. So the text is only asked which of the things known here it has: our sentences, where
    nothing but numbers is taken over; steps of this pipeline; exceptions that exist.
    """
    seen: BaseException | None = error
    text = ""
    while seen is not None:
        text += f"\n{type(seen).__name__}: {seen}"
        seen = seen.__cause__ or seen.__context__
    exceptions = {kind.__name__ for kind in all_subclasses(BaseException)}
    if ours := [(found.start(), form, found) for form in _SENTENCES for found in re.finditer(_pattern(form), text)]:
        _, form, found = max(ours)
        numbers = [value for name, value in sorted(found.groupdict().items()) if name.startswith("number")]
        words = {"key": noise_key or "the fresh key", "kind": found.groupdict().get("kind")}
        words["kind"] = words["kind"] if words["kind"] in exceptions else "an error"
        return form.replace("{number}", "{}").format(*numbers, **words)
    labels = sorted(pipeline.applied_labels if pipeline else (), key=len)
    steps = re.findall(r"while running '([^'\n]+)'", text)
    known = [label for step in steps for label in labels if f"{step}/".startswith(f"{label}/")]
    kinds = [kind for kind in re.findall(r"^(?:[\w.]+\.)?(\w+)\b", text, re.MULTILINE) if kind in exceptions]
    where = f" in step {known[-1]}" if known else ""
    return f"the run failed{where} ({kinds[-1] if kinds else type(error).__name__}); --verbose shows the traceback."


def _pattern(form: str) -> str:
    """A regular expression for a sentence; its numbers are groups."""
    numbers = itertools.count()
    pattern = re.escape(form).replace(r"\{key\}", r"[^\n]+?").replace(r"\{kind\}", r"(?P<kind>\w+)")
    return re.sub(r"\\{number\\}", lambda _: rf"(?P<number{next(numbers)}>\d[\d.,e+\-]{{0,20}})", pattern)

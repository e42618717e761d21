"""A failed run in one line that tells nothing of the data."""

import re

import apache_beam as beam

from dpngram.transforms.messages import Message

__all__ = ["failure_line", "failure_message"]


def failure_message(error: BaseException) -> Message | None:
    """The message of ours that a failed run ends with, if there is one."""
    return _last_message(_whole_text(error))[0]


def failure_line(error: BaseException, pipeline: beam.Pipeline | None = None, noise_key: str | None = None) -> str:
    """What to tell a user of a failed run: a message of ours, or the kind of error and the step, never its text.

    A worker's failure arrives as one text that may contain private data. We therefore copy nothing from it but the
    numbers in messages of ours. We only test which known messages, step names and exception names occur in it, and
    print those.

    Args:
        error: what the run raised.
        pipeline: the graph, whose steps may be named.
        noise_key: the key as the user gave it; None for a fresh one.
    """
    text = _whole_text(error)
    exceptions = {kind.__name__ for kind in _subclasses(BaseException)}
    message, found = _last_message(text)
    if message is not None and found is not None:
        kind = found.groupdict().get("kind") or ""
        return message.repeat(found, noise_key or "the fresh key", kind if kind in exceptions else "an error")
    labels = sorted(pipeline.applied_labels if pipeline else (), key=len)
    steps = re.findall(r"while running '([^'\n]+)'", text)
    known = [label for step in steps for label in labels if f"{step}/".startswith(f"{label}/")]
    kinds = [kind for kind in re.findall(r"^(?:[\w.]+\.)?(\w+)\b", text, re.MULTILINE) if kind in exceptions]
    where = f" in step {known[-1]}" if known else ""
    return f"the run failed{where} ({kinds[-1] if kinds else type(error).__name__}); --verbose shows the traceback."


def _subclasses(kind: type[BaseException]) -> list[type[BaseException]]:
    return [found for direct in kind.__subclasses__() for found in [direct, *_subclasses(direct)]]


def _whole_text(error: BaseException) -> str:
    """The kinds and texts of an error and of all that led to it."""
    seen: BaseException | None = error
    text = ""
    while seen is not None:
        text += f"\n{type(seen).__name__}: {seen}"
        seen = seen.__cause__ or seen.__context__
    return text


def _last_message(text: str) -> "tuple[Message | None, re.Match[str] | None]":
    """The message of ours that stands last in a text, and where."""
    last: tuple[Message | None, re.Match[str] | None] = None, None
    for message in Message:
        found = message.find(text)
        if found is not None and (last[1] is None or found.start() > last[1].start()):
            last = message, found
    return last

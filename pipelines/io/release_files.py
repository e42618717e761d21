"""The files of a release: their names, what the manifest says, and how they are written and read back.

Names are made from `OUTPUT_FORMATS`, so that every file of ours is known as one: a file of an older release must never
stay beside a new manifest.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, TypedDict

from apache_beam.io.filesystems import FileSystems

from dpngram.pipelines.io.encoding import OUTPUT_FORMATS, Row
from dpngram.transforms.checkpoints import is_checkpoint
from dpngram.transforms.whole_files import read_whole

__all__ = [
    "MANIFEST",
    "REPORT",
    "Manifest",
    "ManifestLevel",
    "ManifestWindow",
    "OfWindow",
    "Origin",
    "Rows",
    "is_ours",
    "is_unfinished",
    "iterate_rows",
    "read_manifest",
    "read_rows",
    "rows_name",
    "rows_path",
    "without_plan",
]

MANIFEST = "manifest.json"
REPORT = "report.html"
_NOTES_OF_0_1 = "operator.json"  # version 0.1 wrote notes and checkpoints into the output
_UNFINISHED = r"\.[0-9a-f]{16}\.tmp"  # what a name ends with while its file is written

Rows = list[Row]


class ManifestLevel(TypedDict):
    """What the manifest says of one length."""

    n: int
    released: int
    sigma: float
    rho: float | None  # the lowest threshold; None for words that are public
    valid: int | None  # number of candidates; None for single tokens, which have no bound
    file: str
    bytes: int
    sha256: str


class ManifestWindow(TypedDict):
    """The bounds of a window, as RFC 3339 writes them."""

    start: str
    end: str


class Origin(TypedDict, total=False):
    """What a release was made from, as far as flags say it. In the manifest, so it is public."""

    release: str  # the label
    user: str  # what a user was: a field, or each line
    text: str  # which field had the text
    words: str  # that the words are a public list, if so
    denied: str  # that n-grams were left out afterwards, if so


class OfWindow(TypedDict, total=False):
    """What only the manifest of a window has."""

    window: ManifestWindow
    stream: str  # what one start of the stream covers; only for windows of `dpngram stream`


class Manifest(OfWindow):
    """manifest.json; written when all other files are there. A function of the release and of flags: no times."""

    format_version: int
    dpngram: str
    algorithm: int  # its version; releases of different versions have different noise
    origin: Origin
    guarantee: str
    policy: str
    released: int
    levels: list[ManifestLevel]
    format: str
    settings: dict[str, Any]
    plan: dict[str, Any]


def without_plan(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a transform as a manifest has them: the plan is a part of the manifest by itself."""
    return {name: value for name, value in settings.items() if name != "plan"}


def rows_name(n: int, output_format: str) -> str:
    """The name of the file with the n-grams of n tokens."""
    return f"ngrams-{n:02d}.{OUTPUT_FORMATS[output_format].suffix}"


def _rows_pattern() -> str:
    suffixes = "|".join(re.escape(encoding.suffix) for encoding in OUTPUT_FORMATS.values())
    return rf"ngrams-\d\d\.({suffixes})"


def is_ours(name: str) -> bool:
    """Whether this program writes files of this name, or of this name while they are written."""
    whole = "|".join([*map(re.escape, (MANIFEST, REPORT, _NOTES_OF_0_1)), _rows_pattern()])
    return re.fullmatch(rf"({whole})({_UNFINISHED})?", name) is not None or is_checkpoint(name)


def is_unfinished(name: str) -> bool:
    """Whether a file of ours has this name while it is written."""
    return is_ours(name) and re.search(rf"{_UNFINISHED}$", name) is not None


def rows_path(directory: str, name: Any) -> str:
    """The path of a file of rows that a manifest names. The manifest may be forged: any other name is an error."""
    if not isinstance(name, str) or not re.fullmatch(_rows_pattern(), name):
        raise ValueError("a manifest must name files of its own release")
    return str(FileSystems.join(directory, name))


def read_manifest(directory: str) -> Manifest:
    """The manifest of a finished release. Its keys are not checked."""
    manifest: Manifest = json.loads(read_whole(FileSystems.join(directory, MANIFEST)))
    return manifest


def iterate_rows(directory: str, manifest: Manifest) -> dict[int, Iterator[Row]]:
    """The released n-grams of each length, read from their files one by one."""
    return {level["n"]: _iterate(directory, manifest["format"], level) for level in manifest["levels"]}


def _iterate(directory: str, output_format: str, level: ManifestLevel) -> Iterator[Row]:
    with FileSystems.open(rows_path(directory, level["file"]), compression_type="uncompressed") as file:
        yield from OUTPUT_FORMATS[output_format].read(file, level["n"])


def read_rows(directory: str, manifest: Manifest) -> dict[int, Rows]:
    """The released n-grams of each length, all of them as Python objects: for small releases."""
    return {n: list(rows) for n, rows in iterate_rows(directory, manifest).items()}

"""`dpngram verify`: is a directory the release that its manifest says, and what does it promise?

A release can be checked without its key and its data: the manifest has checksums and the plan, and a plan checks
itself. What cannot be checked is that the noise was drawn as the plan says; for that there is `dpngram audit`.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from apache_beam.io.filesystems import FileSystems

from dpngram import __version__
from dpngram.accounting import ExtractionPlan, ParameterError, guarantee_in_words
from dpngram.pipelines.io.encoding import OUTPUT_FORMATS, PhraseError
from dpngram.pipelines.io.release_files import MANIFEST, REPORT, Rows, rows_name, rows_path
from dpngram.pipelines.io.writing import MANIFEST_VERSION
from dpngram.pipelines.launch.flags import OneLineParser, print_error
from dpngram.pipelines.pages.release_page import render_report
from dpngram.transforms.whole_files import read_whole

__all__ = ["find_problems", "run"]

_KINDS: dict[str, type | tuple[type, ...]] = {
    "format_version": int,
    "dpngram": str,
    "guarantee": str,
    "policy": str,
    "released": int,
    "levels": list,
    "format": str,
    "settings": dict,
    "plan": dict,
}
_LEVEL_KINDS: dict[str, type | tuple[type, ...]] = {
    "n": int,
    "released": int,
    "sigma": float,
    "rho": (float, type(None)),
    "valid": (int, type(None)),
    "file": str,
    "bytes": int,
    "sha256": str,
}


def run(argv: Sequence[str]) -> int:
    """Checks a release. Exit status: 0 all is as it should be, 1 with a line for each check that failed."""
    parser = OneLineParser(
        prog="dpngram verify", description="Check a finished release; prints its guarantee in words."
    )
    parser.add_argument("directory", metavar="DIR", help="the output directory of dpngram extract, or of one window")
    flags = parser.parse_args(argv)
    try:
        data = read_whole(FileSystems.join(flags.directory, MANIFEST))
        manifest = json.loads(data)
        problems = list(find_problems(flags.directory, manifest))
    except Exception as error:  # these files may be anything, and broken in any way
        kind = type(error).__name__
        return print_error(
            parser.prog, f"no finished release in {flags.directory!r}: no readable manifest ({kind}).", 1
        )
    for problem in problems:
        print_error(parser.prog, problem, 1)
    if problems:
        return 1
    print(_record(flags.directory, manifest, hashlib.sha256(data).hexdigest()))
    return 0


def find_problems(directory: str, manifest: Any) -> Iterator[str]:
    """A sentence for each check that fails. Checks that need what an earlier one has found wrong are left out.

    Args:
        directory: of the release.
        manifest: as it was read from there.
    """
    if not isinstance(manifest, dict):
        yield "manifest.json must be a JSON object."
        return
    wrong = list(_wrong_fields("manifest.json", manifest, _KINDS))
    if not wrong:
        for level in manifest["levels"]:
            wrong += _wrong_fields("a level of manifest.json", level, _LEVEL_KINDS)
    yield from wrong
    if wrong:
        return
    if manifest["format_version"] != MANIFEST_VERSION or manifest["format"] not in OUTPUT_FORMATS:
        yield "manifest.json has a format that this version of dpngram does not know."
        return
    yield from _check_plan(manifest)
    numbers = [level["n"] for level in manifest["levels"]]
    if (
        numbers != list(range(1, len(numbers) + 1))
        or sum(x["released"] for x in manifest["levels"]) != manifest["released"]
    ):
        yield "levels of manifest.json must be 1, 2, ... and add up to `released`."
        return
    rows: dict[int, Rows] = {}
    for level in manifest["levels"]:
        found = list(_check_file(directory, manifest["format"], level, rows))
        yield from found
    if manifest["format"] != "vocab" and len(rows) == len(numbers):
        yield from _check_prefixes(rows, manifest["settings"].get("vocabulary"))
    yield from _check_directory(directory, manifest, rows)


def _wrong_fields(name: str, fields: Any, kinds: dict[str, type | tuple[type, ...]]) -> list[str]:
    if not isinstance(fields, dict):
        return [f"{name} must be an object."]
    return [
        f"{name} must have {field!r} of the right type."
        for field, kind in kinds.items()
        if not isinstance(fields.get(field), kind) or isinstance(fields.get(field), bool)
    ]


def _check_plan(manifest: dict[str, Any]) -> Iterator[str]:
    """The plan meets its own (epsilon, delta), and everything else that the manifest says follows from it."""
    try:
        plan = ExtractionPlan.from_json(json.dumps(manifest["plan"]))
    except (ParameterError, TypeError, ValueError) as error:
        yield f"the plan does not hold: {error}"
        return
    levels = manifest["levels"]
    if manifest["guarantee"] != guarantee_in_words(plan):
        yield "the guarantee in words is not that of the plan."
    if len(levels) != plan.max_n or [level["sigma"] for level in levels] != [level.sigma for level in plan.levels]:
        yield "the noise of the levels is not that of the plan."
    elif any((level["rho"] is None) != (level["n"] < plan.first_n) for level in levels):
        yield "a level has no threshold, and its words are not a public vocabulary; or the other way round."
    elif plan.public_vocabulary and (levels[0]["released"] or not manifest["settings"].get("vocabulary")):
        yield "words of a public vocabulary must be named in the settings, and must not be released."
    elif not plan.public_vocabulary and levels[0]["rho"] < (plan.levels[0].rho or math.inf):
        yield "the threshold of level 1 is below that of the plan."


def _check_file(directory: str, output_format: str, level: dict[str, Any], rows: dict[int, Rows]) -> Iterator[str]:
    n, name = level["n"], rows_name(level["n"], output_format)
    if level["file"] != name:
        yield f"the file of length {n} must be {name}."
        return
    try:
        data = read_whole(rows_path(directory, name))
    except Exception as error:
        yield f"{name} cannot be read ({type(error).__name__})."
        return
    if hashlib.sha256(data).hexdigest() != level["sha256"] or len(data) != level["bytes"]:
        yield f"{name} is not as it was written: its checksum differs."
        return
    if output_format == "vocab":
        if len(data.decode().splitlines()) != level["released"]:
            yield f"{name} must have {level['released']} rows."
        return
    try:
        rows[n] = OUTPUT_FORMATS[output_format].decode(data, n)
        grams = [tuple(tokens) for tokens, _ in rows[n]]
        weights = [float(weight) for _, weight in rows[n]]
    except PhraseError:
        yield f"{name} must have phrases that are their tokens, joined by blanks."
        return
    except Exception as error:
        yield f"{name} does not have the columns of a release ({type(error).__name__})."
        return
    if len(grams) != level["released"]:
        yield f"{name} must have {level['released']} rows, and has {len(grams)}."
    if any(len(gram) != n for gram in grams):
        yield f"{name} must have {n} tokens in each row."
    if grams != sorted(set(grams)):
        yield f"{name} must be sorted by tokens, each n-gram once."
    if not all(map(math.isfinite, weights)):
        yield f"{name} must have weights that are finite."


def _check_prefixes(rows: dict[int, Rows], listed: Any) -> Iterator[str]:
    """Every n-gram was valid: its first n-1 tokens and its last token were released.

    Words of a public vocabulary are not in the release. Then at least their number is known.
    """
    released = {n: {tuple(tokens) for tokens, _ in rows[n]} for n in rows}
    if listed:
        released[1] = {(token,) for n in rows for gram in released[n] for token in gram}
        if len(released[1]) > listed["words"]:
            yield f"n-grams have {len(released[1]):,} different tokens, but the vocabulary has {listed['words']:,}."
    for n in sorted(rows)[1:]:
        if any(gram[:-1] not in released[n - 1] or gram[-1:] not in released[1] for gram in released[n]):
            yield f"length {n} has n-grams whose first {n - 1} tokens, or whose last token, were not released."


def _check_directory(directory: str, manifest: dict[str, Any], rows: dict[int, Rows]) -> Iterator[str]:
    found = FileSystems.match([FileSystems.join(directory, "*")])[0].metadata_list
    names = {FileSystems.split(file.path)[1] for file in found}
    others = names - {MANIFEST, REPORT, *(level["file"] for level in manifest["levels"])}
    if others:
        yield f"{len(others)} file(s) here are not of the release, and must not be published with it: {min(others)!r}"
    if REPORT in names and manifest["dpngram"] == __version__ and len(rows) == len(manifest["levels"]):
        page = render_report(manifest, rows)  # type: ignore[arg-type]
        if read_whole(FileSystems.join(directory, REPORT)) != page.encode():
            yield f"{REPORT} is not the page of this release; `dpngram report` makes it again."


def _record(directory: str, manifest: dict[str, Any], digest: str) -> str:
    """What somebody who approves the release wants to read."""
    origin, settings = manifest.get("origin", {}), manifest["settings"]
    unit = "each line" if settings.get("user_per_document") else "not recorded"
    window = manifest.get("window")
    counts = " + ".join(f"{level['released']:,}" for level in manifest["levels"])
    lines = {
        "Guarantee": manifest["guarantee"],
        "Stream": manifest.get("stream"),
        "A user is": origin.get("user", unit),
        "Text": origin.get("text"),
        "Words": origin.get("words"),
        "Tokenizer": settings.get("tokenizer"),
        "Policy": f"{manifest['plan']['policy']}: {manifest['policy']}",
        "Left out": origin.get("denied"),
        "Window": window and f"{window['start']} to {window['end']}",
        "Label": origin.get("release"),
        "Made by": f"dpngram {manifest['dpngram']}",
        "Released": f"{manifest['released']:,} n-grams ({counts}) in {directory}",
        "To sign": f"sha256 of {MANIFEST}: {digest}",
    }
    width = max(map(len, lines))
    shown = [f"{name + ':':<{width + 1}} {value}" for name, value in lines.items() if value]
    return "\n".join([*shown, "All checks passed: checksums, rows, plan, and no other file."])

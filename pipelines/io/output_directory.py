"""The life of an output directory: prepared, finished, resumed, cleaned up."""

import hashlib
import os
from typing import Any

from apache_beam.io.filesystems import FileSystems

from dpngram.accounting import ExtractionPlan, ParameterError, plan_document
from dpngram.pipelines.io.release_files import MANIFEST, is_ours, read_manifest, rows_path, without_plan
from dpngram.transforms.whole_files import read_whole

__all__ = ["drop_checkpoints", "prepare_output"]


def prepare_output(
    directory: str, plan: ExtractionPlan, settings: dict[str, Any], output_format: str, *, overwrite: bool, resume: bool
) -> bool:
    """Makes the directory ready. Returns False if the release in it is finished and is the one asked for.

    The old manifest is deleted first: until the new one is written, nothing here looks like a release.

    Args:
        directory: where the release goes.
        plan, settings, output_format: of the release that is asked for.
        overwrite: replace a release that is there.
        resume: keep the checkpoints of a run that died, or accept its finished release.

    Raises:
        ParameterError: if something is in the directory that must not be touched.
    """
    if FileSystems.get_scheme(directory) is None and os.path.isfile(directory):
        raise ParameterError(f"output must be a directory, got {directory!r}, which is a file.")
    try:
        if not FileSystems.exists(directory):
            FileSystems.mkdirs(directory)
        found = [file.path for file in FileSystems.match([FileSystems.join(directory, "*")])[0].metadata_list]
    except Exception as error:
        raise ParameterError(f"output must be a directory, got {directory!r} ({type(error).__name__}).") from None
    names = {path: FileSystems.split(path)[1] for path in found}
    ours = [path for path, name in names.items() if is_ours(name)]
    finished = [path for path, name in names.items() if name == MANIFEST]
    if finished and not _is_our_manifest(directory):
        raise ParameterError(f"output must be a new or empty directory, got {directory!r} with another manifest in it.")
    if resume and finished:
        _check_finished(directory, plan, settings, output_format)
        return False
    if found and not (overwrite or (resume and len(ours) == len(found))):
        kind = "a finished release" if finished else "files"
        raise ParameterError(
            f"output must be a new or empty directory, got {directory!r} with {kind} in it (--overwrite replaces it)."
        )
    for path in [*finished, *(path for path in ours if path not in finished)]:
        if not (resume and path.endswith(".block")):
            FileSystems.delete([path])
    return True


def _is_our_manifest(directory: str) -> bool:
    try:
        return bool({"dpngram", "levels", "plan"} <= read_manifest(directory).keys())
    except (ValueError, AttributeError, OSError, RecursionError):
        return False


def _check_finished(directory: str, plan: ExtractionPlan, settings: dict[str, Any], output_format: str) -> None:
    """Raises ParameterError unless the finished release is the one asked for, with all of its files."""
    manifest = read_manifest(directory)
    asked = {"plan": plan_document(plan), "settings": without_plan(settings), "format": output_format}
    for name, value in asked.items():
        if manifest.get(name) != value:
            raise ParameterError(f"resume must have the {name} of the release that is in {directory!r}.")
    try:
        files = {level["file"]: level["sha256"] for level in manifest["levels"]}
        paths = {name: rows_path(directory, name) for name in files}
    except (ValueError, LookupError, TypeError):
        raise ParameterError(f"resume must find a whole release in {directory!r}: its manifest is broken.") from None
    for name, path in paths.items():
        if not FileSystems.exists(path) or hashlib.sha256(read_whole(path)).hexdigest() != files[name]:
            raise ParameterError(f"resume must find a whole release in {directory!r}: {name} is not as it was.")


def drop_checkpoints(directory: str) -> None:
    """Deletes checkpoints and leftover temporary files of a finished run."""
    patterns = [FileSystems.join(directory, name) for name in ("checkpoint-*", "*.tmp")]
    matched = {file.path for result in FileSystems.match(patterns) for file in result.metadata_list}
    found = [path for path in sorted(matched) if is_ours(FileSystems.split(path)[1])]
    if found:
        FileSystems.delete(found)

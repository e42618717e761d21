"""The life of an output directory: prepared, finished, resumed, cleaned up.

Privacy: the output holds nothing but the release, so a copy of the directory can be published as it is. What is for the
operator only has another place, by default beside the output: notes with exact counts, and checkpoints, which tell of a
run that is not finished.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from dpngram.accounting import ExtractionPlan, ParameterError, plan_document
from dpngram.pipelines.io.release_files import (
    MANIFEST,
    is_ours,
    is_unfinished,
    read_manifest,
    rows_path,
    without_plan,
)
from dpngram.transforms.checkpoints import drop_checkpoints, find_checkpoints, is_checkpoint
from dpngram.transforms.whole_files import make_private_directory, read_whole

__all__ = ["NOTE", "CleanUp", "Places", "beside", "can_resume", "clean_up", "prepare_output"]

# The first entry of the operator's notes: says what they are, and tells them from other people's files.
NOTE = (
    "For the operator only. These figures are exact and NOT differentially private; they are not part of the release "
    "and must not be published with it."
)


def beside(output: str, suffix: str) -> str | None:
    """A path next to the output directory: `release/` and `checkpoints` give `release.checkpoints`.

    None if nothing can be beside it, because it is a whole filesystem or a whole bucket.
    """
    scheme = FileSystems.get_scheme(output)
    path = os.path.abspath(output) if scheme is None else output.rstrip("/")
    name = path.strip("/") if scheme is None else path.removeprefix(f"{scheme}://").partition("/")[2]
    return f"{path}.{suffix}" if name else None


@dataclasses.dataclass(frozen=True)
class Places:
    """Where the files of a run go.

    Args:
        output: the directory of the release.
        notes: the file of the operator's notes; None: there are none.
        checkpoints: the directory of finished rounds; None: there is none.
        keeps: whether this run writes checkpoints. If not, those of an earlier run may still be there.
    """

    output: str
    notes: str | None
    checkpoints: str | None
    keeps: bool


def prepare_output(
    places: Places,
    plan: ExtractionPlan,
    settings: dict[str, Any],
    output_format: str,
    *,
    overwrite: bool,
    resume: bool,
    resume_hint: str = "",
) -> bool:
    """Makes the places ready. Returns False if the release in the output is finished and is the one asked for.

    Everything is looked at before anything is deleted. The old manifest is deleted first: until the new one is written,
    nothing here looks like a release. Old notes are deleted, too: they never describe another release.

    Args:
        places: where the release goes, and what belongs to it.
        plan, settings, output_format: of the release that is asked for.
        overwrite: replace a release that is there.
        resume: keep the checkpoints of a run that died, or accept its finished release.
        resume_hint: a sentence for the error about an unfinished run: how to resume it.

    Raises:
        ParameterError: if something is there that must not be touched.
    """
    directory = places.output
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
    if not overwrite and not resume and can_resume(places):
        raise ParameterError(
            f"output must be a new or empty directory, got {directory!r} of an unfinished run (--overwrite starts "
            f"again). {resume_hint or 'Give its --noise_key and --resume to finish it.'}"
        )
    if found and not (overwrite or (resume and len(ours) == len(found))):
        kind = "a finished release" if finished else "files"
        raise ParameterError(
            f"output must be a new or empty directory, got {directory!r} with {kind} in it (--overwrite replaces it)."
        )
    if resume and any(is_checkpoint(name) for name in names.values()):
        raise ParameterError(
            f"resume must find checkpoints in {places.checkpoints!r}: those in the output are of an earlier version, "
            "which can finish that run (--overwrite starts anew)."
        )
    old_notes = _look_at_notes(places.notes, replace=overwrite or resume)
    old_checkpoints = _look_at_checkpoints(places, overwrite=overwrite, resume=resume)
    for path in [*finished, *(path for path in ours if path not in finished), *old_notes, *old_checkpoints]:
        FileSystems.delete([path])
    if places.checkpoints and not places.keeps:
        drop_checkpoints(places.checkpoints)  # also the empty directory
    return True


def _look_at_notes(path: str | None, *, replace: bool) -> list[str]:
    """The old notes, if there are some; raises ParameterError if new ones cannot be written there."""
    if path is None:
        return []
    try:
        if not FileSystems.exists(path):
            if FileSystems.get_scheme(path) is None:
                folder = os.path.dirname(os.path.abspath(path))
                make_private_directory(folder)
                if not os.access(folder, os.W_OK | os.X_OK):
                    raise PermissionError
            return []
        ours = json.loads(read_whole(path)).get("note") == NOTE
    except OSError as error:
        kind = type(error).__name__
        raise ParameterError(f"operator_notes must be a file that can be written, got {path!r} ({kind}).") from None
    except (ValueError, AttributeError, RecursionError):
        ours = False
    if not ours:
        raise ParameterError(f"operator_notes must be a new file, got {path!r}, which is something else.")
    if not replace:
        raise ParameterError(
            f"operator_notes must be a new file, got {path!r} of an earlier run (--overwrite replaces it)."
        )
    return [path]


def _look_at_checkpoints(places: Places, *, overwrite: bool, resume: bool) -> list[str]:
    """The checkpoints to delete; raises ParameterError if something else is there, or a run that could be resumed."""
    directory = places.checkpoints
    if directory is None:
        return []
    try:
        if places.keeps:
            make_private_directory(directory)
        found = [file.path for file in FileSystems.match([FileSystems.join(directory, "*")])[0].metadata_list]
    except Exception as error:
        kind = type(error).__name__
        raise ParameterError(f"checkpoints must be a directory, got {directory!r} ({kind}).") from None
    ours = find_checkpoints(directory)
    if ours and not (overwrite or resume):
        raise ParameterError(
            f"checkpoints must be a new or empty directory, got {directory!r} with a run that died in it (--resume "
            "finishes it, --overwrite starts anew)."
        )
    if places.keeps and len(ours) < len(found) and not overwrite:
        raise ParameterError(f"checkpoints must be a new or empty directory, got {directory!r} with files in it.")
    return [path for path in ours if not (resume and path.endswith(".block"))]


def can_resume(places: Places) -> bool:
    """Whether there is an unfinished run that --resume would go on with: checkpoints, and no manifest in the output."""
    if places.checkpoints is None:
        return False
    found = FileSystems.match([FileSystems.join(places.output, "*")])[0].metadata_list
    names = [FileSystems.split(file.path)[1] for file in found]
    unfinished = MANIFEST not in names and all(map(is_ours, names))
    return unfinished and any(path.endswith(".block") for path in find_checkpoints(places.checkpoints))


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


def clean_up(output: str, checkpoints: str | None) -> None:
    """Deletes what a finished release does not need: files that a dying worker left half written, and checkpoints."""
    found = FileSystems.match([FileSystems.join(output, "*.tmp")])[0].metadata_list
    for path in sorted(file.path for file in found if is_unfinished(FileSystems.split(file.path)[1])):
        with contextlib.suppress(BeamIOError):  # gone meanwhile: this may run twice at the same time
            FileSystems.delete([path])
    if checkpoints is not None:
        drop_checkpoints(checkpoints)


class CleanUp(beam.PTransform):
    """PCollection with one element for a release that is written -> nothing: `clean_up` as the last step of the graph.

    It is in the graph because nobody may wait for the end of a job. Checkpoints must not outlive their run: a release
    that is deleted later, or was never published, would stay readable in them. A step that runs twice deletes nothing
    twice. A run that fails does not come here and keeps its checkpoints for `--resume`.

    Args:
        output: the directory of the release.
        checkpoints: their directory; None: this run has none.
    """

    def __init__(self, output: str, checkpoints: str | None) -> None:
        super().__init__()
        self._clean_up = _CleanUpDoFn(output, checkpoints)

    def expand(self, written: beam.PCollection[Any]) -> beam.PCollection[str]:
        return written | "Delete" >> beam.ParDo(self._clean_up).with_output_types(str)


class _CleanUpDoFn(beam.DoFn):
    def __init__(self, output: str, checkpoints: str | None) -> None:
        self._output, self._checkpoints = output, checkpoints

    def process(self, _written: Any) -> Iterator[str]:
        clean_up(self._output, self._checkpoints)
        yield from ()

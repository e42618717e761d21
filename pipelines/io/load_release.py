"""`read_release`: the n-grams of a finished release as one table."""

import hashlib
import os

import pyarrow as pa
from apache_beam.io.filesystems import FileSystems

from dpngram.accounting import ParameterError
from dpngram.pipelines.io.encoding import OUTPUT_FORMATS
from dpngram.pipelines.io.release_files import MANIFEST, ManifestLevel, read_manifest, rows_path
from dpngram.pipelines.io.writing import MANIFEST_VERSION
from dpngram.transforms.whole_files import read_whole

__all__ = ["read_release"]


def read_release(directory: str | os.PathLike[str]) -> pa.Table:
    """All n-grams of a finished release, checked against the checksums of its manifest.

        phrases = dpngram.read_release("release/").to_pandas()

    The table is the same whatever format the release was written in, and the same as `extract_frame` gives. Of the
    directory only the manifest and the files that it names are read; `dpngram verify` checks everything else.

    Args:
        directory: the output of `dpngram extract`, or of one window of `dpngram stream`, on any filesystem that Beam
            knows.

    Returns:
        The columns n, phrase (the tokens, joined by blanks), tokens and weight, sorted by n and by tokens.

    Raises:
        ParameterError: if there is no finished release, if a file is not as it was written, or if the release has no
            weights (the format vocab).
    """
    place = os.fspath(directory)
    try:
        manifest = read_manifest(place)
        version, output_format, levels = manifest["format_version"], manifest["format"], manifest["levels"]
        files = [(level, rows_path(place, level["file"])) for level in levels]
    except Exception as error:  # the file may be anything, and broken in any way
        kind = type(error).__name__
        raise ParameterError(f"no finished release in {place!r}: no readable {MANIFEST} ({kind}).") from None
    if version != MANIFEST_VERSION or output_format not in OUTPUT_FORMATS:
        raise ParameterError(f"{MANIFEST} in {place!r} has a format that this version of dpngram does not know.")
    if output_format == "vocab":
        raise ParameterError(f"directory must have a release with weights, got one of the format vocab in {place!r}.")
    return pa.concat_tables([_load(output_format, level, path) for level, path in files])


def _load(output_format: str, level: ManifestLevel, path: str) -> pa.Table:
    name = FileSystems.split(path)[1]
    try:
        data = read_whole(path)
    except Exception as error:
        raise ParameterError(f"{name} cannot be read ({type(error).__name__}).") from None
    if hashlib.sha256(data).hexdigest() != level.get("sha256"):
        raise ParameterError(f"{name} is not as it was written: its checksum differs.")
    try:
        return OUTPUT_FORMATS[output_format].decode_columns(data, level["n"])
    except Exception as error:
        raise ParameterError(f"{name} does not have the columns of a release ({type(error).__name__}).") from None

"""What is read, and how: flags and checks that are the same for every program that reads text."""

import argparse
import os
import re
from collections.abc import Callable

import apache_beam as beam
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from dpngram.accounting import ParameterError
from dpngram.accounting.parameters import check_choice, check_integer, check_number
from dpngram.pipelines.io.input_formats import (
    INPUT_FORMATS,
    InputFormat,
    TableReader,
    format_of_files,
    format_of_suffix,
    input_format_help,
)
from dpngram.pipelines.io.parsing import Fields
from dpngram.pipelines.io.reading import ReadDocuments, match_files
from dpngram.pipelines.launch.flags import Flag, Kind, show_note
from dpngram.transforms.blocks.documents import DocumentBlock
from dpngram.transforms.randomness.noise_key import KeyReference
from dpngram.transforms.whole_files import make_private_directory

__all__ = [
    "check_apart",
    "check_input",
    "input_flags",
    "input_format_from_flags",
    "look_from_here",
    "max_bad_fraction",
    "new_directory",
    "read_documents",
]


def input_flags() -> list[Flag]:
    """The flags that say what to read."""
    fields = Fields()
    share = "largest share of users with bad records; with clearly more, the run fails"
    return [
        Flag("input", "file, pattern or table; may be given several times", Kind.PATH, required=True, several=True),
        Flag(
            "input_format",
            f"one of: {input_format_help()} (default: what the suffix of the files says)",
            choices=tuple(INPUT_FORMATS),
        ),
        Flag("user_field", f"field with the name of the user (default: {', else '.join(fields.user)})"),
        Flag("text_field", f"field with the text (default: {', else '.join(fields.text)})"),
        Flag("tokens_field", "instead of a text: field with a list of tokens"),
        Flag("skip_header_lines", "lines to skip at the head of each file", Kind.WHOLE_NUMBER, default=0),
        Flag("bad_records", "new directory for a list of the records that cannot be used", Kind.PATH, metavar="DIR"),
        Flag("max_bad_fraction", share, Kind.NUMBER, default=0.01),
    ]


def input_format_from_flags(flags: argparse.Namespace, *, look: bool = True, here: bool = True) -> InputFormat:
    """The input format that the flags ask for, or that the suffixes of the files say; raises ParameterError.

    Args:
        flags: with `input` and what says how to read it.
        look: whether the names of files may be looked up.
        here: whether the run takes place on this machine, which must then be able to read the input.
    """
    names = Fields()
    name = flags.input_format
    if name is None:
        name = _format_of_input(flags.input, look, here)
    return InputFormat(
        name=check_choice("input_format", name, tuple(INPUT_FORMATS)),
        fields=Fields(
            user=names.user if flags.user_field is None else (flags.user_field,),
            text=names.text if flags.text_field is None else (flags.text_field,),
            tokens=flags.tokens_field,
        ),
        skip_header_lines=check_integer("skip_header_lines", flags.skip_header_lines, 0, 1_000_000),
    )


def _format_of_input(patterns: list[str], look: bool, here: bool) -> str:
    """The format that the suffixes say: of the pattern, or where it has none, of the files that match it."""
    paths: list[str] = []
    for pattern in patterns:
        if format_of_suffix(pattern) is not None:
            paths.append(pattern)
        elif look:
            matched = _matched(pattern, here) or {}
            paths += [path for path, size in matched.items() if size] or list(matched)
    if not paths:
        show_note("input_format is taken to be jsonl: neither it nor a suffix is given, and no file was looked at.")
        return "jsonl"
    return format_of_files(paths)


def max_bad_fraction(flags: argparse.Namespace) -> float:
    """The share of users with bad records that a run may have; raises ParameterError."""
    return check_number("max_bad_fraction", flags.max_bad_fraction, 0.0, 1.0)


def check_input(flags: argparse.Namespace, input_format: InputFormat, *, look: bool = True, here: bool = True) -> int:
    """The likely size of the text in bytes; a ParameterError if the input cannot be read, or lacks the fields.

    Args:
        flags: with `input` and `bad_records`.
        input_format: what the input is.
        look: whether to look at the files. Without, and for tables, the size is 0.
        here: whether the run takes place on this machine. If not, and this machine may not read the files, a note
            says so, and the size is 0.
    """
    reader = input_format.reader
    if not isinstance(reader, TableReader):
        return _input_bytes(flags.input, input_format, here) if look else 0
    for table in flags.input:
        reader.check("input", table)
    if flags.bad_records:
        raise ParameterError(
            f"--bad_records is not supported with {input_format.name}: its rows have no file or offset to report."
        )
    return 0


def read_documents(
    pipeline: beam.Pipeline, patterns: list[str], input_format: InputFormat, bad_records: str | None
) -> beam.PCollection[DocumentBlock]:
    """Reads the input once.

    Args:
        pipeline: gets the step Read.
        patterns: files, patterns or tables.
        input_format: what they hold.
        bad_records: directory for the list of records that cannot be used.
    """
    reader = input_format.reader
    if isinstance(reader, TableReader):
        return pipeline | "Read" >> reader.transform(patterns, input_format.fields)
    return pipeline | "Read" >> ReadDocuments(patterns, input_format, bad_records)


def _input_bytes(patterns: list[str], input_format: InputFormat, here: bool) -> int:
    """The likely size of the text, if a look at the files finds nothing wrong."""
    if any(_matched(pattern, here) is None for pattern in patterns):
        return 0
    files = match_files(patterns)
    look_from_here(input_format.look_at, files, here)
    return sum(size * _expansion(path) for path, size in files.items())


def look_from_here(look: Callable[[dict[str, int]], None], files: dict[str, int], here: bool) -> None:
    """Looks at files before a run. If they cannot be opened, that is an error only where the run takes place here.

    Args:
        look: raises ParameterError if the files, with their sizes, are not as they should be.
        files: paths and sizes.
        here: whether the run takes place on this machine.
    """
    try:
        look(files)
    except ParameterError:
        raise
    except Exception as error:
        if here:
            raise ParameterError(f"input must be readable, but it is not ({type(error).__name__}).") from None
        show_note(f"the input was not looked at: this machine cannot read it ({type(error).__name__}).")


def _matched(pattern: str, here: bool) -> dict[str, int] | None:
    """The files of one pattern; a ParameterError if there are none. None: only the workers may list them."""
    try:
        matched = match_files([pattern])
    except Exception as error:
        if here or FileSystems.get_scheme(pattern) is None:
            raise ParameterError(
                f"input must be a readable file or pattern, got {pattern!r} ({type(error).__name__})."
            ) from None
        show_note(f"the input was not looked at: this machine cannot list {pattern!r} ({type(error).__name__}).")
        return None
    if not matched:
        raise ParameterError(f"input must match at least one file, got {pattern!r}.")
    return matched


def _expansion(path: str) -> int:
    """How many times larger than the file its text is likely to be."""
    return 1 if CompressionTypes.detect_compression_type(path) == CompressionTypes.UNCOMPRESSED else 4


def new_directory(name: str, directory: str | None, *, private: bool = False, may_hold: str = "") -> str | None:
    """Makes the directory; a ParameterError if there is something else in it.

    Args:
        name: of the flag, which the error begins with.
        directory: the value of the flag.
        private: only its owner may list it, if it is made here and on a local filesystem.
        may_hold: a regular expression for the names of files that may be in it.
    """
    if directory is not None:
        if FileSystems.get_scheme(directory) is None and os.path.isfile(directory):
            raise ParameterError(f"{name} must be a directory, got {directory!r}, which is a file.")
        try:
            if private:
                make_private_directory(directory)
            elif not FileSystems.exists(directory):
                FileSystems.mkdirs(directory)
            found = FileSystems.match([FileSystems.join(directory, "*")])[0].metadata_list
            if not all(re.fullmatch(may_hold, FileSystems.split(file.path)[1]) for file in found):
                raise ParameterError(f"{name} must be a new or empty directory, got {directory!r}.")
        except OSError as error:
            raise ParameterError(f"{name} must be a directory, got {directory!r} ({type(error).__name__}).") from None
    return directory


def check_apart(output: str, *, noise_key: str | None, key_records: str | None = None, **paths: str | None) -> None:
    """Raises ParameterError if the noise key, records of its uses, or one of the other paths, is inside the output.

    Also if a path is a pattern: files of another directory would be taken for those of this one.

    The output may be published. With the key, the noise can be removed; records of its uses tell which windows had
    data; lists of bad records and notes for the operator have exact counts; checkpoints tell of a run that is not
    finished. A link to a key counts as the key: records are made beside both.

    Args:
        output: the directory of the release.
        noise_key: as the user gave it.
        key_records: the directory for records of uses, as the user gave it.
        paths: other files and directories, by the name of their flag.
    """
    for name, path in {"output": output, **paths}.items():
        if path is not None and re.search(r"[*?\[]", path):  # Beam would take it for a pattern, of other directories
            raise ParameterError(f"{name} must be a path without *, ? and [, got {path!r}.")
    inside = {name: [path] for name, path in paths.items() if path is not None}
    if noise_key is not None:
        key = KeyReference.parse(noise_key, key_records)
        inside["noise_key"] = [key.location] if key.scheme == "file" else []
        inside["key_records"] = [place.directory for place in key.places() if place.key_file is None]
    for name, found in inside.items():
        for path in found:
            if any(_is_inside(one, output) for one in (_real(path), _named(path))):
                raise ParameterError(f"{name} must not be in the output, which may be published.")


def _is_inside(path: str, directory: str) -> bool:
    return f"{path}/".startswith(f"{_real(directory)}/")


def _real(path: str) -> str:
    """The path behind all links."""
    return (os.path.realpath(path) if FileSystems.get_scheme(path) is None else path).rstrip("/")


def _named(path: str) -> str:
    """The path behind all links but the last."""
    if FileSystems.get_scheme(path) is not None:
        return path.rstrip("/")
    directory, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(directory), name).rstrip("/")

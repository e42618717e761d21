"""Where the input lies and how it is read: flags and checks that are the same for every program that reads text."""

import argparse
import os
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from dpngram.accounting import ParameterError
from dpngram.accounting.parameters import check_choice, check_integer
from dpngram.pipelines.io.bigquery import ReadBigQuery, check_table
from dpngram.pipelines.io.parsing import Fields
from dpngram.pipelines.io.reading import INPUT_FORMATS, InputFormat, ReadDocuments, match_files
from dpngram.pipelines.launch.flags import number_or_text
from dpngram.transforms.randomness.noise_key import KeyReference

__all__ = [
    "add_input_flags",
    "add_tokenizer_flags",
    "check_apart",
    "check_input",
    "input_format_from_flags",
    "new_directory",
    "read_documents",
]


def add_input_flags(parser: argparse.ArgumentParser) -> Any:
    """The flags that say what to read; gives the group, for more of them."""
    data = parser.add_argument_group("data")
    data.add_argument(
        "--input", action="append", required=True, help="file, pattern or (bigquery) table; may be given several times"
    )
    data.add_argument(
        "--input_format",
        default="jsonl",
        help=f"one of: {', '.join(INPUT_FORMATS)} (default jsonl); text is one user a line",
    )
    data.add_argument("--user_field", help="field that names the user (default user, else author)")
    data.add_argument("--text_field", help="field with the text (default text, else content)")
    data.add_argument("--tokens_field", help="instead of a text: field with a list of tokens")
    data.add_argument(
        "--skip_header_lines", type=number_or_text, default=0, help="lines to skip at the head of each file"
    )
    data.add_argument("--bad_records", metavar="DIR", help="directory for a list of records that cannot be used")
    data.add_argument(
        "--max_bad_fraction", type=number_or_text, default=0.01, help="more bad records fail the run (default 0.01)"
    )
    return data


def add_tokenizer_flags(group: Any) -> None:
    """The flags that say what a token is."""
    group.add_argument(
        "--tokenizer",
        default="words",
        help="words, whitespace, regex:PATTERN, huggingface:FILE or module:function (default words)",
    )
    group.add_argument("--sentences", action="store_true", help="n-grams do not cross the end of a sentence")


def input_format_from_flags(flags: argparse.Namespace) -> InputFormat:
    names = Fields()
    return InputFormat(
        name=check_choice("input_format", flags.input_format, INPUT_FORMATS),
        fields=Fields(
            user=names.user if flags.user_field is None else (flags.user_field,),
            text=names.text if flags.text_field is None else (flags.text_field,),
            tokens=flags.tokens_field,
        ),
        skip_header_lines=check_integer("skip_header_lines", flags.skip_header_lines, 0, 1_000_000),
    )


def check_input(flags: argparse.Namespace, input_format: InputFormat, *, look: bool = True) -> int:
    """The likely size of the text (0 for tables, or without a look); an error if the input cannot be read at all."""
    if input_format.name != "bigquery":
        return _input_bytes(flags.input) if look else 0
    for table in flags.input:
        check_table("input", table)
    if flags.bad_records:
        raise ParameterError("bad_records must be left out with bigquery: rows have no place.")
    return 0


def read_documents(
    pipeline: beam.Pipeline, patterns: list[str], input_format: InputFormat, bad_records: str | None
) -> Any:  # (PCollection[DocumentBlock], PCollection[(int, (int, int))])
    """The one reading of the input: documents, and tallies of records for `CheckRecords`."""
    if input_format.name == "bigquery":
        return pipeline | "Read" >> ReadBigQuery(patterns, input_format.fields)
    return pipeline | "Read" >> ReadDocuments(patterns, input_format, bad_records)


def _input_bytes(patterns: list[str]) -> int:
    """The likely size of the text; an error if a pattern matches nothing."""
    for pattern in patterns:
        try:
            matched = match_files([pattern])
        except Exception as error:
            raise ParameterError(
                f"input must be a readable file or pattern, got {pattern!r} ({type(error).__name__})."
            ) from None
        if not matched:
            raise ParameterError(f"input must match at least one file, got {pattern!r}.")
    return sum(size * _expansion(path) for path, size in match_files(patterns).items())


def _expansion(path: str) -> int:
    """How many times larger than on disk the text of a file is likely to be."""
    return 1 if CompressionTypes.detect_compression_type(path) == CompressionTypes.UNCOMPRESSED else 4


def new_directory(name: str, directory: str | None) -> str | None:
    """Makes the directory; an error if something is in it. `name` is the flag's."""
    if directory is not None:
        if FileSystems.get_scheme(directory) is None and os.path.isfile(directory):
            raise ParameterError(f"{name} must be a directory, got {directory!r}, which is a file.")
        try:
            if not FileSystems.exists(directory):
                FileSystems.mkdirs(directory)
            if FileSystems.match([FileSystems.join(directory, "*")])[0].metadata_list:
                raise ParameterError(f"{name} must be a new or empty directory, got {directory!r}.")
        except OSError as error:
            raise ParameterError(f"{name} must be a directory, got {directory!r} ({type(error).__name__}).") from None
    return directory


def check_apart(output: str, *, noise_key: str | None, bad_records: str | None = None) -> None:
    """The key, with which the noise can be taken off, and exact counts must not lie in what may be published."""
    key = None if noise_key is None else KeyReference.parse(noise_key)
    inside = {"noise_key": key.location if key and key.scheme == "file" else None, "bad_records": bad_records}
    for name, path in inside.items():
        if path is not None and f"{_absolute(path)}/".startswith(f"{_absolute(output)}/"):
            raise ParameterError(f"{name} must not be in the output: what lies there may be published.")


def _absolute(path: str) -> str:
    return (os.path.realpath(path) if FileSystems.get_scheme(path) is None else path).rstrip("/")

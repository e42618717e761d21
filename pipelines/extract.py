"""`dpngram extract`: private n-grams from files."""

import argparse
import json
import os
from collections.abc import Sequence

import apache_beam as beam
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from dpngram.accounting import ExtractionPlan, ParameterError
from dpngram.accounting.parameters import check_choice, check_integer
from dpngram.pipelines.flags import OneLineParser, add_budget_flags, number_or_text, plan_from_flags, print_error
from dpngram.pipelines.reading import INPUT_FORMATS, InputFormat, ReadDocuments, match_files
from dpngram.pipelines.running import beam_options, failure_line, keep_memory, make_pipeline, quiet_logging
from dpngram.pipelines.writing import MANIFEST, OUTPUT_FORMATS, WriteRelease
from dpngram.transforms import ExtractLevels
from dpngram.transforms.keys import KeyProblem
from dpngram.transforms.tokenizers import TOKENIZERS
from dpngram.transforms.validity import PRUNINGS

__all__ = ["extract_files", "run"]

# About this much text in a block of users: large enough that numpy's cost per call vanishes.
_BYTES_PER_SHARD = 4 << 20
_SHARDS_RANGE = (16, 4096)


def run(argv: Sequence[str]) -> int:
    parser = OneLineParser(
        prog="dpngram extract", description="Release n-grams from private text. Any other flag goes to Beam."
    )
    add_budget_flags(parser)
    _add_flags(parser)
    flags, rest = parser.parse_known_args(argv)
    quiet_logging(flags.verbose)
    keep_memory()
    try:
        plan = plan_from_flags(flags)
        input_format = InputFormat(
            name=check_choice("input_format", flags.input_format, INPUT_FORMATS),
            user_field=flags.user_field,
            text_field=flags.text_field,
            skip_header_lines=check_integer("skip_header_lines", flags.skip_header_lines, 0, 1_000_000),
        )
        check_choice("output_format", flags.output_format, OUTPUT_FORMATS)
        options = beam_options(rest)
        size = _input_bytes(flags.input)
        _check_output(flags.output)
        pipeline = make_pipeline(options, size, verbose=flags.verbose)
        least, most = _SHARDS_RANGE
        extract = ExtractLevels(
            plan,
            tokenizer=flags.tokenizer,
            pruning=flags.pruning,
            noise_key=flags.noise_key,
            release=flags.release,
            user_per_document=input_format.name == "text",
            shards=max(least, min(size // _BYTES_PER_SHARD, most)) if flags.shards is None else flags.shards,
        )
        extract_files(pipeline, flags.input, input_format, flags.output, plan, extract)
    except (ParameterError, KeyProblem) as error:
        parser.error(str(error))
    try:
        pipeline.run().wait_until_finish()
    except Exception as error:
        if flags.verbose:
            raise
        return print_error(parser.prog, failure_line(error), status=1)
    print(_summary(flags.output))
    return 0


def _summary(directory: str) -> str:
    """One line from the manifest: what was released, and where it lies."""
    with FileSystems.open(FileSystems.join(directory, MANIFEST), compression_type="uncompressed") as file:
        manifest = json.loads(file.read())
    levels = " + ".join(f"{level['released']:,}" for level in manifest["levels"])
    return f"Released {manifest['released']:,} n-grams ({levels}) into {directory}"


def extract_files(
    pipeline: beam.Pipeline,
    patterns: list[str],
    input_format: InputFormat,
    output: str,
    plan: ExtractionPlan,
    extract: ExtractLevels,
) -> None:
    """The whole graph: bytes -> documents -> levels -> files."""
    tables = (
        pipeline
        | "Read" >> ReadDocuments(patterns, input_format)  # blocks of documents
        | "ExtractNgrams" >> extract  # {n: table of released grams}
    )
    settings = {name: value for name, value in extract.settings().items() if name != "plan"}
    tables | "Write" >> WriteRelease(output, plan, settings)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    data = parser.add_argument_group("data")
    data.add_argument("--input", action="append", required=True, help="file or pattern; may be given several times")
    data.add_argument("--output", required=True, help="directory for the release; must be new or empty")
    data.add_argument(
        "--input_format",
        default="jsonl",
        help=f"one of: {', '.join(INPUT_FORMATS)} (default jsonl); text is one user a line",
    )
    data.add_argument("--user_field", default="user", help="field that names the user (default user)")
    data.add_argument("--text_field", default="text", help="field with the text (default text)")
    data.add_argument(
        "--skip_header_lines", type=number_or_text, default=0, help="lines to skip at the head of each file"
    )
    data.add_argument("--output_format", default="jsonl", help=f"one of: {', '.join(OUTPUT_FORMATS)} (default jsonl)")
    how = parser.add_argument_group("extraction")
    how.add_argument("--tokenizer", default="words", help=f"one of: {', '.join(TOKENIZERS)} (default words)")
    how.add_argument("--pruning", default="both", help=f"one of: {', '.join(PRUNINGS)} (default both)")
    how.add_argument(
        "--noise_key",
        help="file:PATH, env:NAME or gcp-secret:NAME; only to resume or replay one release (default: a fresh key)",
    )
    how.add_argument("--release", default="", help="label of the release, with a key that is used again")
    how.add_argument("--shards", type=number_or_text, help="blocks of users (default: from the size of the input)")
    how.add_argument("--verbose", action="store_true", help="show Beam's messages, and tracebacks")


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


def _check_output(directory: str) -> None:
    """Makes the directory; an error if something is in it, or if it cannot be made."""
    if FileSystems.get_scheme(directory) is None and os.path.isfile(directory):
        raise ParameterError(f"output must be a directory, got {directory!r}, which is a file.")
    try:
        if not FileSystems.exists(directory):
            FileSystems.mkdirs(directory)
        occupied = FileSystems.match([FileSystems.join(directory, "*")])[0].metadata_list
    except Exception as error:
        raise ParameterError(f"output must be a directory, got {directory!r} ({type(error).__name__}).") from None
    if occupied:
        finished = any(file.path.endswith(MANIFEST) for file in occupied)
        kind = "a finished release" if finished else "files"
        raise ParameterError(f"output must be a new or empty directory, got {directory!r} with {kind} in it.")

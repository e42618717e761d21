"""`dpngram extract`: private n-grams from files."""

import argparse
import time
from collections.abc import Sequence

import apache_beam as beam

from dpngram.accounting import ExtractionPlan, ParameterError
from dpngram.accounting.parameters import check_choice, check_number
from dpngram.pipelines.io.bigquery import WriteBigQuery, check_table
from dpngram.pipelines.io.encoding import OUTPUT_FORMATS
from dpngram.pipelines.io.output_directory import (
    drop_checkpoints,
    prepare_output,
)
from dpngram.pipelines.io.reading import CheckRecords, InputFormat
from dpngram.pipelines.io.writing import WriteRelease, read_manifest
from dpngram.pipelines.launch.beam_flags import beam_options
from dpngram.pipelines.launch.dataflow import check_dataflow, is_dataflow, is_dry_run, job_line, waits
from dpngram.pipelines.launch.failures import failure_line
from dpngram.pipelines.launch.flags import OneLineParser, add_budget_flags, number_or_text, plan_from_flags, print_error
from dpngram.pipelines.launch.input_flags import (
    add_input_flags,
    add_tokenizer_flags,
    check_apart,
    check_input,
    input_format_from_flags,
    new_directory,
    read_documents,
)
from dpngram.pipelines.launch.operator_notes import write_operator_notes
from dpngram.pipelines.launch.progress import show_metrics, show_progress
from dpngram.pipelines.launch.runner import make_pipeline
from dpngram.pipelines.launch.scaling import default_shards
from dpngram.pipelines.launch.startup import keep_memory, quiet_logging
from dpngram.pipelines.report import write_report
from dpngram.transforms import ExtractLevels
from dpngram.transforms.randomness.noise_key import NoiseKeyError
from dpngram.transforms.validity_filter import PRUNINGS

__all__ = ["extract_files", "make_parser", "run"]


def make_parser() -> OneLineParser:
    """All flags of the program."""
    parser = OneLineParser(
        prog="dpngram extract", description="Release n-grams from private text. Any other flag goes to Beam."
    )
    add_budget_flags(parser)
    _add_flags(parser)
    return parser


def run(argv: Sequence[str]) -> int:
    parser = make_parser()
    flags, rest = parser.parse_known_args(argv)
    quiet_logging(flags.verbose)
    keep_memory()
    start = time.time()
    try:
        plan = plan_from_flags(flags)
        input_format = input_format_from_flags(flags)
        check_choice("output_format", flags.output_format, tuple(OUTPUT_FORMATS))
        most_bad = check_number("max_bad_fraction", flags.max_bad_fraction, 0.0, 1.0)
        options = beam_options(rest)
        dry_run = is_dry_run(options)
        if is_dataflow(options):
            files = {"input": [] if input_format.name == "bigquery" else flags.input, "output": [flags.output]}
            files["bad_records"] = [flags.bad_records] if flags.bad_records else []
            check_dataflow(options, files, flags.noise_key, flags.tokenizer)
        size = check_input(flags, input_format, look=not dry_run)
        if flags.output_bigquery is not None:
            check_table("output_bigquery", flags.output_bigquery)
        check_apart(flags.output, noise_key=flags.noise_key, bad_records=flags.bad_records)
        if flags.resume and flags.noise_key is None:
            raise ParameterError("resume must have the noise_key of the run that it finishes.")
        pipeline = make_pipeline(options, size, verbose=flags.verbose)
        extract = ExtractLevels(
            plan,
            tokenizer=flags.tokenizer,
            sentences=flags.sentences,
            pruning=flags.pruning,
            noise_key=flags.noise_key,
            release=flags.release,
            user_per_document=input_format.name == "text",
            shards=default_shards(size) if flags.shards is None else flags.shards,
            checkpoints=None if flags.noise_key is None else flags.output,
        )
        settings = {name: value for name, value in extract.settings().items() if name != "plan"}
        if not dry_run and not prepare_output(
            flags.output, plan, settings, flags.output_format, overwrite=flags.overwrite, resume=flags.resume
        ):
            print(_finished_again(flags.output))
            return 0
        extract_files(
            pipeline,
            flags.input,
            input_format,
            flags.output,
            plan,
            extract,
            output_format=flags.output_format,
            bad_records=flags.bad_records if dry_run else new_directory("bad_records", flags.bad_records),
            max_bad_fraction=most_bad,
            output_bigquery=flags.output_bigquery,
        )
    except (ParameterError, NoiseKeyError) as error:
        parser.error(str(error))
    try:
        with show_progress(pipeline, plan.max_n, size, quiet=flags.quiet):
            result = pipeline.run()
            if dry_run or not waits(options):
                print(job_line(options, result, flags.output))
                return 0
            with show_metrics(result, quiet=flags.quiet):
                result.wait_until_finish()
        drop_checkpoints(flags.output)
        write_report(flags.output)
        write_operator_notes(flags.output, result, time.time() - start, size)
    except Exception as error:
        line = failure_line(error, pipeline, flags.noise_key)
        if line.startswith("max_bad_fraction"):
            drop_checkpoints(flags.output)  # nothing of this input is to be released
        if flags.verbose:
            raise
        return print_error(parser.prog, line, status=1)
    print(_summary(flags.output))
    return 0


def _finished_again(directory: str) -> str:
    """What is left to do for a release that is whole; its summary."""
    drop_checkpoints(directory)
    try:
        write_report(directory)
        return _summary(directory)
    except Exception as error:  # a manifest that was edited can be broken in any way
        raise ParameterError(
            f"resume must find a whole release in {directory!r}: its manifest is broken ({type(error).__name__})."
        ) from None


def _summary(directory: str) -> str:
    """One line from the manifest: what was released, and where it lies."""
    manifest = read_manifest(directory)
    levels = " + ".join(f"{level['released']:,}" for level in manifest["levels"])
    return f"Released {manifest['released']:,} n-grams ({levels}) into {directory}"


def extract_files(
    pipeline: beam.Pipeline,
    patterns: list[str],
    input_format: InputFormat,
    output: str,
    plan: ExtractionPlan,
    extract: ExtractLevels,
    *,
    output_format: str = "jsonl",
    bad_records: str | None = None,
    max_bad_fraction: float = 0.01,
    output_bigquery: str | None = None,
) -> None:
    """The whole graph: bytes -> documents -> levels -> files."""
    documents, tallies = read_documents(pipeline, patterns, input_format, bad_records)
    gate = tallies | "CheckRecords" >> CheckRecords(max_bad_fraction)  # one element, or the run fails
    tables = documents | "ExtractNgrams" >> extract  # {n: table of released grams}
    settings = {name: value for name, value in extract.settings().items() if name != "plan"}
    tables | "Write" >> WriteRelease(output, plan, settings, gate, output_format)
    if output_bigquery is not None:
        tables | "WriteBigQuery" >> WriteBigQuery(output_bigquery, gate)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    data = add_input_flags(parser)
    data.add_argument("--output", required=True, help="directory for the release; must be new or empty")
    data.add_argument("--output_format", default="jsonl", help=f"one of: {', '.join(OUTPUT_FORMATS)} (default jsonl)")
    data.add_argument("--output_bigquery", metavar="TABLE", help="also write the rows to PROJECT:DATASET.TABLE")
    data.add_argument("--overwrite", action="store_true", help="replace a release in the output directory")
    data.add_argument(
        "--resume", action="store_true", help="finish a run that died from the rounds it had done, with its --noise_key"
    )
    how = parser.add_argument_group("extraction")
    add_tokenizer_flags(how)
    how.add_argument("--pruning", default="both", help=f"one of: {', '.join(PRUNINGS)} (default both; plus needs both)")
    how.add_argument(
        "--noise_key",
        help="file:PATH, env:NAME or gcp-secret:NAME; only to resume or replay one release (default: a fresh key)",
    )
    how.add_argument("--release", default="", help="label of the release, with a key that is used again")
    how.add_argument("--shards", type=number_or_text, help="blocks of users (default: from the size of the input)")
    how.add_argument("--quiet", action="store_true", help="no progress")
    how.add_argument("--verbose", action="store_true", help="show Beam's messages, and tracebacks")

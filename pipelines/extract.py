"""`dpngram extract`: private n-grams from files."""

import argparse
import functools
import itertools
import time
from collections.abc import Callable, Sequence

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from dpngram.accounting import ExtractionPlan, ParameterError
from dpngram.accounting.advice import FEW, advise_more
from dpngram.accounting.parameters import check_choice
from dpngram.pipelines.io.bigquery import TABLE_PATTERN, WriteBigQuery, check_table
from dpngram.pipelines.io.deny_list import NOTHING_DENIED, DenyList, read_deny_list
from dpngram.pipelines.io.encoding import OUTPUT_FORMATS
from dpngram.pipelines.io.input_formats import FileReader, InputFormat
from dpngram.pipelines.io.output_directory import CleanUp, Places, beside, can_resume, clean_up, prepare_output
from dpngram.pipelines.io.reading import BAD_RECORDS
from dpngram.pipelines.io.release_files import Origin, iterate_rows, read_manifest
from dpngram.pipelines.io.writing import WriteRelease
from dpngram.pipelines.launch.dataflow import check_dataflow, is_dataflow, is_dry_run, job_line, waits
from dpngram.pipelines.launch.extraction_flags import (
    deny_flag,
    extraction_arguments,
    extraction_flags,
    output_format_flag,
    pruning_flag,
    screen_flags,
    vocabulary_flag,
)
from dpngram.pipelines.launch.failures import failure_message
from dpngram.pipelines.launch.flags import (
    Flag,
    Kind,
    OneLineParser,
    budget_flags,
    check_users,
    plan_from_flags,
    show_note,
    users_flag,
    warn_of_doubts,
)
from dpngram.pipelines.launch.flink import job_ends
from dpngram.pipelines.launch.input_flags import (
    check_apart,
    check_input,
    input_flags,
    input_format_from_flags,
    max_bad_fraction,
    new_directory,
    read_documents,
)
from dpngram.pipelines.launch.ledger_flags import EXTRACT_LABEL, Account, ledger_flags, open_account
from dpngram.pipelines.launch.local_memory import memory_flags, scratch_from_flags
from dpngram.pipelines.launch.operator_notes import write_operator_notes
from dpngram.pipelines.launch.program import Job, run_job
from dpngram.pipelines.launch.progress import show_metrics, show_progress
from dpngram.pipelines.launch.runner import make_pipeline, runs_here
from dpngram.pipelines.report import write_report
from dpngram.transforms import ExtractLevels
from dpngram.transforms.messages import Message
from dpngram.transforms.vocabulary import OF_TOKENIZER, read_vocabulary

__all__ = ["extract_files", "make_parser", "run"]


def make_parser() -> OneLineParser:
    """All flags of the program."""
    parser = OneLineParser(
        prog="dpngram extract", description="Release n-grams from private text. Any other flag goes to Beam."
    )
    parser.add_flags([*budget_flags(), users_flag(), *ledger_flags()], "budget")
    parser.add_flags([*input_flags(), *_output_flags()], "data")
    when = "give one only to resume or replay one release (default: a fresh key)"
    extraction = extraction_flags("release", when)
    extraction = [*extraction, vocabulary_flag(), pruning_flag(), *memory_flags(), *screen_flags(progress=True)]
    parser.add_flags(extraction, "extraction")
    return parser


def _output_flags() -> list[Flag]:
    table = "also write the rows to this BigQuery table, PROJECT:DATASET.TABLE"
    resume = "finish a run that died, with its --noise_key: go on after the last round that was done"
    notes = (
        "file for exact counts of records, which only you may see (default: OUTPUT.operator.json, beside the output)"
    )
    rounds = "with --noise_key: directory for finished rounds until the release is there (default: OUTPUT.checkpoints)"
    return [
        Flag("output", "directory for the release; must be new or empty", Kind.PATH, required=True, metavar="DIR"),
        output_format_flag(),
        deny_flag(),
        Flag("output_bigquery", table, pattern=TABLE_PATTERN, metavar="TABLE"),
        Flag("overwrite", "replace a release in the output directory", Kind.SWITCH),
        Flag("resume", resume, Kind.SWITCH),
        Flag("operator_notes", notes, Kind.PATH, metavar="FILE"),
        Flag("checkpoints", rounds, Kind.PATH, metavar="DIR"),
    ]


def run(argv: Sequence[str]) -> int:
    """Runs the program; returns the exit status."""
    return run_job(make_parser(), argv, _prepare)


def _prepare(flags: argparse.Namespace, options: PipelineOptions) -> Job:
    start = time.time()
    plan, most_bad = plan_from_flags(flags), max_bad_fraction(flags)
    dry_run, here = is_dry_run(options), runs_here(options)
    input_format = input_format_from_flags(flags, look=not dry_run, here=here)
    places = _check_flags(flags, options, input_format)
    ends = job_ends(options, plan)
    _check_jobs(flags, plan, ends)
    tokens_given = input_format.fields.tokens is not None
    deny = read_deny_list(flags.deny, flags.tokenizer, tokens_given=tokens_given, offline=dry_run)

    vocabulary = read_vocabulary(flags.vocabulary, flags.tokenizer, tokens_given=tokens_given, offline=dry_run)

    def make_transform(size: int) -> ExtractLevels:
        return ExtractLevels(
            plan,
            **extraction_arguments(flags, size, local=here),
            user_per_document=not input_format.reader.has_users,
            vocabulary=vocabulary,
            max_bad_fraction=most_bad,
            checkpoints=places.checkpoints if places.keeps else None,
            offline=dry_run,
        )

    account = open_account("extract", flags, plan, make_transform(0).settings(), local=here, offline=dry_run)
    account.check()
    size = check_input(flags, input_format, look=not dry_run, here=here)
    make_scratch = scratch_from_flags(flags, options, size)
    start_graph = functools.partial(
        make_pipeline, options, size, given=flags.beam_flags, verbose=flags.verbose, make_scratch=make_scratch
    )
    pipeline = start_graph()
    extract = make_transform(size)
    if not dry_run and not prepare_output(
        places,
        plan,
        extract.settings(),
        flags.output_format,
        overwrite=flags.overwrite,
        resume=flags.resume,
        resume_hint=f"To finish it: {flags.resume_command}" if flags.noise_key else "",
    ):
        _check_denied(places.output, deny)
        account.enter()
        return Job(functools.partial(_show, _finished_again(places), account))
    bad_records = flags.bad_records if dry_run else _bad_records(flags)

    def build(pipeline: beam.Pipeline, last: int) -> beam.Pipeline:
        """The graph of the job that ends with this level."""
        if last < plan.max_n:
            documents = read_documents(pipeline, flags.input, input_format, bad_records)
            documents | EXTRACT_LABEL >> extract.up_to(last)
            return pipeline
        extract_files(
            pipeline,
            flags.input,
            input_format,
            flags.output,
            plan,
            extract,
            output_format=flags.output_format,
            checkpoints=places.checkpoints if places.keeps else None,
            bad_records=bad_records,
            output_bigquery=flags.output_bigquery,
            origin={**_origin(input_format), "release": flags.release},
            deny=deny,
        )
        return pipeline

    def go_on(after: int, last: int) -> beam.Pipeline:
        """The graph of the job that goes on after one that ended with another level."""
        if extract.levels_done() < after:  # all would be computed again, in one job
            raise RuntimeError(Message.CHECKPOINTS_NOT_SHARED.format())
        return build(start_graph(), last)

    done = extract.levels_done() if len(ends) > 1 else 0
    ends = [last for last in ends[:-1] if last > done] + ends[-1:]
    build(pipeline, ends[0])
    later = [functools.partial(go_on, after, last) for after, last in itertools.pairwise(ends)]
    check_users(flags)
    if not flags.quiet:
        warn_of_doubts("dpngram extract", flags, plan)
        if later:
            show_note(f"Flink cannot plan all rounds as one job, so this run is {len(ends)} jobs, one after another.")
    if not dry_run:
        account.enter()
    run = functools.partial(_run, flags, options, places, pipeline, later, account, size, start)
    return Job(run, pipeline, functools.partial(can_resume, places) if places.keeps else None)


def _check_jobs(flags: argparse.Namespace, plan: ExtractionPlan, ends: Sequence[int]) -> None:
    """Raises ParameterError for a run of several jobs that could not go on from each other."""
    if len(ends) > 1 and flags.noise_key is None:
        command = flags.resume_command.removesuffix(" --resume")
        raise ParameterError(
            f"noise_key must be given for policy {plan.policy} with max_n {plan.max_n} on Flink in batch: the run is "
            f"{len(ends)} jobs, and each goes on from the checkpoints before it. Name a new file, in a directory that "
            f"all workers share: {command} --noise_key file:run.key"
        )


def _check_denied(directory: str, deny: DenyList) -> None:
    """Raises ParameterError if a finished release was made with another --deny."""
    manifest = read_manifest(directory)
    said = manifest.get("origin", {}).get("denied")
    grams = (tokens for rows in iterate_rows(directory, manifest).values() for tokens, _ in rows)
    if said != (deny.in_words() if deny.phrases else None) or deny.holds(grams):
        raise ParameterError(
            f"resume must have the --deny of the release that is in {directory!r}; --overwrite makes it again, and "
            "with the same key it is the same release."
        )


def _origin(input_format: InputFormat) -> Origin:
    """What a user was, and which field had the text, in words."""
    fields = input_format.fields
    if not input_format.reader.has_users:
        return {"user": "each line", "text": "the line"}
    text = f"lists of tokens in field {fields.tokens}" if fields.tokens else f"field {', else '.join(fields.text)}"
    return {"user": f"field {', else '.join(fields.user)}", "text": text}


def _bad_records(flags: argparse.Namespace) -> str | None:
    """The directory of the list. A run that is resumed writes the same files again that the run before it wrote."""
    may_hold = BAD_RECORDS if flags.resume else ""
    return new_directory("bad_records", flags.bad_records, private=True, may_hold=may_hold)


def _check_flags(flags: argparse.Namespace, options: PipelineOptions, input_format: InputFormat) -> Places:
    """Where the files of the run go; raises ParameterError for flags that do not fit together."""
    check_choice("output_format", flags.output_format, tuple(OUTPUT_FORMATS))
    if is_dataflow(options):
        optional = {name: getattr(flags, name) for name in ("bad_records", "checkpoints", "key_records")}
        paths = {"output": [flags.output], **{name: [path] for name, path in optional.items() if path}}
        if isinstance(input_format.reader, FileReader):
            paths = {"input": flags.input, **paths}
        check_dataflow(options, paths, flags.noise_key, flags.tokenizer)
    if flags.output_bigquery is not None:
        check_table("output_bigquery", flags.output_bigquery)
    if flags.resume and flags.noise_key is None:
        raise ParameterError("--resume needs --noise_key: give the key of the run you want to finish.")
    if flags.checkpoints is not None and flags.noise_key is None:
        raise ParameterError("--checkpoints needs --noise_key: only a run with the same key can go on from them.")
    waiting = waits(options)
    if flags.operator_notes is not None and not waiting:
        raise ParameterError("--operator_notes needs a job that is waited for; otherwise its figures are the counters.")
    notes = flags.operator_notes or beside(flags.output, "operator.json")
    checkpoints = flags.checkpoints or beside(flags.output, "checkpoints")
    needed = {"operator_notes": not waiting or notes, "checkpoints": flags.noise_key is None or checkpoints}
    for name, place in needed.items():
        if not place:
            raise ParameterError(f"{name} must be given: nothing can be beside {flags.output!r}.")
    check_apart(
        flags.output,
        noise_key=flags.noise_key,
        key_records=flags.key_records,
        bad_records=flags.bad_records,
        operator_notes=notes,
        checkpoints=checkpoints,
        ledger=flags.ledger,
        deny=flags.deny,
        vocabulary=None if flags.vocabulary == OF_TOKENIZER else flags.vocabulary,
    )
    return Places(flags.output, notes, checkpoints, keeps=flags.noise_key is not None)


def _run(
    flags: argparse.Namespace,
    options: PipelineOptions,
    places: Places,
    pipeline: beam.Pipeline,
    later: Sequence[Callable[[], beam.Pipeline]],
    account: Account,
    size: int,
    start: float,
) -> int:
    """Runs the job, and those after it. Counters are those of the last one: each reads all of the input."""
    try:
        for build in (lambda: pipeline, *later):
            graph = build()
            with show_progress(graph, account.plan.max_n, size, quiet=flags.quiet):
                result = graph.run()
                if is_dry_run(options) or not waits(options):
                    return _show(job_line(options, result, flags.output))
                with show_metrics(result, quiet=flags.quiet):
                    result.wait_until_finish()
    except Exception as error:
        if failure_message(error) is Message.TOO_MANY_BAD_RECORDS:
            clean_up(places.output, places.checkpoints)  # nothing of this input is to be released
        raise
    write_report(flags.output)
    if places.notes is not None:
        write_operator_notes(places.notes, result, start, size, type(pipeline.runner).__name__)
    status = _show(_summary(flags.output), account)
    if not flags.quiet and read_manifest(flags.output)["released"] < FEW:  # a public number
        show_note(advise_more(account.plan))
    return status


def _show(line: str, account: Account | None = None) -> int:
    print(line)
    if account is not None:
        account.show()
    return 0


def _finished_again(places: Places) -> str:
    """Finishes a run that died after its manifest was written; returns the summary of the release."""
    directory = places.output
    clean_up(directory, places.checkpoints)
    try:
        write_report(directory)
        return _summary(directory)
    except Exception as error:  # a manifest that was edited can be broken in any way
        raise ParameterError(
            f"resume must find a whole release in {directory!r}: its manifest is broken ({type(error).__name__})."
        ) from None


def _summary(directory: str) -> str:
    """One line from the manifest: what was released, and into which directory."""
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
    checkpoints: str | None = None,
    bad_records: str | None = None,
    output_bigquery: str | None = None,
    origin: Origin | None = None,
    deny: DenyList = NOTHING_DENIED,
) -> None:
    """The whole graph: bytes -> documents -> levels -> files.

    Args:
        pipeline: gets the steps.
        patterns: files, patterns or tables.
        input_format: what they hold.
        output: the directory of the release.
        plan: the plan of `extract`, for the manifest.
        extract: the transform from documents to levels.
        output_format: one of `OUTPUT_FORMATS`.
        checkpoints: those of `extract`; they are deleted when the release is written.
        bad_records: directory for the list of records that cannot be used.
        output_bigquery: a table that gets the rows, too.
        origin: what the release is made from, for the manifest.
        deny: what is left out of everything that is written.
    """
    documents = read_documents(pipeline, patterns, input_format, bad_records)
    tables = documents | EXTRACT_LABEL >> extract  # {n: table of released grams}
    written = tables | "Write" >> WriteRelease(
        output, plan, extract.settings(), output_format, origin=origin, deny=deny
    )
    written | "CleanUp" >> CleanUp(output, checkpoints)
    if output_bigquery is not None:
        tables | "WriteBigQuery" >> WriteBigQuery(output_bigquery, deny)

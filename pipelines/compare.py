"""`dpngram compare`: runs the paper's systems side by side on any input, and makes its tables and figures."""

import argparse
import functools
import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from dpngram.accounting import ExtractionPlan, ParameterError
from dpngram.accounting.parameters import check_integer
from dpngram.pipelines.io.output_directory import beside
from dpngram.pipelines.launch.extraction_flags import extraction_arguments, extraction_flags, screen_flags
from dpngram.pipelines.launch.flags import Flag, Kind, OneLineParser, guarantee_flags
from dpngram.pipelines.launch.input_flags import (
    check_apart,
    check_input,
    input_flags,
    input_format_from_flags,
    max_bad_fraction,
    new_directory,
    read_documents,
)
from dpngram.pipelines.launch.local_memory import memory_flags, scratch_from_flags
from dpngram.pipelines.launch.program import Job, run_job
from dpngram.pipelines.launch.progress import show_metrics, show_progress
from dpngram.pipelines.launch.runner import make_pipeline, runs_here
from dpngram.pipelines.pages.comparison_page import render_page
from dpngram.pipelines.research.comparison_files import Exact, Outline, Results
from dpngram.pipelines.research.results import (
    EXACT_WARNING,
    exact_tables,
    fill_exact,
    fill_results,
    outline,
    result_tables,
    spent_in_words,
    to_json,
)
from dpngram.pipelines.research.systems import SWEEPS, SYSTEMS, Comparison, plan_comparison
from dpngram.transforms.baselines.compare_systems import CompareSystems
from dpngram.transforms.beam_workarounds import check_main_input
from dpngram.transforms.whole_files import read_whole, write_whole

__all__ = ["compare_files", "exact_directory", "run"]

RESULTS, PAGE = "comparison.json", "comparison.html"
_EXACT = "exact-counts-NOT-PRIVATE"
EXACT_RESULTS, EXACT_PAGE = f"{_EXACT}.json", "comparison-NOT-PRIVATE.html"
_ANONYMITY = (20, 50, 100, 200, 500)
_RED, _PLAIN = "\x1b[1;31m", "\x1b[0m"


def run(argv: Sequence[str]) -> int:
    """Runs the program; returns the exit status."""
    return run_job(_make_parser(), argv, _prepare)


def _prepare(flags: argparse.Namespace, options: PipelineOptions) -> Job:
    comparison = _comparison(flags)
    anonymity = _anonymity(flags.anonymity, flags.reveal_exact_counts)
    here, most_bad = runs_here(options), max_bad_fraction(flags)
    input_format = input_format_from_flags(flags, here=here)
    size = check_input(flags, input_format, here=here)
    make_scratch = scratch_from_flags(flags, options, size)
    pipeline = make_pipeline(options, size, given=flags.beam_flags, verbose=flags.verbose, make_scratch=make_scratch)
    systems = CompareSystems(
        [run for _, _, run in comparison.runs()],
        **extraction_arguments(flags, size, local=here),
        user_per_document=not input_format.reader.has_users,
        max_user_tokens=flags.max_user_tokens,
        anonymity=anonymity,
        max_bad_fraction=most_bad,
        followed=[run for run, (row, _, _) in enumerate(comparison.runs()) if row in comparison.systems],
    )
    if flags.release and flags.noise_key is None:
        raise ParameterError("release must be left out without a noise_key: a fresh key needs no label.")
    check_apart(flags.output, noise_key=flags.noise_key, key_records=flags.key_records, bad_records=flags.bad_records)
    bad_records = new_directory("bad_records", flags.bad_records, private=True)
    new_directory("output", flags.output)
    if anonymity is not None:
        new_directory("reveal_exact_counts", exact_directory(flags.output), private=True)
    documents = read_documents(pipeline, flags.input, input_format, bad_records)
    compare_files(documents, flags.output, comparison, systems, anonymity)
    return Job(functools.partial(_run, pipeline, comparison, flags, size, exact=anonymity is not None), pipeline)


def _comparison(flags: argparse.Namespace) -> Comparison:
    return plan_comparison(
        epsilon=flags.epsilon,
        delta=flags.delta,
        max_n=flags.max_n,
        max_contributions=flags.max_contributions,
        eta=flags.eta,
        decay=flags.decay,
        systems=flags.systems,
        sweeps=flags.sweep,
        sweep_system=flags.sweep_system,
        repeats=flags.repeats,
        as_printed=flags.as_printed,
    )


def _run(pipeline: beam.Pipeline, comparison: Comparison, flags: argparse.Namespace, size: int, *, exact: bool) -> int:
    output = flags.output
    if exact:
        _warn(f"{EXACT_WARNING} They go to {exact_directory(output)}/ and nowhere else.")
    print(spent_in_words(comparison), file=sys.stderr, flush=True)
    extractions = sum(isinstance(run.plan, ExtractionPlan) for _, _, run in comparison.runs())
    with show_progress(pipeline, comparison.max_n, size, quiet=flags.quiet, runs=extractions):
        result = pipeline.run()
        with show_metrics(result, quiet=flags.quiet):
            result.wait_until_finish()
    print(_summary(_write_pages(output, exact=exact), output))
    return 0


def exact_directory(output: str) -> str:
    """Where exact counts go: beside the output, which may be published."""
    place = beside(output, _EXACT)
    if place is None:
        raise ParameterError(f"output must be a directory that something can be beside, got {output!r}.")
    return place


def compare_files(
    documents: beam.PCollection[Any],
    output: str,
    comparison: Comparison,
    systems: CompareSystems,
    anonymity: Sequence[int] | None,
) -> None:
    """The graph after the reading: users are grouped once -> every run -> sizes -> comparison.json.

    Args:
        documents: from `read_documents`.
        output: the directory.
        comparison: what is run.
        systems: the transform that runs it.
        anonymity: the values of K for exact counts, which are NOT private; None: no exact counts.
    """
    sizes, exact = documents | "Compare" >> systems  # ((kind, run, n, K), count)
    begun = outline(comparison, systems.settings())
    path = FileSystems.join(output, RESULTS)
    start = documents.pipeline | "Start" >> beam.Impulse()
    write = beam.Map(_write_results, path, begun, comparison, sizes=beam.pvalue.AsIter(sizes))
    start | "WriteResults" >> check_main_input(write, bytes)
    if exact is not None and anonymity is not None:
        apart = FileSystems.join(exact_directory(output), EXACT_RESULTS)
        sides = {"sizes": beam.pvalue.AsIter(sizes), "exact": beam.pvalue.AsIter(exact)}
        write = beam.Map(_write_exact, apart, begun, comparison, anonymity, **sides)
        start | "WriteExactCounts" >> check_main_input(write, bytes)


def _write_results(_start: bytes, path: str, begun: Outline, comparison: Comparison, sizes: Iterable[Any]) -> str:
    """Writes comparison.json: the sizes of the releases, which anybody could count, and nothing else of the data."""
    write_whole(path, to_json(fill_results(begun, comparison, dict(sizes))))
    return path


def _write_exact(
    _start: bytes,
    path: str,
    begun: Outline,
    comparison: Comparison,
    anonymity: Sequence[int],
    sizes: Iterable[Any],
    exact: Iterable[Any],
) -> str:
    """Writes the exact counts into a separate directory, for its owner only. NOT differentially private."""
    results = fill_results(begun, comparison, dict(sizes))
    write_whole(path, to_json(fill_exact(results, comparison, anonymity, dict(exact))), private=True)
    return path


def _write_pages(output: str, *, exact: bool) -> Results:
    """Writes tables and pages from the finished JSON."""
    results: Results = json.loads(read_whole(FileSystems.join(output, RESULTS)))
    for name, text in {**result_tables(results), PAGE: render_page(results)}.items():
        write_whole(FileSystems.join(output, name), text.encode())
    if exact:
        apart = exact_directory(output)
        counts: Exact = json.loads(read_whole(FileSystems.join(apart, EXACT_RESULTS)))
        files = {**exact_tables(counts), EXACT_PAGE: render_page(results, counts)}
        files["README-NOT-PRIVATE.txt"] = EXACT_WARNING + "\n"
        for name, text in files.items():
            write_whole(FileSystems.join(apart, name), text.encode(), private=True)
    return results


def _summary(results: Results, output: str) -> str:
    lines = []
    for number in results["systems"]:
        row = results["rows"][number]
        spread = f" ± {row['total']['sd']:,.0f}" if row["total"] and results["repeats"] > 1 else ""
        total = f"{row['total']['mean']:,.0f}{spread}" if row["total"] else "-"
        lines.append(f"{row['title']:<28} {total:>16}   {'  '.join(f'{mean:,.0f}' for mean in row['mean'])}")
        if row["overspends"]:
            lines.append(f"  {row['note']}")
    return "\n".join([*lines, f"Compared {len(results['rows'])} row(s) into {output}"])


def _anonymity(given: Any, reveal: bool) -> list[int] | None:
    if not reveal:
        if given is not None:
            raise ParameterError(
                "anonymity must have --reveal_exact_counts: which grams K users have is exact, and not private."
            )
        return None
    values = list(_ANONYMITY) if given is None else given if isinstance(given, list) else [given]
    checked = [check_integer("anonymity", value, 1, 1 << 31) for value in values]
    if len(set(checked)) != len(checked):
        raise ParameterError(f"anonymity must be different numbers, got {checked}.")
    return sorted(checked)


def _warn(text: str) -> None:
    red, plain = ("", "") if os.environ.get("NO_COLOR") else (_RED, _PLAIN)
    print(f"{red}WARNING: {text}{plain}", file=sys.stderr, flush=True)


def _make_parser() -> OneLineParser:
    parser = OneLineParser(
        prog="dpngram compare",
        description="Run the paper's systems side by side on one reading of the input: tables, figures, sweeps. For "
        "public and research data: all budgets add up. Any other flag goes to Beam.",
    )
    parser.add_flags(guarantee_flags(), "budget")
    parser.add_flags([*input_flags(), *_output_flags()], "data")
    when = "give one only to replay one comparison (default: a fresh key)"
    extraction = extraction_flags("comparison", when)
    parser.add_flags([*_comparison_flags(), *extraction, *memory_flags(), *screen_flags(progress=True)], "comparison")
    return parser


def _output_flags() -> list[Flag]:
    long_users = "leave out users with more tokens than this (default: no limit)"
    return [
        Flag(
            "output", "directory for tables and figures; must be new or empty", Kind.PATH, required=True, metavar="DIR"
        ),
        Flag("max_user_tokens", long_users, Kind.WHOLE_NUMBER),
    ]


def _comparison_flags() -> list[Flag]:
    sweep = f"vary one parameter, e.g. epsilon=1,2,4; one of: {', '.join(SWEEPS)}; may be given several times"
    exact = f"also K-anonymity and statistics of the data: exact, NOT private, into OUTPUT.{_EXACT}/"
    values = f"values of K (default {','.join(map(str, _ANONYMITY))})"
    return [
        Flag("systems", f"systems to run, from: {','.join(SYSTEMS)} (default: all)", default=",".join(SYSTEMS)),
        Flag("repeats", "runs of each system, for mean and standard deviation", Kind.WHOLE_NUMBER, default=1),
        Flag("sweep", sweep, several=True, default=(), metavar="NAME=VALUES"),
        Flag("sweep_system", "the system that sweeps vary, dpne or plus (default: plus; dpne for pruning)"),
        Flag("as_printed", "run DPSU-even as the paper prints it, which spends more than delta", Kind.SWITCH),
        Flag("reveal_exact_counts", exact, Kind.SWITCH),
        Flag("anonymity", values, Kind.WHOLE_NUMBERS),
    ]

"""`dpngram audit`: tries to break the privacy of the installed build, and reports how close it came.

Every attack runs the real graph, from documents to the files of a release, and looks at nothing but these files. A
lower bound above the claim proves (up to the stated error) that the build is broken. A lower bound below the claim
proves nothing. A Gaussian fit near the claim shows that the noise is not larger than it has to be.
"""

import argparse
import dataclasses
import functools
import html
import itertools
import json
import math
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from dpngram import __version__
from dpngram.accounting import POLICIES
from dpngram.accounting.parameters import check_choice, check_integer, check_number
from dpngram.pipelines.io.release_files import MANIFEST, read_manifest, read_rows
from dpngram.pipelines.io.writing import WriteRelease, WriteWindows
from dpngram.pipelines.launch.extraction_flags import screen_flags
from dpngram.pipelines.launch.flags import Flag, Kind, OneLineParser
from dpngram.pipelines.launch.input_flags import new_directory
from dpngram.pipelines.launch.program import Job, run_job
from dpngram.pipelines.launch.runner import make_pipeline
from dpngram.pipelines.pages.figures import CHART_STYLE, Series, line_chart
from dpngram.pipelines.pages.page import render, section, table
from dpngram.pipelines.research.attacks import ATTACKS, Attack, Finding, Release
from dpngram.transforms import DocumentBlock, ExtractLevels
from dpngram.transforms.whole_files import write_whole

__all__ = ["run", "run_attack"]

_DOCUMENTS = 20_000  # in a block
_JOB = 1_500_000  # users in a job; more users are several jobs, each with a separate release


def run(argv: Sequence[str]) -> int:
    """Runs the program; returns the exit status, which is 1 also if a claim is broken."""
    parser = OneLineParser(
        prog="dpngram audit",
        description="Try to break the privacy of the installed build: lower bounds on epsilon from worst-case data. "
        "Any other flag goes to Beam.",
    )
    parser.add_flags([*_flags(), *screen_flags(progress=True)])
    return run_job(parser, argv, _prepare)


def _prepare(flags: argparse.Namespace, options: PipelineOptions) -> Job:
    attacks = _attacks(flags)
    error = check_number("error", flags.error, 1e-12, 0.5)
    new_directory("output", flags.output)
    return Job(functools.partial(_run, attacks, error, flags, options))


def _run(attacks: Sequence[Attack], error: float, flags: argparse.Namespace, options: PipelineOptions) -> int:
    directory: str = flags.output
    findings = []
    begin = time.time()
    for attack in attacks:
        if not flags.quiet:
            print(f"{attack.name}, {attack.plan.policy}, epsilon {attack.plan.epsilon:g} ...", file=sys.stderr)
        findings.append(run_attack(attack, directory, options, error, noise_key=flags.noise_key))
    write_whole(FileSystems.join(directory, "audit.json"), _json(findings, error, time.time() - begin))
    write_whole(FileSystems.join(directory, "audit.html"), _page(findings, error).encode())
    print(_table(findings, error))
    return 0 if all(finding.holds for finding in findings) else 1


def run_attack(
    attack: Attack, directory: str, options: PipelineOptions, error: float, *, noise_key: str | None = None
) -> Finding:
    """Runs the releases of an attack in a new directory, judges them, and deletes them.

    Args:
        attack: what to run.
        directory: gets the new directory.
        options: Beam's options.
        error: how likely each bound may be wrong.
        noise_key: where workers find the key; None: a fresh key.
    """
    work = FileSystems.join(directory, f"trials-{secrets.token_hex(4)}")
    FileSystems.mkdirs(work)
    try:
        for number, trials in enumerate(_jobs(attack)):
            pipeline = make_pipeline(options, 0)
            output = FileSystems.join(work, str(number))
            FileSystems.mkdirs(output)
            _build(pipeline, attack, trials, output, noise_key)
            pipeline.run().wait_until_finish()
        return attack.judge(_releases(work, attack), error)
    finally:
        FileSystems.delete([work])


def _jobs(attack: Attack) -> list[range]:
    """The numbers of the trials of each job. An attack with windows is one job."""
    size = sum(1 for _ in attack.documents(1, 0))
    jobs = 1 if attack.windows else -(-2 * attack.trials * size // _JOB)
    edges = [2 * (attack.trials * number // jobs) for number in range(jobs + 1)]
    return [range(*pair) for pair in itertools.pairwise(edges)]


def _build(pipeline: beam.Pipeline, attack: Attack, trials: range, output: str, noise_key: str | None) -> None:
    """The graph of one job: trials -> documents -> levels -> files, as in `dpngram extract` and `dpngram stream`."""
    documents = (
        pipeline
        | "Trials" >> beam.Create(_portions(attack, trials))
        | "Spread" >> beam.Reshuffle()
        | "Documents" >> beam.FlatMap(_documents, attack)
    )
    extract = ExtractLevels(
        attack.plan, tokenizer="whitespace", noise_key=noise_key, release=output, shards=4, bound_windows=attack.bounded
    )
    if attack.windows:
        tables = documents | "Windows" >> beam.WindowInto(FixedWindows(1)) | "ExtractNgrams" >> extract
        tables | "Write" >> WriteWindows(output, attack.plan, extract.settings())
    else:
        tables = documents | "ExtractNgrams" >> extract
        tables | "Write" >> WriteRelease(output, attack.plan, extract.settings())


def _portions(attack: Attack, trials: range) -> list[tuple[int, int]]:
    """Ranges of trials; the documents of each range fill a block."""
    size = max(1, sum(1 for _ in attack.documents(1, 0)))
    step = 1 if attack.bounded else max(1, _DOCUMENTS // size)
    return [(first, min(first + step, trials.stop)) for first in range(trials.start, trials.stop, step)]


def _documents(trials: tuple[int, int], attack: Attack) -> Iterator[Any]:
    """The documents of some trials, window by window: in blocks, or one by one if the library limits windows."""
    by_window: dict[int, list[tuple[str, str]]] = {}
    for trial in range(*trials):
        for window in attack.windows_of(trial):
            by_window.setdefault(window, []).extend(attack.documents(trial, window))
    for window, documents in by_window.items():
        if attack.bounded:
            for document in documents:
                yield TimestampedValue(document, Timestamp(window))
        elif documents:
            users, texts = zip(*documents, strict=True)
            block = DocumentBlock.from_texts(pa.array(users, pa.large_binary()), pa.array(texts, pa.large_binary()))
            yield TimestampedValue(block, Timestamp(window))


def _releases(work: str, attack: Attack) -> Iterator[Release]:
    """All releases of an attack, as anybody could read them."""
    found = FileSystems.match([FileSystems.join(work, "**", MANIFEST)])[0].metadata_list
    for path in sorted(file.path for file in found):
        folder = FileSystems.split(path)[0]
        manifest = read_manifest(folder)
        second = Timestamp.from_rfc3339(manifest["window"]["start"]).micros // 1_000_000 if attack.windows else 0
        yield int(second), read_rows(folder, manifest)


def _attacks(flags: argparse.Namespace) -> list[Attack]:
    trials = check_integer("trials", flags.trials, 20, 10_000_000)
    epsilons = flags.epsilon if isinstance(flags.epsilon, list) else [flags.epsilon]
    attacks: list[Attack] = []
    for epsilon in epsilons:
        for policy in flags.policy.split(","):
            check_choice("policy", policy, tuple(POLICIES))
            for name in flags.attacks.split(","):
                kind = ATTACKS[check_choice("attacks", name, tuple(ATTACKS))]
                for windows in (0, 10) if name in ("crowd", "lone") else (1,):
                    attacks.append(kind.make(policy, epsilon, flags.delta, trials, windows))
    return attacks


def _flags() -> list[Flag]:
    return [
        Flag("output", "new directory for audit.json and audit.html", Kind.PATH, required=True, metavar="DIR"),
        Flag("epsilon", "claims to test, e.g. 1,4", Kind.NUMBERS, default=4),
        Flag("delta", "delta of the claims (default 1e-7)", Kind.NUMBER, default=1e-7),
        Flag("policy", "policies to attack", default=",".join(POLICIES)),
        Flag("attacks", "attacks to run", default=",".join(ATTACKS)),
        Flag(
            "trials",
            "number of trials of each attack with the user, and as many without",
            Kind.WHOLE_NUMBER,
            default=10_000,
        ),
        Flag("error", "probability that a bound is wrong", Kind.NUMBER, default=1e-4),
        Flag("noise_key", "as in dpngram extract; for engines whose workers need one (default: a fresh key)"),
    ]


def _row(finding: Finding) -> list[str]:
    fit = finding.fit
    return [
        finding.attack,
        finding.policy,
        "windows" if finding.windowed else "batch",
        f"{finding.claim[0]:g}",
        f"{finding.claim[1]:g}",
        f"{finding.trials:,}",
        f"{finding.event.likely:.4f}",
        f"{finding.event.unlikely:.4f}",
        f"{finding.event.epsilon:.2f}",
        f"{finding.event.delta:.2g}",
        "" if fit is None else f"{fit.epsilon:.2f}",
        "" if fit is None else f"{fit.epsilon_low:.2f}",
        "holds" if finding.holds else "BROKEN",
    ]


_TOP = 2.0  # claims; larger findings, or infinite ones, are drawn here
_HEAD = ["attack", "policy", "mode", "epsilon", "delta", "trials", "with", "without", "epsilon >=", "delta >="]
_HEAD += ["fit", "fit >=", "claim"]


def _table(findings: Sequence[Finding], error: float) -> str:
    rows = [_HEAD, *map(_row, findings)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    broken = sum(not finding.holds for finding in findings)
    verdict = f"{broken} of {len(findings)} claims are BROKEN." if broken else "No attack breaks its claim."
    return "\n".join([*lines, "", f"{verdict} Each bound (>=) is wrong with probability at most {error:g}."])


def _json(findings: Sequence[Finding], error: float, seconds: float) -> bytes:
    rows = [
        {**dataclasses.asdict(finding), "claim": dict(zip(("epsilon", "delta"), finding.claim, strict=True))}
        | {"holds": finding.holds}
        for finding in findings
    ]
    for row in rows:  # JSON has no infinity
        for bounds in filter(None, (row["event"], row["fit"])):
            bounds.update({name: None for name, value in bounds.items() if math.isinf(value)})
    text = json.dumps({"findings": rows, "error": error, "seconds": round(seconds, 1)}, indent=2)
    return (text + "\n").encode()


def _page(findings: Sequence[Finding], error: float) -> str:
    """The table, and a figure for each claimed epsilon."""
    rows = [[str(number), *_row(finding)] for number, finding in enumerate(findings, 1)]
    parts, charts = [section("Findings", table(["", *_HEAD], rows, name="findings"))], []
    for epsilon in sorted({finding.claim[0] for finding in findings}):
        chosen = [(number, f) for number, f in enumerate(findings, 1) if f.claim[0] == epsilon]
        fits = [None if f.fit is None else min(f.fit.epsilon / epsilon, _TOP) for _, f in chosen]
        spreads = [0.0 if f.fit is None else (f.fit.epsilon - f.fit.epsilon_low) / epsilon for _, f in chosen]
        spreads = [min(spread, _TOP) if math.isfinite(spread) else 0.0 for spread in spreads]
        series = [
            Series("the claim", [1.0 for _ in chosen]),
            Series("lower bound (Clopper-Pearson)", [min(f.event.epsilon / epsilon, _TOP) for _, f in chosen]),
            Series("Gaussian fit, and how far its bound is", fits, spreads),
        ]
        caption = (
            f"What the attacks on a claim of epsilon = {epsilon:g} found, as multiples of the claim. A lower bound "
            "above 1 would prove that the build is broken; of the fit, only the lower end of its bar is a bound. "
            f"{_TOP:g} stands for all that is more."
        )
        x, y = "row of the table of findings", "epsilon / claim"
        chart = line_chart(caption, x, y, [n for n, _ in chosen], series, joined=False, top=_TOP)
        charts.append(chart)
    parts.append(section("Figures", f"<div class='two'>{''.join(charts)}</div>"))
    told = "".join(f"<li><b>{name}</b>: {html.escape(kind.summary)}.</li>" for name, kind in ATTACKS.items())
    what = (
        "<p>Each attack runs a pair of neighbouring data sets, many times side by side, through the whole graph of the "
        "installed build, and looks at nothing but the files that come out. Each bound (&ge;) is wrong with "
        f"probability at most {error:g}. A bound above the claim proves that the build is broken.</p><ul>{told}</ul>"
    )
    footer = f"dpngram {html.escape(__version__)}."
    body = section("What was run", what) + "".join(parts)
    return render("dpngram audit", "Attacks on this build", body, footer, style=CHART_STYLE)

"""report.html, the page of every release: one self-contained file, made from the release alone.

Privacy: the page depends on the manifest and the released rows only. It shows no exact count, nothing of unreleased
text, no time and nothing about the input.
"""

import html
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from dpngram.accounting import (
    ExtractionPlan,
    ParameterError,
    expected_spurious,
    explain_plan,
    has_user_bounds,
    least_users,
)
from dpngram.accounting.advice import FEW, advise_more
from dpngram.pipelines.io.encoding import Row
from dpngram.pipelines.io.release_files import Manifest, ManifestLevel
from dpngram.pipelines.pages.page import render, section, table

__all__ = ["render_report"]


_TOP, _ALL = 200, 2000  # grams shown for each length, and in all; keeps the page under a megabyte
_PRINTED = 20  # of them on paper
_LONGEST = 160  # characters of a gram that are shown
_BATCH = 1 << 14  # rows that are looked at together
_SIZE_BITS = 42  # of a weight's 52 bits after the first are left out where weights are counted by size


def render_report(manifest: Manifest, rows: Mapping[int, Iterable[Row]]) -> str:
    """The page. Text from the release is escaped; the only script is the search of the table.

    The rows are gone through once, and only those that are shown are kept.

    Args:
        manifest: of the release.
        rows: its n-grams, by length.
    """
    plan = _plan(manifest)
    most = min(_TOP, _ALL // max(len(rows), 1))
    seen = {n: _Level(grams, most) for n, grams in rows.items()}
    levels = manifest["levels"]
    words = "".join(f"<p>{_unbroken_flags(text)}</p>" for text in explain_plan(plan).split("\n\n"))
    body = [
        section("What is protected", f"<p class='lead'>{html.escape(manifest['guarantee'])}</p>"),
        section(
            "Released",
            _tiles(manifest) + _figure("How many n-grams of each length are released.", _released_plot(levels)),
        ),
        section("Levels", _level_table(plan, levels)),
        section(
            "Budget and weights",
            _figure("Which share of the privacy budget each length has.", _budget_plot(plan))
            + _figure(
                "The noisy weights of the n-grams of each length, small ones at the left, on a logarithmic scale; "
                "the stronger the colour, the more n-grams of this length have such a weight.",
                _weights_plot(seen),
            ),
        ),
        section("Heaviest n-grams", _few(manifest, plan) + _gram_table(seen, most, _user_bounds(plan, levels, seen))),
        section("What a weight means", _weights_in_words(plan)),
        section("How, in words", words),
        section("Settings", _settings_table(manifest)),
    ]
    footer = (
        f"dpngram {html.escape(str(manifest['dpngram']))}. Weights are noisy. Some of these n-grams may be spurious: "
        "no user wrote them. Without them, a rare n-gram would prove that somebody wrote it."
    )
    title, heading = f"dpngram release: {manifest['released']:,} n-grams", f"{manifest['released']:,} private n-grams"
    return render(title, heading, "".join(body), footer, style=_STYLE, script=_SCRIPT)


def _unbroken_flags(text: str) -> str:
    """Text as HTML; no line ends after the hyphens of a flag."""
    return re.sub(r"--\w+", r"<span class=flag>\g<0></span>", html.escape(text))


def _plan(manifest: Manifest) -> ExtractionPlan:
    try:
        return ExtractionPlan.from_json(json.dumps(manifest["plan"]))
    except ParameterError as error:
        raise ValueError("the manifest's plan is not one of dpngram's") from error


def _figure(caption: str, svg: str) -> str:
    return f"<figure>{svg}<figcaption>{html.escape(caption)}</figcaption></figure>"


def _tiles(manifest: Manifest) -> str:
    plan = manifest["plan"]
    tiles = {
        "epsilon": f"{plan['epsilon']:g}",
        "delta": f"{plan['delta']:g}",
        "longest": f"{len(manifest['levels'])} tokens",
        "policy": str(plan["policy"]),
        "spurious, at most about": f"{100 * plan['eta']:g} %",
    }
    cells = "".join(
        f"<div><b>{html.escape(value)}</b><span>{html.escape(name)}</span></div>" for name, value in tiles.items()
    )
    return f"<div class='tiles'>{cells}</div>"


def _level_table(plan: ExtractionPlan, levels: list[ManifestLevel]) -> str:
    head = ["length", "released", "candidates", "noise \u03c3", "lowest threshold", "expected spurious, at most about"]
    rows = []
    for level in levels:
        spurious = "none"
        if level["n"] > 1 and not plan.spec.eta_is_bound:
            spurious = f"{plan.eta * level['released']:,.1f}"
        elif level["valid"] is not None and level["rho"] is not None:
            spurious = f"{expected_spurious(level['sigma'], level['rho'], level['valid']):,.1f}"
        valid = "" if level["valid"] is None else f"{level['valid']:,}"
        rho = "public words"
        if level["rho"] is not None:
            rho = "" if not level["released"] and level["n"] > 1 else f"{level['rho']:.4g}"
        rows.append([str(level["n"]), f"{level['released']:,}", valid, f"{level['sigma']:.4g}", rho, spurious])
    return table(head, rows, name="levels")


class _Level:
    """What the page shows of one length: its heaviest n-grams, and how many weights there are of each size."""

    def __init__(self, rows: Iterable[Row], most: int) -> None:
        self.heaviest: list[Row] = []
        self.low, self.high = math.inf, 0.0  # of the weights above 0
        self.sizes: Counter[int] = Counter()  # of the weights above 0, see `_size_of`
        rest = iter(rows)
        while batch := list(itertools.islice(rest, _BATCH)):
            weights = np.array([weight for _, weight in batch], np.float64)
            first = np.argsort(-weights, kind="stable")[:most].tolist()
            self.heaviest += [batch[row] for row in first]
            self.heaviest = sorted(self.heaviest, key=lambda gram: -gram[1])[:most]
            weights = weights[(weights > 0) & (weights < math.inf)]
            if len(weights):
                self.low, self.high = min(self.low, weights.min()), max(self.high, weights.max())
                sizes, counts = np.unique(weights.view(np.int64) >> _SIZE_BITS, return_counts=True)
                self.sizes.update(dict(zip(sizes.tolist(), counts.tolist(), strict=True)))


def _size_of(number: int) -> float:
    """The middle of the weights of one size: those whose exponents and first ten bits are the same."""
    return float(np.array([(number << _SIZE_BITS) + (1 << (_SIZE_BITS - 1))]).view(np.float64)[0])


def _few(manifest: Manifest, plan: ExtractionPlan) -> str:
    if manifest["released"] >= FEW:
        return ""
    count = "Nothing was released." if not manifest["released"] else "Few n-grams were released."
    return f"<p>{count} {_unbroken_flags(advise_more(plan))}</p>"


def _user_bounds(plan: ExtractionPlan, levels: list[ManifestLevel], seen: dict[int, _Level]) -> dict[int, list[int]]:
    """For the heaviest n-grams of each length, how many users they have at least. Not all lengths have such numbers."""
    return {
        level["n"]: least_users(
            plan, level["n"], [weight for _, weight in seen[level["n"]].heaviest], level["rho"], level["released"]
        ).tolist()
        for level in levels
        if has_user_bounds(plan, level["n"]) and level["rho"] is not None and seen[level["n"]].heaviest
    }


def _weights_in_words(plan: ExtractionPlan) -> str:
    text = (
        "A weight is not a number of users. Each user divides a limited weight over the n-grams of a length, so an "
        "n-gram gets more from a user with few n-grams. Weights are comparable within one length; those of other "
        "lengths are on another scale, because users give other shares there. "
    )
    lengths = [level.n for level in plan.levels if has_user_bounds(plan, level.n)]
    if lengths:
        text += (
            "No user counts more than 1 in a weight. So from a weight and its noise follows a number of users that an "
            "n-gram has at least, the column \u201cusers, at least\u201d. With a probability of 95 %, all numbers in "
            "this column are right at the same time, spurious n-grams included. There may be many more users. "
        )
    if len(lengths) < plan.max_n:
        which = "lengths from 2 on" if lengths else "any length that is released"
        text += (
            f"Policy {plan.policy} allows no number of users for {which}: there some users count more than 1, and how "
            "much noise is in a weight is not published."
        )
    return f"<p>{html.escape(text)}</p>"


def _gram_table(seen: dict[int, _Level], most: int, bounds: dict[int, list[int]]) -> str:
    shown: list[list[str]] = []
    on_screen: set[int] = set()
    for n, level in seen.items():
        for place, (tokens, weight) in enumerate(level.heaviest):
            text = " ".join(" ".join(tokens).split("\n"))
            text = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "\u2026"
            least = bounds[n][place] if n in bounds else 0
            if place >= _PRINTED:
                on_screen.add(len(shown))
            shown.append([str(n), text, f"{weight:,.1f}", *([f"{least:,}" if least else ""] if bounds else [])])
    printed = f"<span class=paper> Printed are {_PRINTED} of them.</span>" if on_screen else ""
    if not shown:
        return "<p>Nothing to show: the release is empty, or in a format without weights.</p>"
    return (
        f"<p>The {most} heaviest of each length.{printed}</p><p id='choose' hidden>"
        f"<label>Length <select id='length'><option value=''>all</option>{_options(shown)}</select></label> "
        "<label>Search <input id='find' type='search'></label></p>"
        + table(
            ["length", "n-gram", "noisy weight", *(["users, at least"] if bounds else [])],
            shown,
            name="grams",
            tall=True,
            on_screen=on_screen,
        )
    )


def _options(shown: list[list[str]]) -> str:
    lengths = dict.fromkeys(row[0] for row in shown)
    return "".join(f"<option>{length}</option>" for length in lengths)


def _settings_table(manifest: Manifest) -> str:
    plan = manifest["plan"]
    rows = {
        **manifest.get("origin", {}),
        **manifest["settings"],
        **{name: plan[name] for name in ("epsilon", "delta", "eta", "windows", "policy")},
    }
    return table([], [[str(name), str(value) or "none"] for name, value in rows.items()], name="settings")


_WIDTH, _LEFT, _ROW, _LABEL = 640, 44, 26, 130


def _bars(values: list[float], labels: list[str], names: list[str]) -> str:
    """A row for each value: its name, a bar, and its label. Rows leave room for long labels on a narrow screen, too."""
    most = max([*values, 1e-12])
    shapes = []
    for place, (value, label, name) in enumerate(zip(values, labels, names, strict=True)):
        y, width = place * _ROW, (_WIDTH - _LEFT - _LABEL) * value / most
        shapes.append(
            f"<text class='name end' x={_LEFT - 10} y={y + 19}>{html.escape(name)}</text>"
            f"<rect class=bar x={_LEFT} y={y + 3} width={max(width, 0.5):.1f} height={_ROW - 6} rx=2>"
            f"<title>{html.escape(name)}: {html.escape(label)}</title></rect>"
            f"<text class=start x={_LEFT + width + 8:.1f} y={y + 19}>{html.escape(label)}</text>"
        )
    return f"<svg viewBox='0 0 {_WIDTH} {len(values) * _ROW}' role=img>{''.join(shapes)}</svg>"


def _released_plot(levels: list[ManifestLevel]) -> str:
    counts = [float(level["released"]) for level in levels]
    return _bars(counts, [f"{level['released']:,}" for level in levels], [str(level["n"]) for level in levels])


def _budget_plot(plan: ExtractionPlan) -> str:
    shares = [level.share for level in plan.levels]
    return _bars(shares, [f"{100 * share:.0f} %" for share in shares], [str(level.n) for level in plan.levels])


def _weights_plot(seen: dict[int, _Level]) -> str:
    """A strip for each length: bins of equal width in the logarithm of the weight; a stronger colour: more n-grams."""
    least = min((level.low for level in seen.values()), default=math.inf)
    most = max((level.high for level in seen.values()), default=0.0)
    if least > most:
        return "<svg viewBox='0 0 640 40' role=img><text x=320 y=24>no weights</text></svg>"
    low, high = math.log10(least), math.log10(most)
    span = max(high - low, 1e-9)
    bins, row_height, left = 60, _ROW, _LEFT
    cell = (_WIDTH - left - 10) / bins
    shapes = []
    for place, (n, level) in enumerate(seen.items()):
        counts = [0] * bins
        for size, count in level.sizes.items():
            bin_ = int((math.log10(_size_of(size)) - low) / span * bins)
            counts[min(max(bin_, 0), bins - 1)] += count
        y = place * row_height + 2
        shapes.append(f"<text class='name end' x={_LEFT - 10} y={y + 17}>{n}</text>")
        for bin_, count in enumerate(counts):
            if count:
                strength = 0.15 + 0.85 * math.log1p(count) / math.log1p(max(counts))
                x = left + bin_ * cell
                shapes.append(
                    f"<rect class=bar x={x:.1f} y={y} width={cell:.1f} height={_ROW - 4} opacity={strength:.2f}>"
                    f"<title>{n}-grams of weight from {10 ** (low + span * bin_ / bins):,.3g}: {count}</title></rect>"
                )
    bottom = len(seen) * row_height + 4
    for exponent in range(math.ceil(low), math.floor(high) + 1):
        x = left + (exponent - low) / span * (_WIDTH - left - 10)
        shapes.append(f"<line class=grid x1={x:.1f} x2={x:.1f} y1=0 y2={bottom} />")
        kind = "name end" if x > _WIDTH - 60 else "name"  # beside the edge there is no room for half of a number
        shapes.append(f"<text class='{kind}' x={x:.1f} y={bottom + 18}>{10**exponent:,g}</text>")
    return f"<svg viewBox='0 0 {_WIDTH} {bottom + 24}' role=img>{''.join(shapes)}</svg>"


_STYLE = """
:root{--bar:#1f6f8b;--width:60rem;--prose:46rem}
@media(prefers-color-scheme:dark){:root{--bar:#5fb3cf}}
.lead{font-size:1.08rem;margin:0}
.tiles{display:flex;flex-wrap:wrap;gap:.8rem 2rem;margin-bottom:1rem}.tiles b{display:block;font-size:1.35rem}
.tiles span,figcaption,footer{color:var(--soft);font-size:.86rem}
figure{margin:1.2rem 0 .4rem}figcaption{margin:0}
svg{width:100%;height:auto;display:block}
svg text{font:12px system-ui,sans-serif;fill:var(--ink);text-anchor:middle}svg text.name{fill:var(--soft)}
svg text.end{text-anchor:end}svg text.start{text-anchor:start}
.bar{fill:var(--bar)}.grid{stroke:var(--line);stroke-dasharray:2 3}
th,td{text-align:left;padding:.3rem .8rem .3rem 0;overflow-wrap:anywhere;white-space:normal}
thead th{font-weight:600}.scroll{margin:0}
#levels td,#levels th,#grams td:nth-child(n+3),#grams th:nth-child(n+3){text-align:right}
#levels tbody th,#grams tbody th{font-weight:400}#grams td,#settings td{font-variant-numeric:normal}
#settings tbody th{white-space:nowrap}
#grams td:nth-child(n+3){font-variant-numeric:tabular-nums;white-space:nowrap}
.paper{display:none}.flag{white-space:nowrap}
#choose{display:flex;flex-wrap:wrap;gap:.4rem 1.2rem}#choose[hidden]{display:none}
thead th{overflow-wrap:normal}
figure>svg{max-width:46rem}
@media(max-width:40rem){svg text{font-size:22px}tbody th{min-width:0}th,td{padding-right:.5rem}#levels{min-width:34rem}
#grams thead th{white-space:normal}}
@media print{#choose{display:none}.paper{display:inline}}
input,select{max-width:100%;font:inherit;padding:.25rem .6rem;border:1px solid var(--line);
border-radius:6px;background:var(--page);color:var(--ink)}
"""


_SCRIPT = (
    "const f=document.getElementById('find'),l=document.getElementById('length');if(f){"
    "document.getElementById('choose').hidden=false;const r=[...document.querySelectorAll('#grams tbody tr')];"
    "f.oninput=l.oninput=()=>{const q=f.value.toLowerCase();for(const t of r)t.hidden="
    "!t.textContent.toLowerCase().includes(q)||l.value&&t.cells[0].textContent!=l.value}}"
)

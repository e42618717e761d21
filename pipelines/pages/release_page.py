"""`dpngram report`, and report.html in every release: one self-contained page, made from the release alone.

Privacy: the page is a function of the manifest and the released rows. It shows no exact count, nothing of unreleased
text, no time and nothing about the input.
"""

import html
import json
import math

from dpngram.accounting import ExtractionPlan, ParameterError, expected_spurious, explain_plan
from dpngram.pipelines.io.release_files import Manifest, ManifestLevel, Rows

__all__ = ["render_report"]


_TOP, _ALL = 200, 2000  # grams shown for each length, and in all; keeps the page under a megabyte
_LONGEST = 160  # characters of a gram that are shown


def render_report(manifest: Manifest, rows: dict[int, Rows]) -> str:
    """The page. Text that comes from the release is escaped; there is no script but the search of the table."""
    plan = _plan(manifest)
    levels = manifest["levels"]
    parts = [
        _section("What is protected", f"<p class=lead>{html.escape(manifest['guarantee'])}</p>"),
        _section("Released", _tiles(manifest) + _figure("n-grams released, by length", _released_plot(levels))),
        _section("Levels", _level_table(plan, levels)),
        _section(
            "Budget and weights",
            _figure("share of the budget, by length", _budget_plot(plan))
            + _figure("noisy weights above the threshold, by length (logarithmic)", _weights_plot(levels, rows)),
        ),
        _section("Heaviest n-grams", _gram_table(rows)),
        _section("How, in words", "".join(f"<p>{html.escape(text)}</p>" for text in explain_plan(plan).split("\n\n"))),
        _section("Settings", _settings_table(manifest)),
    ]
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>dpngram release: {manifest['released']:,} n-grams</title><style>{_STYLE}</style>"
        f"<main><h1>{manifest['released']:,} private n-grams</h1>{''.join(parts)}"
        f"<footer>dpngram {html.escape(str(manifest['dpngram']))}. Weights are noisy. Grams that nobody has may be "
        "among these: they hide who has the others.</footer></main>"
        f"<script>{_SCRIPT}</script></html>\n"
    )


def _plan(manifest: Manifest) -> ExtractionPlan:
    try:
        return ExtractionPlan.from_json(json.dumps(manifest["plan"]))
    except ParameterError as error:
        raise ValueError("the manifest's plan is not one of dpngram's") from error


def _section(title: str, body: str) -> str:
    return f"<section><h2>{html.escape(title)}</h2>{body}</section>"


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
    return f"<div class=tiles>{cells}</div>"


def _level_table(plan: ExtractionPlan, levels: list[ManifestLevel]) -> str:
    head = ["length", "released", "candidates", "noise &sigma;", "lowest threshold", "expected spurious, at most about"]
    body = []
    for level in levels:
        spurious = "none"
        if level["n"] > 1 and not plan.spec.eta_is_bound:
            spurious = f"{plan.eta * level['released']:,.1f}"
        elif level["valid"] is not None:
            spurious = f"{expected_spurious(level['sigma'], level['rho'], level['valid']):,.1f}"
        valid = "" if level["valid"] is None else f"{level['valid']:,}"
        rho = "" if not level["released"] and level["n"] > 1 else f"{level['rho']:.4g}"
        cells = [str(level["n"]), f"{level['released']:,}", valid, f"{level['sigma']:.4g}", rho, spurious]
        body.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    heads = "".join(f"<th>{cell}</th>" for cell in head)
    return (
        f"<div class=scroll><table class=figures><thead><tr>{heads}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _gram_table(rows: dict[int, Rows]) -> str:
    lines = []
    most = min(_TOP, _ALL // max(len(rows), 1))
    for n, grams in rows.items():
        for tokens, weight in sorted(grams, key=lambda gram: -gram[1])[:most]:
            text = " ".join(tokens)
            shown = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "\u2026"
            lines.append(f"<tr><td>{n}</td><td>{html.escape(shown)}</td><td>{weight:,.1f}</td></tr>")
    if not lines:
        return "<p>Nothing to show: the release is empty, or in a format without weights.</p>"
    return (
        f"<p>The {most} heaviest of each length. <label for=find id=label hidden>Search </label>"
        "<input id=find type=search aria-label=search hidden></p>"
        "<div class='scroll tall'><table id=grams><thead><tr><th>length</th><th>n-gram</th><th>noisy weight</th></tr>"
        f"</thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _settings_table(manifest: Manifest) -> str:
    plan = manifest["plan"]
    rows = {**manifest["settings"], **{name: plan[name] for name in ("epsilon", "delta", "eta", "windows", "policy")}}
    body = "".join(f"<tr><th>{html.escape(str(k))}</th><td>{html.escape(str(v))}</td></tr>" for k, v in rows.items())
    return f"<div class=scroll><table>{body}</table></div>"


_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOPS = 640, 220, 8, 22, 20


def _bars(values: list[float], labels: list[str], names: list[str]) -> str:
    """A bar for each value, its figure above and its name below."""
    most = max([*values, 1e-12])
    slot = (_WIDTH - 2 * _LEFT) / max(len(values), 1)
    width = min(slot * 0.72, 60)
    room = _HEIGHT - _BOTTOM - _TOPS
    shapes = []
    for place, (value, label, name) in enumerate(zip(values, labels, names, strict=True)):
        x = _LEFT + slot * place + slot / 2
        height = room * value / most
        y = _HEIGHT - _BOTTOM - height
        shapes.append(
            f"<rect class=bar x={x - width / 2:.1f} y={y:.1f} width={width:.1f} height={max(height, 0.5):.1f} rx=2>"
            f"<title>{html.escape(name)}: {html.escape(label)}</title></rect>"
            f"<text x={x:.1f} y={y - 5:.1f}>{html.escape(label)}</text>"
            f"<text class=name x={x:.1f} y={_HEIGHT - 6}>{html.escape(name)}</text>"
        )
    return f"<svg viewBox='0 0 {_WIDTH} {_HEIGHT}' role=img>{''.join(shapes)}</svg>"


def _released_plot(levels: list[ManifestLevel]) -> str:
    counts = [float(level["released"]) for level in levels]
    return _bars(counts, [f"{level['released']:,}" for level in levels], [str(level["n"]) for level in levels])


def _budget_plot(plan: ExtractionPlan) -> str:
    shares = [level.share for level in plan.levels]
    return _bars(shares, [f"{100 * share:.0f} %" for share in shares], [str(level.n) for level in plan.levels])


def _weights_plot(levels: list[ManifestLevel], rows: dict[int, Rows]) -> str:
    """For each length a strip of bins of equal width in the logarithm of the weight; darker is more grams."""
    weights = {n: [weight for _, weight in grams if weight > 0] for n, grams in rows.items()}
    everything = [weight for found in weights.values() for weight in found]
    if not everything:
        return "<svg viewBox='0 0 640 40' role=img><text x=320 y=24>no weights</text></svg>"
    low, high = math.log10(min(everything)), math.log10(max(everything))
    span = max(high - low, 1e-9)
    bins, row_height, left = 60, 22, 34
    cell = (_WIDTH - left - 10) / bins
    shapes = []
    for place, (n, found) in enumerate(weights.items()):
        counts = [0] * bins
        for weight in found:
            counts[min(int((math.log10(weight) - low) / span * bins), bins - 1)] += 1
        y = place * row_height + 2
        shapes.append(f"<text class=name x=16 y={y + 14}>{n}</text>")
        for bin_, count in enumerate(counts):
            if count:
                strength = 0.15 + 0.85 * math.log1p(count) / math.log1p(max(counts))
                x = left + bin_ * cell
                shapes.append(
                    f"<rect class=bar x={x:.1f} y={y} width={cell:.1f} height=18 opacity={strength:.2f}>"
                    f"<title>{n}-grams of weight from {10 ** (low + span * bin_ / bins):,.3g}: {count}</title></rect>"
                )
    bottom = len(weights) * row_height + 4
    for exponent in range(math.ceil(low), math.floor(high) + 1):
        x = left + (exponent - low) / span * (_WIDTH - left - 10)
        shapes.append(f"<line class=grid x1={x:.1f} x2={x:.1f} y1=0 y2={bottom} />")
        shapes.append(f"<text class=name x={x:.1f} y={bottom + 14}>{10**exponent:,g}</text>")
    return f"<svg viewBox='0 0 {_WIDTH} {bottom + 20}' role=img>{''.join(shapes)}</svg>"


_STYLE = """
:root{color-scheme:light dark;--page:#fbfaf8;--ink:#1d2126;--soft:#5c6670;--line:#dcd9d2;--bar:#1f6f8b;--card:#fff}
@media(prefers-color-scheme:dark){:root{
--page:#14171a;--ink:#e8e6e1;--soft:#9aa4ad;--line:#2e3439;--bar:#5fb3cf;--card:#1b1f23}}
*{box-sizing:border-box}body{margin:0;background:var(--page);color:var(--ink);font:16px/1.55 system-ui,sans-serif}
main{max-width:60rem;margin:0 auto;padding:2rem 1.25rem 4rem}h1{font-size:2rem;letter-spacing:-.02em;margin:.2em 0 .6em}
h2{font-size:1.1rem;margin:0 0 .8rem}section{background:var(--card);border:1px solid var(--line);border-radius:10px;
padding:1.2rem 1.4rem;margin:1rem 0}.lead{font-size:1.08rem;margin:0}p{max-width:46rem}
.tiles{display:flex;flex-wrap:wrap;gap:.8rem 2rem;margin-bottom:1rem}.tiles b{display:block;font-size:1.35rem}
.tiles span,figcaption,footer{color:var(--soft);font-size:.86rem}figure{margin:1.2rem 0 .4rem}
svg{width:100%;height:auto;display:block}
svg text{font:12px system-ui,sans-serif;fill:var(--ink);text-anchor:middle}svg text.name{fill:var(--soft)}
.bar{fill:var(--bar)}.grid{stroke:var(--line);stroke-dasharray:2 3}
table{border-collapse:collapse;width:100%;font-size:.92rem}
th,td{text-align:left;padding:.3rem .8rem .3rem 0;border-bottom:1px solid var(--line);overflow-wrap:anywhere}
thead th{color:var(--soft);font-weight:600;position:sticky;top:0;background:var(--card)}
.figures td,.figures th,#grams td:last-child,#grams th:last-child{text-align:right;font-variant-numeric:tabular-nums}
.scroll{overflow-x:auto}.tall{max-height:32rem;overflow:auto}
input{font:inherit;padding:.25rem .6rem;border:1px solid var(--line);
border-radius:6px;background:var(--page);color:var(--ink)}footer{margin-top:2rem}
@media print{body{background:#fff}.tall{max-height:none}section{break-inside:avoid-page}}
""".replace("\n", "")


_SCRIPT = (
    "const f=document.getElementById('find');if(f){f.hidden=false;document.getElementById('label').hidden=false;"
    "const r=[...document.querySelectorAll('#grams tbody tr')];"
    "f.oninput=()=>{const q=f.value.toLowerCase();for(const t of r)t.hidden=!t.textContent.toLowerCase().includes(q)}}"
)

"""comparison.html: one page with the tables and figures of a comparison, in the order of the paper's.

Privacy: the page depends on the sizes of the releases only. The page with exact counts is a different file, in a
directory whose name says that it is not private.
"""

import html

from dpngram.pipelines.pages.figures import CHART_STYLE, Series, highest, line_chart
from dpngram.pipelines.pages.page import render, section, table
from dpngram.pipelines.research.comparison_files import Exact, ResultRow, Results, Sweeps
from dpngram.pipelines.research.systems import SYSTEMS

__all__ = ["render_page"]

_GRAMS, _LENGTH = "number of n-grams released", "length n"
# The paper's figures, by the parameter that they vary.
_FIGURES = {
    "max_contributions": ("figure 2, left,", "values of the user contribution Δ₀"),
    "epsilon": ("figure 2, right,", "values of the privacy parameter ε"),
    "eta": ("figure 3, left,", "values of the share of spurious n-grams η"),
    "decay": ("figure 3, right,", "values of the budgeting parameter c, sigma_k = c * sigma_(k-1)"),
    "pruning": ("figure 4, left,", "pruning rules"),
}
_SYMBOLS = {"epsilon": "ε", "delta": "δ", "max_n": "T", "max_contributions": "Δ₀", "eta": "η", "decay": "c"}


def render_page(results: Results, exact: Exact | None = None) -> str:
    """The page. With `exact`, it also has exact counts, under a red banner."""
    banner = f"<p class='danger'><b>{html.escape(exact['warning'])}</b></p>" if exact else ""
    parts = [
        section("What was run", _what(results)),
        section("Systems", _systems_table(results) + _notes(results)),
    ]
    if results["systems"]:
        parts.append(section("Figure 1: n-grams by length", f"<div class='two'>{_systems_charts(results)}</div>"))
    charts = [_sweep_chart(results, sweep) for sweep in results["sweeps"]]
    if charts:
        parts.append(section("Figures 2 to 4: one parameter varied", f"<div class='two'>{''.join(charts)}</div>"))
        parts += [section(f"Numbers: {sweep['symbol']}", _sweep_table(results, sweep)) for sweep in results["sweeps"]]
    if exact:
        parts.append(section("Exact: K-anonymity (figure 4, right)", _anonymity(exact)))
        parts.append(section("Exact: the data set (the paper's tables 1 and 2)", _dataset(exact)))
        parts.append(section("Exact: spurious n-grams, which no user has", _spurious(results, exact)))
    title = "dpngram comparison" + (": NOT PRIVATE" if exact else "")
    footer = (
        f"dpngram {html.escape(str(results['dpngram']))}. Systems and figures as in Kim, Gopi, Kulkarni, "
        "Yekhanin: Differentially Private n-gram Extraction (2021)."
    )
    body = banner + "".join(parts)
    return render(title, "DPNE and other systems, side by side", body, footer, style=CHART_STYLE)


def _what(results: Results) -> str:
    given = _given(results["rows"][results["systems"][0]])
    settings = results["settings"]
    limit = settings["max_user_tokens"]
    unit = "each line or document is a user" if settings["user_per_document"] else "users by the user field"
    text = [
        f"{given} unless a table or figure says otherwise; " + _repeats(results["repeats"]),
        f"All systems read the same users once: tokenizer {settings['tokenizer']}, {unit}"
        + (f", users with more than {limit:,} tokens left out" if limit else "")
        + ".",
    ]
    return "".join(f"<p>{html.escape(line)}</p>" for line in text) + (
        f"<p class='caution'><b>What it costs.</b> {html.escape(results['spent']['words'])}</p>"
    )


def _given(row: ResultRow, varied: str = "") -> str:
    """The parameters of a row in one line, without the one that is varied."""
    values = row["parameters"]
    shown = {name: symbol for name, symbol in _SYMBOLS.items() if name != varied and values.get(name) is not None}
    return ", ".join(f"{symbol} = {values[name]}" for name, symbol in shown.items())


def _repeats(repeats: int) -> str:
    if repeats == 1:
        return "one run of each."
    return f"mean ± standard deviation over {repeats} runs of each, with fresh noise and fresh clipping."


def _notes(results: Results) -> str:
    notes = [
        f"<li><b>{html.escape(row['title'])}</b>: {html.escape(row['note'])}</li>"
        for row in (results["rows"][number] for number in results["systems"])
        if row["note"]
    ]
    return f"<ul>{''.join(notes)}</ul>" if notes else ""


def _lengths(results: Results) -> list[str]:
    return [str(n) for n in range(1, results["max_n"] + 1)]


def _cells(row: ResultRow, repeats: int) -> list[str]:
    total = row["total"]
    pairs = [*zip(row["mean"], row["sd"], strict=True), *([(total["mean"], total["sd"])] if total else [])]
    return [_cell(mean, sd, repeats) for mean, sd in pairs] + ([] if total else ["-"])


def _cell(mean: float, sd: float, repeats: int) -> str:
    if repeats == 1:
        return f"{mean:,.0f}"
    return f"{mean:,.0f}\n± {sd:,.0f}" if mean >= 100 else f"{mean:,.1f}\n± {sd:,.1f}"


def _systems_table(results: Results) -> str:
    rows = [results["rows"][number] for number in results["systems"]]
    body = [[row["title"] + (" *" if row["overspends"] else ""), *_cells(row, results["repeats"])] for row in rows]
    return table(["", *_lengths(results), "total"], body)


def _sweep_table(results: Results, sweep: Sweeps) -> str:
    body = [
        [str(value), *_cells(results["rows"][number], results["repeats"])]
        for value, number in zip(sweep["values"], sweep["rows"], strict=True)
    ]
    return table([sweep["symbol"], *_lengths(results), "total"], body)


def _series(results: Results, name: str, number: int) -> Series:
    row = results["rows"][number]
    return Series(name, row["mean"], row["sd"] if results["repeats"] > 1 else None)


def _sweep_series(results: Results, sweep: Sweeps) -> list[Series]:
    names = {"both": "both-side", "single": "single-side"} if sweep["parameter"] == "pruning" else {}
    return [
        _series(results, names.get(str(value), f"{sweep['symbol']} = {value}"), number)
        for value, number in zip(sweep["values"], sweep["rows"], strict=True)
    ]


def _system_series(results: Results) -> list[Series]:
    return [_series(results, results["rows"][number]["title"], number) for number in results["systems"]]


def _top(results: Results) -> float:
    """Where the y axis of every linear chart ends, so that charts can be compared by eye."""
    charts = [_system_series(results), *(_sweep_series(results, sweep) for sweep in results["sweeps"])]
    return max(map(highest, charts))


def _systems_charts(results: Results) -> str:
    lines, top = _system_series(results), _top(results)
    given = _given(results["rows"][results["systems"][0]])
    scales = (("", False), (", on a logarithmic scale, where zeros are not shown", True))
    return "".join(
        line_chart(
            f"How many n-grams of each length DPNE and other systems release{scale}. {given}; {_marks(results)}",
            _LENGTH,
            _GRAMS,
            _lengths(results),
            lines,
            log=log,
            top=top,
        )
        for scale, log in scales
    )


def _marks(results: Results) -> str:
    if results["repeats"] == 1:
        return "one run of each."
    return f"means of {results['repeats']} runs, bars are standard deviations."


def _sweep_chart(results: Results, sweep: Sweeps) -> str:
    place, what = _FIGURES[sweep["parameter"]]
    given = _given(results["rows"][sweep["rows"][0]], sweep["parameter"])
    caption = (
        f"How many n-grams of each length {SYSTEMS[sweep['system']]} releases, for several {what} ({place} of the "
        f"paper). {given}; {_marks(results)} The vertical scale is that of figure 1."
    )
    return line_chart(caption, _LENGTH, _GRAMS, _lengths(results), _sweep_series(results, sweep), top=_top(results))


def _anonymity(exact: Exact) -> str:
    anonymity = exact["anonymity"]
    lengths = [str(n) for n in range(1, len(exact["dataset"]["sequences"]) + 1)]
    charts = "".join(
        line_chart(
            f"{system['title']}: which part of the n-grams that at least K users have is released, by length.",
            _LENGTH,
            "recovered, %",
            lengths,
            [
                Series(f"K = {k}", [None if part is None else 100 * part for part in fractions])
                for k, fractions in zip(anonymity["k"], system["fraction"], strict=True)
            ],
            top=100.0,
        )
        for system in anonymity["systems"]
    )
    held = zip(anonymity["k"], anonymity["held"], strict=True)
    counts_table = table(["users K", *lengths], [[str(k), *(f"{count:,}" for count in counts)] for k, counts in held])
    return f"<p>How many n-grams at least K users have:</p>{counts_table}<div class='two'>{charts}</div>"


def _dataset(exact: Exact) -> str:
    data = exact["dataset"]
    total, lengths = sum(data["sequences"]), [str(n) for n in range(1, len(data["sequences"]) + 1)]
    per_user = total / data["users_counted"] if data["users_counted"] else 0.0
    unique = f"{sum(data['unique_sequences']):,}"
    first = table(
        ["# users", "# posts", "# sequences/users", "# sequences", "# unique sequences"],
        [[f"{data['users']:,}", f"{data['posts']:,}", f"{per_user:.2f}", f"{total:,}", unique]],
    )
    averages = [*(f"{count:.2f}" for count in data["sequences_per_user"]), f"{per_user:.2f}"]
    second = table(["", *lengths, "total"], [["sequences per user", *averages]])
    limit = ""
    if data["max_user_tokens"]:
        limit = (
            "<p>Users and posts are those of the whole input. Sequences are those of the "
            f"{data['users_counted']:,} users with at most {data['max_user_tokens']:,} tokens.</p>"
        )
    return first + limit + second


def _spurious(results: Results, exact: Exact) -> str:
    rows = []
    for system in exact["anonymity"]["systems"]:
        released = sum(map(sum, results["rows"][system["row"]]["released"]))
        spurious = sum(map(sum, system["spurious"]))
        share = f"{100 * spurious / released:.2f} %" if released else "-"
        rows.append([system["title"], f"{spurious:,}", f"{released:,}", share])
    return table(["all repeats together", "spurious", "released", "share"], rows)

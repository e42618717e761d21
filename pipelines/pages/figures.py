"""Line charts as SVG inside a page: no script, no library, no network.

Series differ in colour (Okabe and Ito's colours, which colour-blind people can tell apart), in the shape of their marks
and in their dashes, so that a black and white print can be read, too.
"""

import dataclasses
import html
import math
from collections.abc import Sequence

__all__ = ["CHART_STYLE", "Series", "highest", "line_chart"]

_WIDTH, _HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 98, 14, 14, 56
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2 1 2", "1 4")
_COLOURS = len(_DASHES)


@dataclasses.dataclass(frozen=True)
class Series:
    """A line of a chart.

    Args:
        name: for the legend.
        values: one for each place on the x axis; None: no mark.
        deviations: the standard deviation of each value; None: not shown.
    """

    name: str
    values: Sequence[float | None]
    deviations: Sequence[float] | None = None


def line_chart(
    caption: str,
    x_label: str,
    y_label: str,
    x: Sequence[object],
    series: Sequence[Series],
    *,
    log: bool = False,
    joined: bool = True,
    top: float | None = None,
) -> str:
    """A figure with labelled axes and a legend.

    Args:
        caption, x_label, y_label: plain text.
        x: the names of the places on the x axis.
        series: the lines.
        log: whether the y axis is logarithmic; zeros then have no mark.
        joined: whether lines join the marks. They should not if neighbours on the x axis are unrelated.
        top: what the y axis must show; None: all values. Charts that are compared have the same, see `highest`.
    """
    high = highest(series) if top is None else top
    ticks = _log_ticks([v for line in series for v in line.values if v], high) if log else _ticks(high)
    scale = _Scale(ticks[0], ticks[-1], log)
    shapes = [_axes(x_label, y_label, x, ticks, scale)]
    shapes += [_line(number, line, x, scale, joined) for number, line in enumerate(series)]
    legend = "".join(
        f"<span class='key'><svg viewBox='0 0 44 14' aria-hidden='true'>"
        f"<line class='line c{number % _COLOURS}' x1='2' x2='42' y1='7' y2='7'"
        f" stroke-dasharray='{_DASHES[number % _COLOURS]}'/>"
        f"{_mark(number, 22, 7, '')}</svg>{html.escape(line.name)}</span>"
        for number, line in enumerate(series)
    )
    return (
        f"<figure class='chart'><svg viewBox='0 0 {_WIDTH} {_HEIGHT}' role='img' aria-label='{html.escape(caption)}'>"
        f"{''.join(shapes)}</svg><div class='legend'>{legend}</div>"
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )


def highest(series: Sequence[Series]) -> float:
    """What an axis must reach to show all values and their deviations."""
    tops = [
        value + deviation
        for line in series
        for value, deviation in zip(line.values, line.deviations or [0.0] * len(line.values), strict=True)
        if value is not None
    ]
    return max([*tops, 1e-12])


@dataclasses.dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    log: bool

    def y(self, value: float) -> float:
        room = _HEIGHT - _TOP - _BOTTOM
        if self.log:
            part = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return _HEIGHT - _BOTTOM - room * min(max(part, 0.0), 1.0)


def _place(number: int, count: int) -> float:
    slot = (_WIDTH - _LEFT - _RIGHT) / max(count, 1)
    return _LEFT + slot * (number + 0.5)


def _axes(x_label: str, y_label: str, x: Sequence[object], ticks: Sequence[float], scale: _Scale) -> str:
    bottom = _HEIGHT - _BOTTOM
    parts = []
    for tick in ticks:
        y = scale.y(tick)
        parts.append(f"<line class='grid' x1='{_LEFT}' x2='{_WIDTH - _RIGHT}' y1='{y:.1f}' y2='{y:.1f}'/>")
        parts.append(f"<text class='end' x='{_LEFT - 8}' y='{y + 4:.1f}'>{_short(tick)}</text>")
    for number, name in enumerate(x):
        at = _place(number, len(x))
        parts.append(f"<line class='axis' x1='{at:.1f}' x2='{at:.1f}' y1='{bottom}' y2='{bottom + 5}'/>")
        parts.append(f"<text x='{at:.1f}' y='{bottom + 19}'>{html.escape(str(name))}</text>")
    parts.append(f"<path class='axis' d='M{_LEFT} {_TOP}V{bottom}H{_WIDTH - _RIGHT}'/>")
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f"<text class='label' x='{middle}' y='{_HEIGHT - 10}'>{html.escape(x_label)}</text>")
    across = (_TOP + bottom) / 2
    parts.append(f"<text class='label' transform='translate(21 {across}) rotate(-90)'>{html.escape(y_label)}</text>")
    return "".join(parts)


def _line(number: int, line: Series, x: Sequence[object], scale: _Scale, joined: bool) -> str:
    colour = f"c{number % _COLOURS}"
    pieces, marks, pen_down = [], [], False
    deviations = line.deviations or [0.0] * len(line.values)
    for place, (value, deviation) in enumerate(zip(line.values, deviations, strict=True)):
        if value is None or (scale.log and value <= 0):
            pen_down = False
            continue
        at, y = _place(place, len(line.values)), scale.y(value)
        pieces.append(f"{'L' if pen_down else 'M'}{at:.1f} {y:.1f}")
        pen_down = True
        if deviation > 0:
            low, high = scale.y(value - deviation), scale.y(value + deviation)
            if low - high > 2:
                marks.append(
                    f"<line class='whisker {colour}' x1='{at:.1f}' x2='{at:.1f}' y1='{low:.1f}' y2='{high:.1f}'/>"
                )
        spread = f" ± {_shown(deviation)}" if line.deviations is not None else ""
        title = f"{line.name}, {x[place]}: {_shown(value)}{spread}"
        marks.append(_mark(number, at, y, title))
    dashes = _DASHES[number % _COLOURS]
    path = (
        f"<path class='line {colour}' d='{' '.join(pieces)}' stroke-dasharray='{dashes}'/>" if pieces and joined else ""
    )
    return path + "".join(marks)


def _mark(number: int, x: float, y: float, title: str) -> str:
    """A mark; its shape depends on the number of the series."""
    shapes = (
        f"<circle cx='{x:.1f}' cy='{y:.1f}' r='4.2'",
        f"<rect x='{x - 3.8:.1f}' y='{y - 3.8:.1f}' width='7.6' height='7.6'",
        f"<path d='M{x:.1f} {y - 5:.1f}l4.8 8.4h-9.6z'",
        f"<path d='M{x:.1f} {y - 5.4:.1f}l5.4 5.4l-5.4 5.4l-5.4 -5.4z'",
        f"<path d='M{x:.1f} {y + 5:.1f}l4.8 -8.4h-9.6z'",
        f"<path d='M{x - 1.5:.1f} {y - 5:.1f}h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z'",
        f"<path d='M{x:.1f} {y - 5:.1f}l4.8 3.5l-1.8 5.6h-6l-1.8 -5.6z'",
    )
    inside = f"<title>{html.escape(title)}</title>" if title else ""
    shape = shapes[number % _COLOURS]
    return f"{shape} class='mark c{number % _COLOURS}'>{inside}</{shape[1 : shape.index(' ')]}>"


def _ticks(high: float) -> list[float]:
    """About six round numbers, from 0 to the first that is at least `high`."""
    raw = high / 5
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw * (1 - 1e-9))
    return [step * number for number in range(math.ceil(high / step - 1e-9) + 1)]


def _log_ticks(values: Sequence[float], high: float) -> list[float]:
    low = math.floor(math.log10(min([*(value for value in values if value > 0), high])))
    top = max(math.ceil(math.log10(high) - 1e-9), low + 1)
    return [10.0**exponent for exponent in range(low, top + 1)]


def _shown(value: float) -> str:
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"


def _short(value: float) -> str:
    """A number beside an axis, where there is room for six characters."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 10 * unit:
            return f"{value / unit:,g} {name}"
    return _shown(value)


# Okabe and Ito (2008) without the yellow, which is hard to see on paper; lighter on a dark ground.
CHART_STYLE = """
:root{--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#cc79a7;--c4:#e69f00;--c5:#56b4e9;--c6:#333}
@media(prefers-color-scheme:dark){:root{--c0:#4aa8e0;--c1:#f08a4b;--c2:#2fc79b;--c3:#e0a3c6;--c4:#f0c040;--c5:#8fd0f5;
--c6:#bbb}}
.chart svg{width:100%;height:auto;display:block}.chart svg text{font:15px system-ui,sans-serif;fill:var(--ink);
text-anchor:middle}.chart svg text.end{text-anchor:end}.chart svg text.label{font-weight:600}
.axis{stroke:var(--soft);fill:none}.grid{stroke:var(--line);stroke-width:1}
.line{fill:none;stroke-width:2}.whisker{stroke-width:1.5}.mark{stroke:var(--card);stroke-width:1}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;margin:.3rem 0 0 3rem;font-size:.86rem}
@media(max-width:40rem){.chart svg text{font-size:22px}.legend{margin-left:0}}
.legend .key{display:inline-flex;align-items:center;gap:.35rem}.legend .key svg{width:44px;height:14px}
""" + "".join(f".line.c{n},.whisker.c{n}{{stroke:var(--c{n})}}.mark.c{n}{{fill:var(--c{n})}}" for n in range(_COLOURS))

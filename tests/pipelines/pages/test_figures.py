"""Charts in a page."""

import re

from dpngram.pipelines.pages.figures import Series, highest, line_chart


def test_charts_show_what_they_are_given():
    chart = line_chart(
        "a <b>", "x & y", "count", ["1", "2", "3"], [Series("up", [1, None, 9], [0, 0, 3]), Series("q", [0, 0, 0])]
    )
    assert "a &lt;b&gt;" in chart
    assert "x &amp; y" in chart
    assert "up, 3: 9 ± 3" in chart
    assert chart.count("<title>") == 2 + 3
    assert chart.count("whisker") == 1
    assert ">15<" not in chart  # the axis ends above 12
    ordinates = [float(y) for y in re.findall(r"cy='([\d.]+)' r='4.2' class='mark c0'><title>up", chart)]
    assert ordinates[0] > ordinates[1]
    empty = line_chart("none", "x", "y", ["1"], [Series("a", [0])], log=True)
    assert "<title>" not in empty


def test_charts_with_the_same_top_have_the_same_axis():
    """A small line is drawn low, next to a chart of large ones; what is above the top is drawn at the top."""
    small, large = [Series("s", [1, 2])], [Series("l", [50, 90], [0, 7])]
    top = highest([*small, *large])
    assert top == 97
    ticks = [
        re.findall(r"class='end'[^>]*>([\d,.]+)<", line_chart("c", "x", "y", ["1", "2"], lines, top=top))
        for lines in (small, large)
    ]
    assert ticks[0] == ticks[1] == ["0", "20", "40", "60", "80", "100"]
    assert ">100<" not in line_chart("c", "x", "y", ["1", "2"], small)


def test_large_numbers_leave_room_for_the_axis():
    chart = line_chart("c", "x", "y", ["1"], [Series("s", [1_234_567])])
    assert re.findall(r"class='end'[^>]*>([^<]+)<", chart)[:3] == ["0", "250 k", "500 k"]
    assert "s, 1: 1,234,567" in chart
    log = line_chart("c", "x", "y", ["1", "2"], [Series("s", [1e3, 9e7])], log=True)
    assert re.findall(r"class='end'[^>]*>([^<]+)<", log) == ["1,000", "10 k", "100 k", "1,000 k", "10 M", "100 M"]

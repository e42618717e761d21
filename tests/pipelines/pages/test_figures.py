"""Charts in a page."""

import re

from dpngram.pipelines.pages.figures import Series, line_chart


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

"""The page of a comparison."""

import collections
import html
import html.parser
import json
import re

from helpers.browser import PHONE, measure_on_a_phone
from helpers.comparisons import exact_of

from dpngram.pipelines.pages.comparison_page import render_page
from dpngram.pipelines.research.systems import SYSTEMS


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.attributes = collections.Counter(), []

    def handle_starttag(self, tag, attributes):
        self.tags[tag] += 1
        self.attributes += attributes


def test_one_page_without_the_network(compared, revealed):
    for path, charts in (
        (compared / "comparison.html", 2 + 3),
        (exact_of(revealed) / "comparison-NOT-PRIVATE.html", 2 + len(SYSTEMS)),
    ):
        text = path.read_text()
        page = Page()
        page.feed(text)
        assert not {"script", "img", "link", "iframe", "object"} & set(page.tags)
        assert "://" not in text
        assert "@import" not in text
        assert "url(" not in text
        assert page.tags["figure"] == page.tags["figcaption"] == charts
        assert text.count(">length n<") == charts
        assert "prefers-color-scheme:dark" in text
        assert "@media print" in text


def test_on_a_phone(compared, tmp_path):
    """Long numbers and many lengths fit, too."""
    results = json.loads((compared / "comparison.json").read_text())
    for row in results["rows"]:
        row["mean"], row["sd"] = ([*values, *[123_456.7] * (9 - len(values))] for values in (row["mean"], row["sd"]))
    results["max_n"] = 9
    width, label, wide, cut = measure_on_a_phone(render_page(results), tmp_path)
    assert (width, wide, cut) == (PHONE, 0, 0)
    assert label >= 10


def test_charts_can_be_compared(compared):
    """One scale for all linear charts, and captions that say what was run without the text around them."""
    page = (compared / "comparison.html").read_text()
    charts = re.findall(r"<figure class='chart'>.*?</figure>", page)
    linear = [chart for chart in charts if "logarithmic" not in chart]
    assert len(linear) == len(charts) - 1 == 4
    assert len({tuple(re.findall(r"class='end'[^>]*>([\d,.]+)<", chart)) for chart in linear}) == 1
    captions = [html.unescape(re.search(r"<figcaption>(.*)</figcaption>", chart)[1]) for chart in charts]
    assert all("means of 2 runs, bars are standard deviations" in caption for caption in captions)
    (epsilon,) = [caption for caption in captions if "privacy parameter" in caption]
    assert epsilon.startswith("How many n-grams of each length DPNE releases, for several values of the privacy")
    assert "ε = " not in epsilon  # it is varied
    assert "δ = 0.1, T = 3, Δ₀ = 12, η = 0.1" in epsilon

"""The page of a comparison."""

import collections
import html
import html.parser

from helpers.comparisons import exact_of

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

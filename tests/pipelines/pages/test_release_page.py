"""report.html: one page, from the release alone, that works in a browser with and without scripts."""

import html.parser
import json
import re
import subprocess
import tracemalloc
from collections import Counter

from helpers.browser import PHONE, QUIET, find_browser, measure_on_a_phone
from helpers.runs import extract

from dpngram.pipelines.pages.release_page import render_report


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.attributes = [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes


def test_one_page_without_the_network(release):
    text = (release / "report.html").read_text()
    page = Page()
    page.feed(text)
    assert len(text) < 1_000_000
    assert page.tags.count("script") == 1  # the search of the table; released text is escaped
    assert not any(name in ("src", "href", "action") for name, _ in page.attributes)
    assert "http" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert page.tags.count("svg") == 3
    for words in (
        "What is protected",
        "(20, 0.1)-differential privacy",
        "one budget for all levels",
        "expected spurious",
    ):
        assert words in text


def test_an_empty_release_has_a_page_too(tmp_path):
    (tmp_path / "in.jsonl").write_text("")
    assert extract(tmp_path / "out", "--input", tmp_path / "in.jsonl") == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "0 private n-grams" in page
    assert "Nothing was released. By this plan a word needs about" in page
    assert "with <span class=flag>--max_n</span> 1" in page


def test_a_large_release_stays_small(release):
    manifest = json.loads((release / "manifest.json").read_text())
    rows = {n: [(["x" * 500] * n, float(i)) for i in range(20_000)] for n in (1, 2, 3)}
    assert len(render_report(manifest, rows)) < 1_000_000


def test_rows_that_are_not_shown_are_not_kept(release):
    """Half a million rows as Python objects would take 100 MB."""
    manifest = json.loads((release / "manifest.json").read_text())
    rows = {n: (([f"word{i}", "x"], float(i % 977)) for i in range(170_000)) for n in (1, 2, 3)}
    tracemalloc.start()
    page = render_report(manifest, rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 << 20
    assert page.count(">976.0<") == 3 * 174  # all of this weight, the first ones of each length
    assert "word976 x" in page


def test_in_a_browser(release, tmp_path):
    """With scripts the search is there and hides rows; without, the whole table is."""
    browser = find_browser()
    quiet = [*QUIET, f"--user-data-dir={tmp_path}/profile"]
    page = (release / "report.html").read_text()
    probe = "<script>const q=document.getElementById('find');q.value='w1';q.oninput();</script></html>"
    (tmp_path / "page.html").write_text(page.replace("</html>", probe))
    command = [browser, *quiet, "--dump-dom", f"file://{tmp_path}/page.html"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    body = done[done.index('<table id="grams"') :]
    shown = body.count("<tr>")
    hidden = body.count("<tr hidden")
    assert shown > 5
    assert hidden > 5
    assert '<p id="choose">' in done  # not hidden
    probe = "<script>const q=document.getElementById('length');q.value='2';q.oninput();</script></html>"
    (tmp_path / "page.html").write_text(page.replace("</html>", probe))
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    body = done[done.index('<table id="grams"') :]
    assert body.count("<tr><th>2<") > 0
    assert body.count("<tr><th>1<") == 0 < body.count('<tr hidden=""><th>1<')
    for mode in ("0", "1"):  # dark, light
        picture = tmp_path / f"{mode}.png"
        flags = [f"--blink-settings=preferredColorScheme={mode}", "--window-size=900,1400", f"--screenshot={picture}"]
        subprocess.run(
            [browser, *quiet, *flags, f"file://{release}/report.html"], capture_output=True, timeout=120, check=True
        )
        assert picture.stat().st_size > 20_000


def test_on_a_phone(release, tmp_path):
    """The page is as wide as the screen, and figures, too: labels are not cut, and are readable."""
    width, label, wide, cut = measure_on_a_phone((release / "report.html").read_text(), tmp_path)
    assert (width, wide, cut) == (PHONE, 0, 0)
    assert label >= 10


def test_on_paper(release, tmp_path):
    """The 20 heaviest of each length are printed, and no flag is cut after its hyphens."""
    page = (release / "report.html").read_text()
    rows = re.findall(
        r"<tr( class=screen)?><th>(\d)</th>", page[page.index("<table id='grams'") :].split("</table>")[0]
    )
    printed = Counter(n for hidden, n in rows if not hidden)
    assert printed["2"] == printed["3"] == 20
    assert len(rows) > sum(printed.values())
    assert "<span class=flag>--max_bad_fraction</span>" in page
    (tmp_path / "page.html").write_text(page)
    sizes = []
    for name, text in (("page", page), ("all", page.replace("<tr class=screen>", "<tr>"))):
        (tmp_path / "page.html").write_text(text)
        command = [find_browser(), *QUIET, f"--user-data-dir={tmp_path}/profile", "--no-pdf-header-footer"]
        command += [f"--print-to-pdf={tmp_path}/{name}.pdf", f"file://{tmp_path}/page.html"]
        subprocess.run(command, capture_output=True, timeout=120, check=True)
        sizes.append(len(re.findall(rb"/Type\s*/Page\b", (tmp_path / f"{name}.pdf").read_bytes())))
    assert 0 < sizes[0] < sizes[1]


def test_a_number_at_the_edge_of_a_figure_is_not_cut(release, tmp_path):
    """Weights up to a little more than 1,000: this number is written at the right edge."""
    manifest = json.loads((release / "manifest.json").read_text())
    rows = {n: [([f"w{i}"] * n, weight) for i, weight in enumerate((1001.0, 30.0, 1.5))] for n in (1, 2, 3)}
    page = render_report(manifest, rows)
    assert ">1,000<" in page
    assert measure_on_a_phone(page, tmp_path)[3] == 0

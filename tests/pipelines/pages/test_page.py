"""The frame of a page: everything that is text is escaped."""

import re
import subprocess

from helpers.browser import QUIET, find_browser

from dpngram.pipelines.pages.page import render, section, table


def test_text_is_escaped_and_the_body_is_not():
    page = render("a <title>", "b & c", "<p>body</p>", "<em>footer</em>")
    assert "<title>a &lt;title&gt;</title>" in page
    assert "<h1>b &amp; c</h1><p>body</p><footer><em>footer</em></footer>" in page
    assert "http" not in page
    assert section("<x>", "<p>y</p>") == "<section><h2>&lt;x&gt;</h2><p>y</p></section>"


def test_cells_may_have_a_second_line():
    made = table(["system", "<n>"], [["a&b", "1"], ["c", "2\n± <3>"]])
    assert "<thead><tr><th>system</th><th>&lt;n&gt;</th></tr></thead>" in made
    assert "<tr><th>a&amp;b</th><td>1</td></tr>" in made
    assert "<tr><th>c</th><td>2<small>± &lt;3&gt;</small></td></tr>" in made


def test_rows_that_are_not_printed():
    found = table(["a", "b"], [["1", "x"], ["2", "y"]], on_screen={1})
    assert "<tr><th>1</th>" in found
    assert "<tr class=screen><th>2</th>" in found


def test_one_figure_is_as_large_as_one_of_two(tmp_path):
    """On a wide screen its labels have the size of all others."""
    figure = "<figure><svg viewBox='0 0 10 10'></svg></figure>"
    body = f"<div class='two'>{figure}</div><div class='two'>{figure}{figure}</div>"
    script = "document.title=[...document.querySelectorAll('svg')].map(s=>s.getBoundingClientRect().width).join(' ')"
    (tmp_path / "page.html").write_text(render("", "", body, "", style="svg{width:100%;display:block}", script=script))
    command = [find_browser(), *QUIET, f"--user-data-dir={tmp_path}/profile", "--window-size=1280,900", "--dump-dom"]
    done = subprocess.run([*command, f"file://{tmp_path}/page.html"], capture_output=True, text=True, check=True)
    widths = set(map(float, re.search(r"<title>([\d. ]+)</title>", done.stdout)[1].split()))
    assert len(widths) == 1
    assert 400 < widths.pop() < 640

"""The frame of a page: everything that is text is escaped."""

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

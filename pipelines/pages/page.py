"""A self-contained page: frame, sections and tables; readable in the dark and in print, without any other file."""

import html
from collections.abc import Collection

__all__ = ["render", "section", "table"]


def render(title: str, heading: str, body: str, footer: str, *, style: str = "", script: str = "") -> str:
    """A whole page.

    Args:
        title, heading: plain text.
        body, footer: HTML.
        style: what the page adds to the common style sheet; its rules come later, so they win.
        script: JavaScript at the end of the page.
    """
    rules = (_STYLE + style).replace("\n", "")
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>{html.escape(title)}</title><style>{rules}</style>"
        f"<main><h1>{html.escape(heading)}</h1>{body}<footer>{footer}</footer></main>"
        f"{f'<script>{script}</script>' if script else ''}</html>\n"
    )


def section(title: str, body: str) -> str:
    """A part of the page; `title` is plain text, `body` HTML."""
    return f"<section><h2>{html.escape(title)}</h2>{body}</section>"


def table(
    header: list[str], rows: list[list[str]], *, name: str = "", tall: bool = False, on_screen: Collection[int] = ()
) -> str:
    """A table of plain texts, whose first column names the rows.

    Args:
        header: above the columns; may be empty.
        rows: a cell may have a second line, in small type: the deviation under a mean.
        name: an id for the style sheet and scripts.
        tall: whether it scrolls by itself.
        on_screen: rows that are not printed.
    """
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    body = "".join(
        f"<tr{' class=screen' if place in on_screen else ''}><th>{html.escape(row[0])}</th>"
        f"{''.join(f'<td>{_lines(cell)}</td>' for cell in row[1:])}</tr>"
        for place, row in enumerate(rows)
    )
    opening = f"<table id='{name}'>" if name else "<table>"
    top = f"<thead><tr>{head}</tr></thead>" if header else ""
    return f"<div class='scroll{' tall' if tall else ''}'>{opening}{top}<tbody>{body}</tbody></table></div>"


def _lines(cell: str) -> str:
    first, *second = cell.split("\n")
    return html.escape(first) + "".join(f"<small>{html.escape(line)}</small>" for line in second)


_STYLE = """
:root{color-scheme:light dark;--page:#fbfaf8;--ink:#1d2126;--soft:#5c6670;--line:#dcd9d2;--card:#fff;--red:#b00020;
--width:76rem;--prose:58rem}
@media(prefers-color-scheme:dark){:root{
--page:#14171a;--ink:#e8e6e1;--soft:#9aa4ad;--line:#2e3439;--card:#1b1f23;--red:#ff6b7a}}
*{box-sizing:border-box}body{margin:0;background:var(--page);color:var(--ink);font:16px/1.55 system-ui,sans-serif}
main{max-width:var(--width);margin:0 auto;padding:2rem 1.25rem 4rem}
h1{font-size:2rem;letter-spacing:-.02em;margin:.2em 0 .6em}h2{font-size:1.1rem;margin:0 0 .8rem}
section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:1.2rem 1.4rem;margin:1rem 0}
p,ul{max-width:var(--prose)}figure{margin:.6rem 0}
figcaption,footer{color:var(--soft);font-size:.88rem}figcaption{margin:.4rem 0 0 3rem}footer{margin-top:2rem}
.two{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(26rem,100%),1fr));gap:1rem 2rem}
.caution{border-left:4px solid #e69f00;padding-left:.9rem}
.danger{border:2px solid var(--red);color:var(--red);border-radius:10px;padding:.8rem 1rem;max-width:none}
table{border-collapse:collapse;width:100%;font-size:.92rem}
th,td{text-align:right;padding:.3rem .5rem;border-bottom:1px solid var(--line);font-variant-numeric:tabular-nums;
white-space:nowrap;vertical-align:top}td small{display:block;color:var(--soft)}
tr th:first-child{text-align:left;font-weight:600}thead th{color:var(--soft)}
.scroll{overflow-x:auto;margin:0 0 1rem;background:linear-gradient(to right,var(--card) 30%,transparent) 0 0,
linear-gradient(to left,var(--card) 30%,transparent) 100% 0,
linear-gradient(to right,var(--line),transparent) 0 0,linear-gradient(to left,var(--line),transparent) 100% 0;
background-repeat:no-repeat;background-size:3rem 100%,3rem 100%,.8rem 100%,.8rem 100%;
background-attachment:local,local,scroll,scroll}.tall{max-height:32rem;overflow:auto}
.tall thead th{position:sticky;top:0;background:var(--card)}
@media(max-width:40rem){main{padding:1rem .6rem 3rem}section{padding:.9rem .8rem}h1{font-size:1.5rem}
figcaption{margin-left:0}tbody th{white-space:normal;min-width:6rem}#findings tbody th{min-width:0}}
@media print{:root{--page:#fff;--ink:#000;--soft:#333;--line:#ccc;--card:#fff}main{max-width:none;padding:0}
section{border:none;padding:.4rem 0}h2{break-after:avoid}figure,tr{break-inside:avoid}
section:has(.two){break-inside:avoid}
.two{grid-template-columns:1fr 1fr}html,body{font-size:12px}.scroll{overflow:visible;background:none}
.tall{max-height:none}.screen{display:none}
table{font-size:10.5px}th,td{padding:.15rem .3rem}thead th,tbody th{white-space:normal}}
"""

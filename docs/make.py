"""The documentation: pages of the reference that are made from the code, and all pages as a site.

    python docs/make.py --reference          # writes docs/reference/flags.md and messages.md
    python docs/make.py --output site/       # needs pip install 'dpngram[docs]'

The site works from disk: no script, no font and no picture from elsewhere. Links between pages stay relative.
"""

import argparse
import importlib
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from dpngram.pipelines.cli import PROGRAMS
from dpngram.pipelines.launch.flags import OneLineParser
from dpngram.pipelines.pages.page import render
from dpngram.transforms.messages import Message

ROOT = Path(__file__).resolve().parent.parent
_BESIDE = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
_STYLE = (
    ":root{--width:60rem;--prose:52rem}a{color:inherit}pre{overflow-x:auto;background:var(--card);padding:.7rem 1rem;"
    "border:1px solid var(--line);border-radius:8px;font-size:.88rem}code{font-size:.92em}nav{margin-bottom:1rem}"
    "th,td{text-align:left;white-space:normal;overflow-wrap:break-word}.scroll table{min-width:30rem}"
    "h1,h2,h3{line-height:1.25}"
    "h2{font-size:1.35rem;margin:2rem 0 .6rem}h3{margin:1.4rem 0 .4rem}"
)


class _ParserFound(Exception):
    pass


def parser_of(program: str) -> OneLineParser:
    """The parser of a program, caught when it would begin to read its flags."""

    def stop(self: OneLineParser, *_: object, **__: object) -> None:
        raise _ParserFound(self)

    module = importlib.import_module(f"dpngram.pipelines.{program}")
    with mock.patch.object(OneLineParser, "parse_known_args", stop):
        try:
            module.run([])
        except _ParserFound as found:
            parser: OneLineParser = found.args[0]
            return parser
    raise RuntimeError(f"{program} reads no flags")


def flags_page() -> str:
    """Every flag of every program, from the parsers themselves."""
    parts = ["# Flags", "", _made("the parsers")]
    for program, summary in PROGRAMS.items():
        parser = parser_of(program)
        parts += [
            "",
            f"## dpngram {program}",
            "",
            f"{summary[:1].upper()}{summary[1:]}.",
            "",
            "| flag | |",
            "|---|---|",
        ]
        for action in parser._actions:
            if action.dest == "help":
                continue
            name = action.option_strings[0] if action.option_strings else action.metavar or action.dest
            needed = " **Needed.**" if action.required else ""
            text = re.sub(r"\s+", " ", (action.help or "").replace("%%", "%"))
            parts.append(f"| `{name}` | {_cell(text)}{needed} |")
    return "\n".join(parts) + "\n"


def messages_page() -> str:
    """Every sentence that the user of a failed run may see from a worker."""
    parts = [
        "# Messages of failed runs",
        "",
        _made("`transforms/messages.py`"),
        "",
        "A run that fails on a worker shows one of these sentences, or the name of a step and the kind of exception. "
        "`{key}` stands for the name of the key, other names in braces for numbers. Nothing else of an error is shown, "
        "because it may quote the data. Errors in flags and parameters say themselves what to change.",
        "",
        "| | |",
        "|---|---|",
    ]
    parts += [f"| {message.name.replace('_', ' ').lower()} | {_cell(message.value)} |" for message in Message]
    return "\n".join(parts) + "\n"


REFERENCE = {"flags.md": flags_page, "messages.md": messages_page}


def _made(source: str) -> str:
    return f"Made from {source} by `python docs/make.py --reference`; a test compares."


def _cell(text: str) -> str:
    return re.sub(r"([|<>*_$])", r"\\\1", text)


def anchor_of(heading: str) -> str:
    """The anchor that GitHub gives to a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def pages() -> Iterator[Path]:
    yield from (ROOT / name for name in _BESIDE)
    yield from sorted((ROOT / "docs").rglob("*.md"))


def build_site(output: Path) -> None:
    """One HTML page for each page, in the same folders; what pages link to besides is copied."""
    from markdown_it import MarkdownIt

    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    for page in pages():
        place = page.relative_to(ROOT).with_suffix(".html")
        target = output / place
        target.parent.mkdir(parents=True, exist_ok=True)
        text = re.sub(r"^<!--.*?-->$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)  # marks of tests
        tokens = markdown.parse(text)
        title = page.stem
        for token, inline in itertools.pairwise(tokens):
            if token.type == "heading_open":
                token.attrSet("id", anchor_of(inline.content))
                title = inline.content if token.tag == "h1" else title
        for token in tokens:
            for child in token.children or ():
                link = child.attrGet("href") if child.type == "link_open" else None
                if isinstance(link, str) and not re.match(r"[a-z]+:|#", link):
                    child.attrSet("href", _link(page, link, output))
        body = markdown.renderer.render(tokens, markdown.options, {})
        body = body.replace("<table>", "<div class='scroll'><table>").replace("</table>", "</table></div>")
        body = re.sub(r"<h1[^>]*>.*?</h1>", "", body, count=1)
        up = "../" * (len(place.parts) - 1)
        nav = f"<nav><a href='{up}docs/index.html'>dpngram: documentation</a></nav>"
        target.write_text(render(title, title.replace("`", ""), nav + body, "", style=_STYLE), encoding="utf-8")


def _link(page: Path, link: str, output: Path) -> str:
    """The link in the site; a file that is no page is copied to it."""
    path, sharp, anchor = link.partition("#")
    target = (page.parent / path).resolve()
    if target.suffix == ".md":
        return str(Path(path).with_suffix(".html")) + sharp + anchor
    copy = output / target.relative_to(ROOT)
    copy.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir():
        names = sorted(child.name for child in target.iterdir() if child.is_file())
        copy.mkdir(exist_ok=True)
        for name in names:
            (copy / name).write_bytes((target / name).read_bytes())
        return link
    copy.write_bytes(target.read_bytes())
    return link


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", action="store_true", help="write the pages that are made from the code")
    parser.add_argument("--output", type=Path, help="a directory for the site")
    flags = parser.parse_args()
    if flags.reference:
        for name, make in REFERENCE.items():
            (ROOT / "docs" / "reference" / name).write_text(make(), encoding="utf-8")
    if flags.output is not None:
        build_site(flags.output)
        print(f"Open {flags.output / 'docs' / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

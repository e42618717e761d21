"""The documentation: links lead somewhere, commands are real, what is made from the code is up to date."""

import importlib.util
import json
import re
import shlex
import urllib.parse
from pathlib import Path

import pytest
from helpers.runs import extract, small_corpus, write

from dpngram.pipelines.cli import PROGRAMS, main

spec = importlib.util.spec_from_file_location("docs_make", Path(__file__).parent.parent / "docs" / "make.py")
make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)

ROOT = make.ROOT
PAGES = list(make.pages())
# Flags that go to Beam, in commands of ours.
BEAMS = {
    *("runner", "prism_location", "environment_type", "direct_running_mode", "project", "region", "temp_location"),
    *(
        "staging_location",
        "machine_type",
        "num_workers",
        "max_num_workers",
        "number_of_worker_harness_threads",
        "setup_file",
        "dry_run",
        "no_wait",
    ),
    *("service_account_email", "sdk_container_image", "worker_harness_container_image", "dataflow_service_options"),
}


def without_code(text):
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def anchors(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return {make.anchor_of(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    wrong = []
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    assert wrong == []


def test_every_page_is_reached_from_the_index():
    seen, todo = set(), [ROOT / "docs" / "index.md"]
    while todo:
        page = todo.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        links = re.findall(r"\]\(([^)#\s]+)", without_code(page.read_text(encoding="utf-8")))
        todo += [(page.parent / link).resolve() for link in links if not re.match(r"[a-z]+:", link)]
    assert set(PAGES) - seen == set()


@pytest.mark.parametrize("name", make.REFERENCE)
def test_the_reference_is_that_of_the_code(name):
    """If this fails: python docs/make.py --reference"""
    assert (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8") == make.REFERENCE[name]()


def commands():
    for page in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for line in re.sub(r"\\\n", " ", block).splitlines():
                for words in re.findall(r"dpngram [a-z]+ [^&|>]*", line.split(" #")[0]):
                    yield page.name, shlex.split(words.replace("...", ""))


def test_commands_have_programs_and_flags_that_there_are():
    known = {
        program: {option for action in make.parser_of(program)._actions for option in action.option_strings}
        for program in PROGRAMS
    }
    wrong, seen = [], 0
    for page, (_, program, *words) in commands():
        seen += 1
        flags = {word.partition("=")[0] for word in words if word.startswith("--")}
        if program not in known or flags - known[program] - {f"--{name}" for name in BEAMS}:
            wrong.append((page, program, flags - known.get(program, set())))
    assert wrong == []
    assert seen > 25


def test_the_tutorial_runs(tmp_path, monkeypatch, capsys):
    """All of its commands in order, on a smaller corpus."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    done = []
    for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL):
        words = shlex.split(block.replace("20000 --seed", "1500 --seed").replace("--max_n 5", "--max_n 2"))
        assert words[0] == "dpngram"
        assert main(words[1:]) == 0, words
        done.append(words[1])
    assert done == ["synth", "plan", "plan", "extract", "ledger", "verify"]
    assert "All checks passed" in capsys.readouterr().out
    assert (tmp_path / "release" / "report.html").exists()


def test_releases_fit_the_schemas(tmp_path):
    jsonschema = pytest.importorskip("jsonschema", reason="the package jsonschema is not installed")
    row, manifest = (
        jsonschema.Draft202012Validator(json.loads((ROOT / "docs" / "reference" / f"{name}.schema.json").read_text()))
        for name in ("row", "manifest")
    )
    source = write(tmp_path / "in.jsonl", small_corpus(200))
    assert extract(tmp_path / "out", "--input", source, "--release", "of May") == 0
    found = json.loads((tmp_path / "out" / "manifest.json").read_text())
    manifest.validate(found)
    lines = [line for path in sorted((tmp_path / "out").glob("*.jsonl")) for line in path.read_text().splitlines()]
    assert lines
    for line in lines:
        row.validate(json.loads(line))
    found["levels"][0]["exact"] = 3
    assert not manifest.is_valid(found)
    good = {"n": 1, "phrase": "a", "tokens": ["a"], "weight": 2.0}
    assert row.is_valid(good)
    assert not row.is_valid({**good, "tokens": []})
    assert not row.is_valid({name: value for name, value in good.items() if name != "phrase"})


def test_the_site_works_from_disk(tmp_path):
    """Every link of every page leads to a file of the site, and to an anchor that it has; nothing is loaded."""
    pytest.importorskip("markdown_it", reason="the package markdown-it-py is not installed")
    make.build_site(tmp_path)
    built = {path: path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")}
    assert len(built) == len(PAGES)
    wrong = []
    for path, text in built.items():
        assert not re.search(r"<(script|img|link)\b|\bsrc=|@import|url\(", text)
        assert "<p>&lt;!--" not in text  # marks of tests are for tests
        for link in re.findall(r'href=["\']([^"\']+)', text):
            if re.match(r"https?:", link):
                continue
            place, _, anchor = urllib.parse.unquote(link).partition("#")
            target = (path.parent / place).resolve() if place else path
            if not target.exists() or (anchor and f'id="{anchor}"' not in built[target]):
                wrong.append((path.name, link))
    assert wrong == []

"""Hostile releases: manifests, rows, checkpoints and blocks that somebody edited. `report` and `--resume` answer in one
line, show nothing but what lies in the release, and no token or manifest becomes HTML.

helpers/fuzz.py says how to look longer.
"""

import dataclasses
import html.parser
import json
import shutil

import hypothesis
import numpy as np
import pytest
from helpers.fuzz import check, command, edited, json_values, look, mutations, no_hang
from helpers.keys import write_key
from helpers.runs import BUDGET, checkpoints_of, extract, jsonl, keep_checkpoints, small_corpus
from hypothesis import strategies as st

from dpngram.pipelines.io.encoding import OUTPUT_FORMATS
from dpngram.transforms.blocks.cells import CellBlock
from dpngram.transforms.blocks.columns import Block

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'onload='x",
    "</td><iframe>",
    "&lt;b&gt;",
    "<!--",
]


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    """A finished release in every format, of words that would like to be HTML."""
    directory = tmp_path_factory.mktemp("releases")
    (directory / "in.jsonl").write_bytes(jsonl(small_corpus(300, [word.replace(" ", "_") for word in HOSTILE])))
    write_key(directory / "noise.key", b"k" * 32)
    flags = ["--input", directory / "in.jsonl", "--tokenizer", "whitespace", "--max_n", "2"]
    for name in OUTPUT_FORMATS:
        key = ["--noise_key", directory / "noise.key", "--release", name]
        assert extract(directory / name, *flags, *key, "--output_format", name) == 0
    return directory


class Page(html.parser.HTMLParser):
    """Every element and attribute of a page, and its scripts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.scripts, self._last = set(), set(), [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self._last = tag

    def handle_data(self, data):
        if self._last == "script" and data.strip():
            self.scripts.append(data)


@pytest.fixture(scope="module")
def plain_page(releases):
    """The page of the release, with hostile tokens in it: the elements that any page may have."""
    text = (releases / "jsonl" / "report.html").read_text()
    page = Page(text)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert not page.tags & {"img", "iframe", "object", "embed", "form", "link", "a", "base"}
    assert not {name for name in page.attributes if name.startswith("on")}
    assert not page.attributes & {"src", "href", "action"}
    assert len(page.scripts) == 1
    return page


def check_page(path, plain):
    page = Page(path.read_text())
    assert page.tags <= plain.tags
    assert page.attributes <= plain.attributes
    assert page.scripts == plain.scripts


def copy_of(releases, name, tmp_path, number):
    return shutil.copytree(releases / name, tmp_path / f"{name}{number}")


def test_fuzz_manifests(releases, plain_page, tmp_path):
    """`report` on an edited manifest: a page in which nothing is HTML that was not, or one line."""
    manifest = json.loads((releases / "jsonl" / "manifest.json").read_bytes())
    shown = json_values() | st.sampled_from(HOSTILE) | st.sampled_from(["../in.jsonl", "/etc/hostname", "no", "\ud800"])
    made, number = 0, 0
    out = copy_of(releases, "jsonl", tmp_path, 0)

    @look(250)
    @hypothesis.given(edited(manifest, shown))
    def report(document):
        nonlocal made, number
        number += 1
        (out / "manifest.json").write_text(json.dumps(document))
        (out / "report.html").unlink(missing_ok=True)
        status, err = command("report", str(out))
        check(status, err)
        assert status in (0, 1)
        assert (status == 0) == (out / "report.html").exists()
        if status == 0:
            made += 1
            check_page(out / "report.html", plain_page)

    report()
    assert made > 0


@look(150)
@hypothesis.given(data=st.data(), name=st.sampled_from(sorted(OUTPUT_FORMATS)))
def test_fuzz_rows(releases, plain_page, tmp_path_factory, data, name):
    """`report` on a release whose rows are damaged."""
    out = tmp_path_factory.mktemp("rows") / "out"
    shutil.copytree(releases / name, out)
    (rows,) = out.glob("ngrams-02.*")
    rows.write_bytes(data.draw(mutations(rows.read_bytes())))
    status, err = command("report", str(out))
    check(status, err)
    if status == 0:
        check_page(out / "report.html", plain_page)


def test_reports_read_nothing_outside_of_the_release(releases, tmp_path):
    """A manifest that names another file gets no page of it."""
    out = copy_of(releases, "jsonl", tmp_path, "")
    secret = tmp_path / "secret.jsonl"
    secret.write_text('{"n": 1, "tokens": ["hunter2"], "weight": 5.0}\n')
    manifest = json.loads((out / "manifest.json").read_bytes())
    for name in ("../secret.jsonl", str(secret), "x/../../secret.jsonl"):
        manifest["levels"][0]["file"] = name
        (out / "manifest.json").write_text(json.dumps(manifest))
        (out / "report.html").unlink(missing_ok=True)
        assert command("report", str(out))[0] == 1
        assert not (out / "report.html").exists()


def test_fuzz_resumed_manifests(releases, tmp_path):
    """`--resume` on a finished release whose manifest was edited: refused, or what it says it was; never another."""
    out = copy_of(releases, "jsonl", tmp_path, 0)
    original = (out / "manifest.json").read_bytes()
    flags = ["extract", "--quiet", "--output", str(out), "--input", str(releases / "in.jsonl"), *BUDGET]
    flags += ["--tokenizer", "whitespace", "--max_n", "2", "--noise_key", str(releases / "noise.key"), "--resume"]
    flags += ["--release", "jsonl"]
    assert command(*flags)[0] == 0

    @look(80)
    @hypothesis.given(
        st.one_of(
            edited(json.loads(original), json_values()).map(lambda value: json.dumps(value).encode()),
            mutations(original),
        )
    )
    def resume(data):
        (out / "manifest.json").write_bytes(data)
        status, err = command(*flags)
        check(status, err)
        assert (out / "manifest.json").read_bytes() == data

    resume()


def test_fuzz_checkpoints(releases, tmp_path, monkeypatch):
    """A run that goes on from a damaged checkpoint stops in one line, without a manifest."""
    out = tmp_path / "out"
    flags = ["--input", releases / "in.jsonl", "--noise_key", tmp_path / "k", "--max_n", "2", "--policy", "paper"]
    write_key(tmp_path / "k", b"k" * 32)
    with monkeypatch.context() as patch:
        keep_checkpoints(patch)
        assert extract(out, *flags) == 0
    checkpoint = checkpoints_of(out)[0]
    valid = checkpoint.read_bytes()

    @look(4)
    @hypothesis.given(mutations(valid).filter(lambda data: data != valid))
    def resume(data):
        (out / "manifest.json").unlink(missing_ok=True)
        checkpoint.write_bytes(data)
        words = map(str, [*flags, "--resume"])
        status, err = command("extract", "--quiet", "--output", str(out), *BUDGET, *words)
        check(status, err, out)
        assert status == 1
        assert "noise_key" in err

    resume()


BLOCK = CellBlock(
    keys=np.arange(5000, dtype=np.uint64),  # large enough to be packed
    weight=np.arange(5000),
    token_offsets=np.array([0, 3, 3, 9]),
    token_bytes=np.frombuffer(b"abcdefghi", np.uint8),
).to_bytes()
document = json.loads(BLOCK[12 : 12 + int.from_bytes(BLOCK[8:12], "little")])


def with_header(value):
    header = json.dumps(value).encode()
    header += b" " * (-(len(header) + 4) % 8)
    return BLOCK[:8] + len(header).to_bytes(4, "little") + header + BLOCK[12 + int.from_bytes(BLOCK[8:12], "little") :]


def test_fuzz_blocks():
    """Bytes of a block that are damaged, or whose header claims anything: a ValueError, or a block of plain numbers."""
    assert with_header(document) == BLOCK
    read = 0
    claims = st.sampled_from(
        ["O", "|O", "V16", "<U9999", "<f8", "|S0", "M8", "Level", 2**62, -1, [-1], [2**40, 2**40], [0]]
    )

    @look(500)
    @hypothesis.given(st.one_of(mutations(BLOCK), edited(document, claims | json_values()).map(with_header)))
    def decode(data):
        nonlocal read
        try:
            with no_hang(5):
                block = Block.from_bytes(data)
        except ValueError:
            return
        read += 1
        for field in dataclasses.fields(block):
            value = getattr(block, field.name)
            assert type(value) in (int, float) if field.type in (int, float) else isinstance(value, np.ndarray)
            assert not np.asarray(value).dtype.hasobject

    decode()
    assert read > 0

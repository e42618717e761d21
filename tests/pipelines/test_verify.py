"""`dpngram verify`: a release as it was written passes, and every change to it is told in one line."""

import hashlib
import json
import re
import shutil

import pytest
from helpers.runs import BUDGET, extract, files, small_corpus, write

from dpngram.pipelines.cli import main
from dpngram.pipelines.io.encoding import OUTPUT_FORMATS
from dpngram.pipelines.verify import find_problems


def verify(directory):
    try:
        return main(["verify", str(directory)])
    except SystemExit as stop:
        return stop.code


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    """The same release in every format."""
    directory = tmp_path_factory.mktemp("verify")
    source = write(directory / "in.jsonl", small_corpus(200))
    for name in OUTPUT_FORMATS:
        assert extract(directory / name, "--input", source, "--output_format", name, "--release", "of May") == 0
    return directory


@pytest.mark.parametrize("name", OUTPUT_FORMATS)
def test_a_release_as_it_was_written(releases, name, capsys):
    assert verify(releases / name) == 0
    out = capsys.readouterr().out
    assert "Guarantee: User-level (20, 0.1)-differential privacy" in out
    assert "A user is: field user, else author\n" in out
    assert "Text:      field text, else content\n" in out
    assert "Label:     of May\n" in out
    assert "Tokenizer: words/" in out
    assert out.endswith("All checks passed: checksums, rows, plan, and no other file.\n")


def test_an_empty_release(tmp_path):
    assert extract(tmp_path / "out", "--input", write(tmp_path / "in.jsonl", [{"user": "u", "text": "a b"}])) == 0
    assert verify(tmp_path / "out") == 0


@pytest.fixture
def release(releases, tmp_path):
    shutil.copytree(releases / "jsonl", tmp_path / "release")
    return tmp_path / "release"


def change_rows(release, change, n=2):
    """Rows that were changed by somebody who also computes the checksum."""
    path = release / f"ngrams-{n:02d}.jsonl"
    lines = change(path.read_text().splitlines(keepends=True))
    path.write_text("".join(lines))
    manifest = json.loads((release / "manifest.json").read_text())
    level = manifest["levels"][n - 1]
    level["sha256"], level["bytes"] = hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size
    (release / "manifest.json").write_text(json.dumps(manifest))
    (release / "report.html").unlink(missing_ok=True)


ROWS = {
    "must have \\d+ rows, and has": lambda lines: lines[:-1],
    "must be sorted by tokens": lambda lines: [*lines[1:], lines[0]],
    "each n-gram once": lambda lines: [lines[0], lines[0], *lines[2:]],
    "must have 2 tokens": lambda lines: [*lines[:-1], '{"n": 2, "tokens": ["zz"], "weight": 1.0}\n'],
    "does not have the columns": lambda lines: [*lines[:-1], '{"n": 2}\n'],
    "must have phrases that are their tokens": lambda lines: [
        lines[0].replace('"phrase": "', '"phrase": "x'),
        *lines[1:],
    ],
    "weights that are finite": lambda lines: [*lines[:-1], lines[-1].replace('"weight": ', '"weight": NaN, "x": ')],
    "whose last token, were not released": lambda lines: [
        *lines[:-1],
        '{"n": 2, "tokens": ["zz", "zz"], "weight": 1.0}\n',
    ],
}


@pytest.mark.parametrize("words", ROWS)
def test_rows_that_are_not_those_of_a_release(release, words, capsys):
    change_rows(release, ROWS[words])
    assert verify(release) == 1
    error = capsys.readouterr().err
    assert re.search(words, error)
    assert error.count("\n") == len(error.splitlines()) <= 3


MANIFEST = {
    "the plan does not hold: the noise of this plan does not give \\(10, ": lambda m: m["plan"].update(epsilon=10.0),
    "the plan does not hold: plan fields must be": lambda m: m["plan"].pop("eta"),
    "guarantee in words is not that of the plan": lambda m: m.update(guarantee="private"),
    "the noise of the levels is not": lambda m: m["levels"][1].update(sigma=9.0),
    "threshold of level 1 is below": lambda m: m["levels"][0].update(rho=0.5),
    "must be 1, 2, ... and add up": lambda m: m.update(released=1),
    "must have 'levels' of the right type": lambda m: m.pop("levels"),
    "must have 'sha256' of the right type": lambda m: m["levels"][0].update(sha256=5),
    "a format that this version": lambda m: m.update(format="xml"),
    "the file of length 1 must be ngrams-01.jsonl": lambda m: m["levels"][0].update(file="../x"),
}


@pytest.mark.parametrize("words", MANIFEST)
def test_manifests_that_do_not_hold(release, words, capsys):
    path = release / "manifest.json"
    manifest = json.loads(path.read_text())
    MANIFEST[words](manifest)
    path.write_text(json.dumps(manifest))
    (release / "report.html").unlink(missing_ok=True)
    assert verify(release) == 1
    assert re.search(words, capsys.readouterr().err)


def test_files_that_were_changed_lost_or_added(release, capsys):
    (release / "ngrams-01.jsonl").write_text("")
    (release / "ngrams-02.jsonl").unlink()
    (release / "notes.txt").touch()
    assert verify(release) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.removeprefix("dpngram verify: error: ") for line in lines] == [
        "ngrams-01.jsonl is not as it was written: its checksum differs.",
        "ngrams-02.jsonl cannot be read (FileNotFoundError).",
        "1 file(s) here are not of the release, and must not be published with it: 'notes.txt'",
    ]


def test_another_page(release, capsys):
    (release / "report.html").unlink()  # may be left out
    assert verify(release) == 0
    (release / "report.html").write_text("<p>nothing</p>")
    assert verify(release) == 1
    assert "report.html is not the page of this release" in capsys.readouterr().err
    assert main(["report", str(release)]) == 0
    assert verify(release) == 0


@pytest.mark.parametrize("content", ["", "[]", "{}", "null", '{"levels": 5}', "x"])
def test_no_release(tmp_path, content, capsys):
    (tmp_path / "manifest.json").write_text(content)
    assert verify(tmp_path) == 1
    assert capsys.readouterr().err.startswith("dpngram verify: error: ")
    assert verify(tmp_path / "nowhere") == 1
    assert "no finished release" in capsys.readouterr().err


def test_the_manifest_is_a_function_of_the_release(tmp_path, key):
    """No time, no machine: the same run again writes the same bytes. Times and versions are in the notes."""
    source = write(tmp_path / "in.jsonl", small_corpus(60))
    for name in ("a", "b"):
        assert extract(tmp_path / name, "--input", source, "--noise_key", key) == 0
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert json.loads(files(tmp_path / "a")["manifest.json"])["algorithm"] >= 2
    notes = json.loads((tmp_path / "a.operator.json").read_text())
    assert notes["started"] <= notes["finished"]
    assert set(notes["versions"]) >= {"dpngram", "python", "apache-beam"}


def test_what_a_user_was(tmp_path, capsys):
    (tmp_path / "in.txt").write_text("a b\n" * 50)
    words = ["--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "out"), "--quiet", *BUDGET]
    assert main(["extract", *words]) == 0
    assert verify(tmp_path / "out") == 0
    assert "A user is: each line\nText:      the line\n" in capsys.readouterr().out
    assert list(find_problems(str(tmp_path / "out"), [])) == ["manifest.json must be a JSON object."]


def test_a_release_with_a_public_vocabulary(tmp_path, capsys):
    """Its words are not released, verify says so, and a forged manifest is found out."""
    rows = [{"user": f"u{i}", "text": "see you tomorrow at noon"} for i in range(400)]
    words = tmp_path / "words.txt"
    words.write_text("See\nyou\ntomorrow\nnever said\n")
    release = tmp_path / "out"
    more = ("--input", write(tmp_path / "in.jsonl", rows), "--policy", "plus", "--vocabulary", str(words))
    assert extract(release, *more) == 0
    assert (release / "ngrams-01.jsonl").read_bytes() == b""
    assert '["see", "you"]' in (release / "ngrams-02.jsonl").read_text()
    assert "noon" not in (release / "ngrams-02.jsonl").read_text()
    assert "public words" in (release / "report.html").read_text()
    assert verify(release) == 0
    assert "Words:     a public list of 5 tokens (sha256 " in capsys.readouterr().out

    manifest = json.loads((release / "manifest.json").read_text())
    assert manifest["levels"][0]["rho"] is None
    (release / "report.html").unlink()
    for change, expected in (
        (lambda m: m["settings"].pop("vocabulary"), "words of a public vocabulary must be named"),
        (lambda m: m["settings"]["vocabulary"].update(words=2), "but the vocabulary has 2"),
        (lambda m: m["levels"][0].update(rho=3.5), "a level has no threshold"),
    ):
        forged = json.loads(json.dumps(manifest))
        change(forged)
        assert any(expected in problem for problem in find_problems(str(release), forged))


def test_an_empty_release_with_a_public_vocabulary(tmp_path):
    """All numbers of the manifest can be written, and read again."""
    words = tmp_path / "words.txt"
    words.write_text("see\nyou\n")
    source = write(tmp_path / "in.jsonl", [{"user": "u", "text": "a b"}])
    assert extract(tmp_path / "out", "--input", source, "--policy", "plus", "--vocabulary", str(words)) == 0
    assert verify(tmp_path / "out") == 0
    assert "Infinity" not in (tmp_path / "out" / "manifest.json").read_text()

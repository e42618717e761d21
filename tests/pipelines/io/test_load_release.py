"""`read_release`: every format gives the same table, and what is not a finished release is refused."""

import hashlib
import json
import shutil

import pyarrow as pa
import pytest
from helpers.runs import BUDGET, extract, write

import dpngram
from dpngram.pipelines.io.encoding import OUTPUT_FORMATS

WORDS = ["été", "东京", 'q"', "x,y", "l\nm", "a b", "back\\slash", "NULL", "5"]
POSTS = [{"user": f"u{i}", "words": WORDS[i % 3 * 3 :][:3]} for i in range(400)]
COLUMNS = pa.schema({"n": pa.int64(), "phrase": pa.string(), "tokens": pa.list_(pa.string()), "weight": pa.float64()})


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    """The same release in every format; one length has no rows."""
    directory = tmp_path_factory.mktemp("loaded")
    flags = ["--input", write(directory / "in.jsonl", POSTS), "--tokens_field", "words", "--policy", "paper"]
    flags += ["--max_n", "4", "--noise_key", directory / "noise.key"]
    (directory / "noise.key").write_bytes(bytes(range(32)))
    (directory / "noise.key").chmod(0o600)
    for name in OUTPUT_FORMATS:
        assert extract(directory / name, *flags, "--output_format", name) == 0
    return directory


def test_every_format_gives_the_table_of_extract_frame(releases):
    budget = dict(zip([flag.removeprefix("--") for flag in BUDGET[::2]], map(float, BUDGET[1::2]), strict=True))
    budget |= {"max_n": 4, "max_contributions": 12, "policy": "paper"}
    frame = pa.table({"user": [row["user"] for row in POSTS], "text": [row["words"] for row in POSTS]})
    expected = dpngram.extract_frame(frame, user="user", text="text", noise_key=str(releases / "noise.key"), **budget)
    assert expected.schema == COLUMNS
    assert set(expected["n"].to_pylist()) == {1, 2, 3}
    assert "x,y l\nm a b" in expected["phrase"].to_pylist()
    for name in set(OUTPUT_FORMATS) - {"vocab"}:
        found = dpngram.read_release(releases / name)
        assert found.schema == COLUMNS
        assert found.equals(expected), name
        assert dpngram.read_release(f"{releases / name}/").equals(expected)


def test_the_phrase_is_the_tokens_joined(releases):
    table = dpngram.read_release(releases / "jsonl").to_pylist()
    assert [row["phrase"] for row in table] == [" ".join(row["tokens"]) for row in table]
    assert [(row["n"], [word.encode() for word in row["tokens"]]) for row in table] == sorted(
        (len(row["tokens"]), [word.encode() for word in row["tokens"]]) for row in table
    )


@pytest.mark.parametrize("name", sorted(set(OUTPUT_FORMATS) - {"vocab"}))
def test_a_release_without_any_row(tmp_path, name):
    source = write(tmp_path / "in.jsonl", [{"user": "u", "text": "a b"}])
    assert extract(tmp_path / "out", "--input", source, "--output_format", name) == 0
    found = dpngram.read_release(tmp_path / "out")
    assert (found.schema, len(found)) == (COLUMNS, 0)


@pytest.fixture
def release(releases, tmp_path):
    shutil.copytree(releases / "jsonl", tmp_path / "release")
    return tmp_path / "release"


def forge(release, change):
    """A manifest that somebody changed."""
    path = release / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def test_rows_of_version_0_1_have_no_phrase(release):
    expected = dpngram.read_release(release)
    for level in json.loads((release / "manifest.json").read_text())["levels"]:
        path = release / level["file"]
        rows = [json.loads(line) for line in path.read_text().split("\n") if line]
        data = "".join(
            json.dumps({"n": row["n"], "tokens": row["tokens"], "weight": row["weight"]}) + "\n" for row in rows
        )
        path.write_text(data)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        forge(release, lambda manifest, n=level["n"], digest=digest: manifest["levels"][n - 1].update(sha256=digest))
    assert dpngram.read_release(release).equals(expected)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda release: (release / "ngrams-02.jsonl").write_text(""), "ngrams-02.jsonl is not as it was written"),
        (lambda release: (release / "ngrams-02.jsonl").unlink(), r"ngrams-02.jsonl cannot be read \(FileNotFound"),
        (lambda release: (release / "manifest.json").unlink(), r"no finished release in '.*': no readable manifest"),
        (lambda release: (release / "manifest.json").write_text("[]"), "no finished release in"),
        (lambda release: forge(release, lambda m: m.update(format="xml")), "that this version of dpngram does not"),
        (lambda release: forge(release, lambda m: m.update(format="csv")), "does not have the columns"),
        (lambda release: forge(release, lambda m: m["levels"][1].update(file="../x.jsonl")), "no finished release"),
        (lambda release: forge(release, lambda m: m["levels"][1].update(n="x")), "does not have the columns"),
    ],
)
def test_what_is_not_a_release(release, change, words):
    change(release)
    with pytest.raises(dpngram.ParameterError, match=words):
        dpngram.read_release(release)


def test_a_vocabulary_has_no_weights(releases):
    with pytest.raises(dpngram.ParameterError, match="must have a release with weights, got one of the format vocab"):
        dpngram.read_release(releases / "vocab")

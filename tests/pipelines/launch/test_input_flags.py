"""Flags that say what is read."""

import argparse
import gzip
import json

import pytest
from helpers.keys import write_key
from helpers.runs import GOOD, extract, files, jsonl

from dpngram.accounting import ParameterError
from dpngram.pipelines.launch import input_flags
from dpngram.pipelines.launch.input_flags import check_apart, check_input, input_format_from_flags, new_directory


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--input_format", "csv", "--tokens_field", "x"], "--tokens_field is not supported with csv"),
        (["--input_format", "parquet", "--skip_header_lines", "1"], "skip_header_lines must be 0 with parquet"),
        (["--output_format", "xml"], "output_format must be one of"),
        (["--max_bad_fraction", "2"], "max_bad_fraction must be a number"),
        (["--resume"], "--resume needs --noise_key"),
        (["--input_format", "text", "--sentences"], "sentences must be off"),
        (["--tokenizer", "regex:("], "tokenizer regex must be"),
        (["--tokenizer", "no.such:thing"], "importable module:function"),
        (["--tokenizer", "huggingface:/no/such/file"], "tokenizer huggingface"),
    ],
)
def test_flags_that_cannot_be(tmp_path, capsys, flags, message):
    (tmp_path / "in.jsonl").write_bytes(jsonl(GOOD[:5]))
    assert extract(tmp_path / "out", "--input", tmp_path / "in.jsonl", *flags) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def given(*patterns, **more):
    names = ["input_format", "user_field", "text_field", "tokens_field", "bad_records"]
    return argparse.Namespace(input=[*map(str, patterns)], skip_header_lines=0, **{**dict.fromkeys(names), **more})


def test_the_format_follows_the_suffix(tmp_path):
    """Of the pattern, or of the files that match it; what is given wins."""
    for name in ("part-0.csv", "part-1.csv.gz"):
        (tmp_path / name).write_bytes(b"user,text\n")
    (tmp_path / "_SUCCESS").write_bytes(b"")
    assert input_format_from_flags(given("nowhere/*.jsonl.gz", "a.json")).name == "jsonl"
    assert input_format_from_flags(given(tmp_path / "*")).name == "csv"
    assert input_format_from_flags(given(tmp_path / "part*", input_format="tsv")).name == "tsv"
    (tmp_path / "notes.md").write_text("x")
    with pytest.raises(ParameterError, match=r"input_format must be given: '\S+/notes.md' has none of the suffixes"):
        input_format_from_flags(given(tmp_path / "*"))
    with pytest.raises(ParameterError, match="input must be of one format"):
        input_format_from_flags(given("a.csv", "b.avro"))
    with pytest.raises(ParameterError, match="input must match at least one file"):
        input_format_from_flags(given(tmp_path / "none*"))


def test_the_same_release_with_and_without_the_format(tmp_path):
    write_key(tmp_path / "noise.key", b"k" * 32)
    (tmp_path / "in.ndjson.gz").write_bytes(gzip.compress(jsonl(GOOD)))
    flags = ["--input", tmp_path / "in.ndjson.gz", "--noise_key", tmp_path / "noise.key"]
    assert extract(tmp_path / "a", *flags) == 0
    assert extract(tmp_path / "b", *flags, "--input_format", "jsonl") == 0
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert json.loads(files(tmp_path / "a")["manifest.json"])["released"] > 0


def out_of_reach(*_):
    raise PermissionError("secret")


def test_a_machine_that_may_not_list_the_input(monkeypatch, capsys):
    """Where workers elsewhere read it, the run is not stopped; on this machine it is."""
    monkeypatch.setattr(input_flags, "match_files", out_of_reach)
    flags = given("gs://bucket/posts-*")
    form = input_format_from_flags(flags, here=False)
    assert form.name == "jsonl"
    assert check_input(flags, form, here=False) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[0].endswith("not looked at: this machine cannot list 'gs://bucket/posts-*' (PermissionError).")
    assert said[1].startswith("dpngram: note: input_format is taken to be jsonl")
    assert "secret" not in "".join(said)
    for act in (lambda: input_format_from_flags(flags), lambda: check_input(flags, form)):
        with pytest.raises(
            ParameterError, match=r"input must be a readable file or pattern, got .* \(PermissionError\)"
        ):
            act()
    assert input_format_from_flags(flags, look=False).name == "jsonl"  # a dry run
    assert check_input(flags, form, look=False) == 0


def test_a_machine_that_may_not_open_the_input(tmp_path, monkeypatch, capsys):
    (tmp_path / "in.jsonl").write_bytes(jsonl(GOOD))
    flags = given(tmp_path / "in.jsonl")
    form = input_format_from_flags(flags)
    monkeypatch.setattr("dpngram.pipelines.io.look._first_lines", out_of_reach)
    assert check_input(flags, form, here=False) == len(jsonl(GOOD))
    assert capsys.readouterr().err == (
        "dpngram: note: the input was not looked at: this machine cannot read it (PermissionError).\n"
    )
    with pytest.raises(ParameterError, match=r"input must be readable, but it is not \(PermissionError\)"):
        check_input(flags, form)


def test_a_directory_that_may_hold_some_files(tmp_path):
    (tmp_path / "bad-000001.jsonl").write_text("")
    with pytest.raises(ParameterError, match="bad_records must be a new or empty directory"):
        new_directory("bad_records", str(tmp_path))
    assert new_directory("bad_records", str(tmp_path), may_hold=r"bad-\d+\.jsonl") == str(tmp_path)
    (tmp_path / "mine").write_text("")
    with pytest.raises(ParameterError, match="bad_records must be a new or empty directory"):
        new_directory("bad_records", str(tmp_path), may_hold=r"bad-\d+\.jsonl")


def test_records_of_a_key_are_apart_from_the_output(tmp_path, monkeypatch):
    """They tell which windows had data. Records are made beside a link to the key, too."""
    (tmp_path / "out").mkdir()
    (tmp_path / "keys").mkdir()
    (tmp_path / "out" / "link").symlink_to(tmp_path / "keys" / "k")
    output, key = str(tmp_path / "out"), str(tmp_path / "keys" / "k")
    check_apart(output, noise_key=key, key_records=str(tmp_path / "records"))
    with pytest.raises(ParameterError, match="noise_key must not be in the output"):
        check_apart(output, noise_key=str(tmp_path / "out" / "link"))
    with pytest.raises(ParameterError, match="key_records must not be in the output"):
        check_apart(output, noise_key=key, key_records=str(tmp_path / "out" / "records"))
    monkeypatch.setenv("DPNGRAM_STATE", str(tmp_path / "out" / "state"))
    for name in (key, "env:KEY"):
        with pytest.raises(ParameterError, match="key_records must not be in the output"):
            check_apart(output, noise_key=name)
    check_apart(output, noise_key=None)
    for place in ("gs://bucket/out/records", "gs://bucket/out"):
        with pytest.raises(ParameterError, match="key_records must not be in the output"):
            check_apart("gs://bucket/out", noise_key="gs://bucket/k", key_records=place)


@pytest.mark.parametrize("name", ["o[1]", "o*", "o?"])
def test_paths_that_are_patterns(tmp_path, name):
    """`o[1]` matches the files of its neighbour `o1`: they would be deleted, and those of `o[1]` would stay."""
    with pytest.raises(ParameterError, match=r"output must be a path without \*, \? and \["):
        check_apart(str(tmp_path / name), noise_key=None)
    with pytest.raises(ParameterError, match="checkpoints must be a path without"):
        check_apart(str(tmp_path / "out"), noise_key=None, checkpoints=str(tmp_path / name))

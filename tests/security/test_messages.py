"""No error tells anything of the data: forty raise sites of ours, and other people's exceptions that quote it."""

import re
import traceback
from pathlib import Path

import pytest
from helpers.canaries import CANARIES, MARK, traces
from helpers.raise_sites import SITES
from helpers.runs import extract, notes_of, small_corpus
from helpers.runs import jsonl as body

from dpngram import accounting, pipelines, transforms
from dpngram.pipelines.launch.failures import failure_line

C = CANARIES[0]
OURS = {Path(package.__file__).resolve().parent for package in (accounting, transforms, pipelines)}


def test_forty_raise_sites(tmp_path, monkeypatch):
    """Text, cause and context of each; the sites are told apart by file and line."""
    places = {}
    for number, (name, provoke) in enumerate(SITES.items()):
        directory = tmp_path / str(number)
        directory.mkdir()
        with monkeypatch.context() as patch, pytest.raises(Exception) as caught:  # noqa: PT011 (any, as long as it says nothing)
            provoke(directory, patch)
        error = caught.value
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if OURS & {*Path(frame.filename).resolve().parents}
        ]
        assert frames, name
        if "raise" in (frames[-1].line or "raise"):
            places[frames[-1].filename, frames[-1].lineno] = name
        shown = error
        while shown is not None:
            assert traces(f"{shown} {shown!r} {shown.args!r} {getattr(shown, '__notes__', '')}") == [], name
            shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)
        assert traces(failure_line(error)) == [], name
    assert len(places) >= 40, sorted(set(SITES) - set(places.values()))


@pytest.mark.parametrize(
    "place",
    [
        "pipelines.io.parsing._json_block",
        "transforms.prepare_posts.make_posts",
        "transforms.group_users.concatenate_posts",
        "transforms.policies.plus.clip_grams",
        "transforms.noisy_threshold.threshold_cells",
        "transforms.add_spurious_grams.collect_tokens",
    ],
)
def test_a_run_that_dies_of_text_shows_none(tmp_path, monkeypatch, capfd, place):
    """Other people's code fails, and quotes what it failed on in our words: not without --verbose."""

    def quoting(*_args, **_more):
        raise TypeError(
            f"{C}\nParameterError: user must {C}\nNoiseKeyError: noise_key {C}\n{C}Error: [while running '{C}']"
        )

    monkeypatch.setattr(f"dpngram.{place}", quoting)
    (tmp_path / "in.jsonl").write_bytes(body(small_corpus(30)))
    assert extract(tmp_path / "out", "--input", tmp_path / "in.jsonl", "--max_n", "1") == 1
    said = capfd.readouterr()
    assert traces(said.out + said.err) == []
    # Which exception it was, a text can pretend; but only the name of one that exists is shown.
    assert re.search(r"the run failed in step \S+ \((TypeError|ParameterError|NoiseKeyError)\)", said.err)
    assert not (tmp_path / "out" / "manifest.json").exists()


class Panic(BaseException):
    """As Rust's panics are for Python: no Exception."""


def fragile(text):
    if text.startswith(MARK):
        raise (Panic, SystemExit, RecursionError)[len(text) % 3](f"cannot take {text}")
    return text.split()


def test_a_tokenizer_that_panics_on_a_text(tmp_path, monkeypatch, capfd):
    """One record must not fail the run, nor be quoted by it."""
    rows = small_corpus(40)
    hostile = [{"user": f"h{i}", "text": f"{CANARIES[i]}{'x' * i}"} for i in range(6)]
    (tmp_path / "in.jsonl").write_bytes(body([*rows, *hostile]))
    monkeypatch.setattr("json.fragile", fragile, raising=False)
    assert (
        extract(tmp_path / "out", "--input", tmp_path / "in.jsonl", "--tokenizer", "json:fragile", "--max_n", "1") == 0
    )
    notes = notes_of(tmp_path / "out")
    assert notes["bad_records"] == {"tokenizer_failed": 6}
    said = capfd.readouterr()
    assert traces(said.out + said.err) == []

"""Flags of an extraction. The table of tokenizers makes the help, the template's form and Dataflow's check."""

import re
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from helpers.runs import extract

from dpngram.accounting import ParameterError
from dpngram.pipelines import compare
from dpngram.pipelines.extract import make_parser
from dpngram.pipelines.launch import dataflow
from dpngram.pipelines.launch.extraction_flags import extraction_arguments
from dpngram.pipelines.launch.stream_flags import stream_parser
from dpngram.pipelines.template import template_metadata
from dpngram.transforms.tokenizers import TOKENIZERS, TokenizerKind, tokenizer_forms
from dpngram.transforms.tokenizers.words import WHITESPACE

README = Path(__file__).parents[3] / "README.md"
BUDGET = ["--epsilon=4", "--delta=1e-6", "--max_n=2", "--max_contributions=5"]


@pytest.fixture
def new_tokenizer(monkeypatch):
    entry = TokenizerKind(
        form="merges:FILE", help="pairs of a file", make=lambda _: WHITESPACE, argument=".+", reads_file=True
    )
    monkeypatch.setitem(TOKENIZERS, "merges", entry)


def test_a_new_tokenizer_is_one_entry(new_tokenizer, tmp_path, monkeypatch):
    """It runs, every program shows it, and its file must be where workers can read it."""
    (tmp_path / "in.jsonl").write_text('{"user": "a", "text": "b"}\n')
    assert extract(tmp_path / "out", "--input", tmp_path / "in.jsonl", "--tokenizer", "merges:/data/file") == 0
    for parser in (make_parser(), stream_parser(), compare._make_parser()):
        assert "merges:FILE (pairs of a file)" in " ".join(parser.format_help().split())
    assert "merges:FILE" in tokenizer_forms()
    (parameter,) = [one for one in template_metadata()["parameters"] if one["name"] == "tokenizer"]
    assert re.fullmatch(parameter["regexes"][0], "merges:gs://some-bucket/file")
    assert not re.fullmatch(parameter["regexes"][0], "merges:/data/file")
    monkeypatch.setattr(dataflow.importlib.util, "find_spec", lambda name: True)
    cloud = ["--project=some-project", "--temp_location=gs://some-bucket/tmp", "--sdk_container_image=some-image"]
    key = "gcp-secret:projects/p/secrets/s"
    dataflow.check_dataflow(PipelineOptions(cloud), {}, key, "merges:gs://some-bucket/file")
    with pytest.raises(ParameterError, match=r"must be a file that workers can read \(merges:gs://...\)"):
        dataflow.check_dataflow(PipelineOptions(cloud), {}, key, "merges:/data/file")


def test_the_readme_names_every_tokenizer():
    (row,) = re.findall(r"^\| tokens \|.*$", README.read_text(), re.MULTILINE)
    places = [re.search(rf"(?<!\w){re.escape(kind.form)}(?!\w)", row) for kind in TOKENIZERS.values()]
    assert None not in places
    assert [place.start() for place in places] == sorted(place.start() for place in places)


def test_the_programs_share_their_flags():
    """What stands in several programs is the same flag, but for what the program is about."""
    parsers = {"extract": make_parser(), "stream": stream_parser(), "compare": compare._make_parser()}
    flags = {name: {flag.name: flag for flag in parser.flags} for name, parser in parsers.items()}
    for shared in ("tokenizer", "sentences", "epsilon", "max_contributions", "verbose"):
        assert flags["extract"][shared] == flags["stream"][shared] == flags["compare"][shared]
    for shared in ("input_format", "max_bad_fraction", "bad_records", "skip_header_lines", "tokens_field"):
        assert flags["extract"][shared] == flags["compare"][shared]
    for shared in ("output_format", "pruning", "policy", "windows"):
        assert flags["extract"][shared] == flags["stream"][shared]


def test_arguments_for_the_transforms():
    given, _ = make_parser().parse_known_args([*BUDGET, "--input=in", "--output=out", "--tokenizer=whitespace"])
    assert extraction_arguments(given, 1 << 30) == {
        "tokenizer": "whitespace",
        "sentences": False,
        "pruning": "both",
        "noise_key": None,
        "key_records": None,
        "release": "",
        "shards": 256,
    }
    given, _ = compare._make_parser().parse_known_args([*BUDGET, "--input=in", "--output=out", "--shards=7"])
    arguments = extraction_arguments(given, 1 << 30)
    assert arguments["shards"] == 7
    assert "pruning" not in arguments

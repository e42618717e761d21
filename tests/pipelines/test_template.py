"""The Flex Template: its metadata are the program's flags, and its values become them again."""

import json
import re
from pathlib import Path

import pytest

from dpngram.accounting import POLICIES, ParameterError
from dpngram.pipelines import template
from dpngram.pipelines.extract import make_parser
from dpngram.pipelines.io.encoding import OUTPUT_FORMATS
from dpngram.pipelines.io.input_formats import INPUT_FORMATS
from dpngram.pipelines.launch.flags import plan_from_flags
from dpngram.pipelines.template import command_line, launch, template_metadata

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "templates" / "dataflow"
PARAMETERS = {
    parameter["name"]: parameter for parameter in json.loads((FOLDER / "metadata.json").read_text())["parameters"]
}
BUDGET = {"epsilon": "4", "delta": "1e-7", "max_n": "3", "max_contributions": "50"}
BUCKET = "gs://some-bucket/posts-*.jsonl.gz"
# Values that are right, and values that are wrong, of every parameter that has a form.
VALUES = {
    "epsilon": (["4", "0.5", ".5", "1e1", "2."], ["four", "-1", "1,2", "", "4 "]),
    "delta": (["1e-7", "0.001", "1E-9"], ["1e-", "-1e-7", "e-7"]),
    "max_n": (["1", "9", "64"], ["9.5", "-1", "nine"]),
    "max_contributions": (["300", "300,200,100"], ["300,", ",300", "3.5", "many"]),
    "eta": (["0.01", "1e-3"], ["1%", "-0.1"]),
    "decay": (["1", "1.118"], ["x", "-1"]),
    "shares": (["1,1,2", "0.5,0.25,0.25"], ["1,,2", "a,b,c"]),
    "windows": (["1", "12"], ["1.5", "-2"]),
    "policy": (list(POLICIES), ["other", "Plus", "paper2"]),
    "input": (
        [BUCKET, f"{BUCKET} gs://another-one/x", "some-project:dataset.posts"],
        ["/data/in.jsonl", "in.jsonl", "gs://", f"{BUCKET} /data/in.jsonl", "dataset.posts"],
    ),
    "output": (["gs://some-bucket/release"], ["release", "/release", "gs://some-bucket", "s3://some-bucket/release"]),
    "bad_records": (["gs://some-bucket/bad"], ["bad"]),
    "deny": (["gs://some-bucket/deny.txt"], ["deny.txt"]),
    "checkpoints": (["gs://some-bucket/release.checkpoints"], ["release.checkpoints"]),
    "key_records": (["gs://some-bucket/records"], ["records", "/records"]),
    "output_bigquery": (["some-project:dataset.grams"], ["grams", "gs://some-bucket/grams"]),
    "noise_key": (
        [
            "gcp-secret:projects/p/secrets/s",
            "gcp-secret:projects/p/secrets/s/versions/3",
            "file:gs://some-bucket/k.key",
        ],
        ["env:KEY", "file:/tmp/k.key", "k.key", "gcp-secret:", ""],
    ),
    "tokenizer": (
        ["words", "whitespace", r"regex:\w+ ?", "huggingface:gs://some-bucket/t.json", "my_package.tokens:split"],
        ["word", "huggingface:", "regex:", "huggingface:/tmp/t.json"],
    ),
    "vocabulary": (["tokenizer", "gs://some-bucket/words.txt"], ["/tmp/words.txt", "words"]),
    "input_format": (list(INPUT_FORMATS), ["json", "JSONL"]),
    "output_format": (list(OUTPUT_FORMATS), ["xml"]),
    "pruning": (["both", "single"], ["none"]),
    "skip_header_lines": (["0", "7"], ["-1", "x"]),
    "max_bad_fraction": (["0", "0.01", "1"], ["1%", "-1"]),
    "users": (["16", "50000"], ["1e3", "-1"]),
    "shards": (["16", "4096"], ["1e3", "-1"]),
    "overwrite": (["true", "false"], ["yes", "1", "True "]),
    "resume": (["true", "false"], ["on"]),
    "sentences": (["true", "false"], ["2"]),
}


def matches(name, value):
    return all(re.fullmatch(form, value) for form in PARAMETERS[name]["regexes"])


def test_metadata_is_made_from_the_flags():
    """If this fails: python -m dpngram.pipelines.template > templates/dataflow/metadata.json"""
    assert (FOLDER / "metadata.json").read_text() == json.dumps(template_metadata(), indent=2) + "\n"


def test_every_flag_is_a_parameter():
    actions = {action.dest: action for action in make_parser()._actions}
    assert set(actions) - set(PARAMETERS) == {
        *("budget", "help", "ledger", "memory", "operator_notes", "quiet", "scratch", "verbose")
    }
    assert set(PARAMETERS) <= set(actions)
    for name, parameter in PARAMETERS.items():
        assert f"--{name}" in actions[name].option_strings
        assert parameter["isOptional"] is (not actions[name].required and name != "noise_key")
        assert parameter["label"]
        assert parameter["helpText"].endswith(".")
        if actions[name].default not in (None, False, ""):
            assert matches(name, str(actions[name].default)), name  # a default can be typed in


def test_forms():
    assert set(VALUES) == {name for name, parameter in PARAMETERS.items() if "regexes" in parameter}
    assert set(PARAMETERS) - set(VALUES) == {"user_field", "text_field", "tokens_field", "release"}
    for name, (right, wrong) in VALUES.items():
        assert [value for value in right if not matches(name, value)] == [], name
        assert [value for value in wrong if matches(name, value)] == [], name


@pytest.mark.parametrize(
    "name", ["epsilon", "delta", "max_n", "max_contributions", "eta", "decay", "shares", "windows"]
)
def test_the_program_agrees_about_numbers(name):
    """What a form lets through is a number to the program, too; what it refuses, the program refuses."""
    right, wrong = VALUES[name]
    for value in [value for value in right if value not in ("9", "64", "1")]:
        policy = "paper" if "," in value or name == "shares" else "plus"
        make_plan(**{**BUDGET, name: value, "policy": policy})
    for value in [value for value in wrong if value.strip() == value != ""]:
        with pytest.raises(ParameterError):
            make_plan(**{**BUDGET, name: value})


def make_plan(**values):
    fixed = ["--input=gs://some-bucket/in", "--output=gs://some-bucket/out"]
    flags, rest = make_parser().parse_known_args([*fixed, *(f"--{name}={value}" for name, value in values.items())])
    assert rest == []
    return plan_from_flags(flags)


def test_values_become_flags():
    given = ["--input=gs://some-bucket/a gs://some-bucket/b*", "--overwrite=true", "--sentences=false", "--resume="]
    given += [
        "--tokens_field=",
        "--epsilon=4",
        "--runner=DataflowRunner",
        "--streaming",
        "--labels=a=b",
        "--project",
        "p",
    ]
    assert command_line(given) == [
        "--input=gs://some-bucket/a",
        "--input=gs://some-bucket/b*",
        "--overwrite",
        "--epsilon=4",
        "--runner=DataflowRunner",
        "--streaming",
        "--labels=a=b",
        "--project",
        "p",
    ]


def test_a_switch_is_true_or_false(capsys):
    assert launch(["--overwrite=yes"]) == 2
    assert capsys.readouterr().err == "dpngram extract: error: overwrite must be true or false, got 'yes'.\n"


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ([], ["--sdk_container_image=some/image"]),
        (["--sdk_container_image=other"], []),
        (["--setup_file=./setup.py"], []),
    ],
)
def test_workers_run_the_image_of_the_launcher(given, added, monkeypatch):
    seen = []
    monkeypatch.setattr(template, "run", lambda line: seen.append(line) or 0)
    monkeypatch.setenv(template.IMAGE_VARIABLE, "some/image")
    assert launch(["--epsilon=1", *given]) == 0
    monkeypatch.delenv(template.IMAGE_VARIABLE)
    assert launch(["--epsilon=1", *given]) == 0
    assert seen == [["--epsilon=1", *given, *added], ["--epsilon=1", *given]]


def test_the_image_has_what_it_copies():
    """Docker does not run in the tests; what can be wrong in the file without it is looked at."""
    lines = (FOLDER / "Dockerfile").read_text().splitlines()
    copied = [word for line in lines if re.match(r"COPY (?!--)", line) for word in line.split()[1:-1]]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert {"setup.py", "README.md", "package", "accounting", "transforms", "pipelines"} <= set(copied)
    (beam,) = [line.partition("=")[2] for line in lines if line.startswith("ARG BEAM=")]
    assert beam == "2.77.0"  # the newest that tests have run on
    assert f"ENV {template.IMAGE_VARIABLE}=${{IMAGE}}" in lines
    assert "ENV FLEX_TEMPLATE_PYTHON_PY_FILE=/template/main.py" in lines


def test_metadata_is_what_the_service_knows():
    templates = pytest.importorskip(
        "google.cloud.dataflow",
        reason="needs the extra gcp, of a Beam that sends jobs with google-cloud-dataflow-client",
    )
    parsed = templates.TemplateMetadata.from_json((FOLDER / "metadata.json").read_text())  # no unknown field
    assert [parameter.name for parameter in parsed.parameters] == list(PARAMETERS)
    assert parsed.parameters[0].regexes == PARAMETERS["epsilon"]["regexes"]

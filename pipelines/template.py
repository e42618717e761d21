"""`dpngram extract` as a Dataflow Flex Template: its parameters, made from the real flags, and its launcher.

    python -m dpngram.pipelines.template > templates/dataflow/metadata.json

A template passes NAME=VALUE only, so switches take true or false, and several inputs stand in one value.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from dpngram.accounting import POLICIES, ParameterError
from dpngram.pipelines.extract import make_parser, run
from dpngram.pipelines.io.encoding import OUTPUT_FORMATS
from dpngram.pipelines.io.reading import INPUT_FORMATS
from dpngram.pipelines.launch.flags import number_list, number_or_text, print_error
from dpngram.transforms.validity_filter import PRUNINGS

__all__ = ["command_line", "launch", "template_metadata"]

IMAGE_VARIABLE = "DPNGRAM_IMAGE"  # set in the image: its own name, for the workers
# --verbose may show text of the data in a log that many can read; --quiet has nobody to spare.
_LEFT_OUT = ("help", "quiet", "verbose")
# Optional for a local run, which makes its own key; workers on other machines cannot share one that nobody named.
_NEEDED = ("noise_key",)
_NUMBER = r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?"
_WHOLE_NUMBERS = ("max_n", "windows", "skip_header_lines", "shards")
_BUCKET_PATH = r"gs://[a-z0-9][-_a-z0-9.]+[a-z0-9]/\S*"
_TABLE = r"[-a-z0-9:.]+:[A-Za-z0-9_]+\.[-\w]+"
_FORMS = {
    "max_contributions": r"[0-9]+(,[0-9]+)*",
    "shares": rf"{_NUMBER}(,{_NUMBER})*",
    "input": rf"{_BUCKET_PATH}( {_BUCKET_PATH})*|{_TABLE}( {_TABLE})*",
    "output": _BUCKET_PATH,
    "bad_records": _BUCKET_PATH,
    "output_bigquery": _TABLE,
    "noise_key": rf"gcp-secret:projects/\S+/secrets/\S+|(file:)?{_BUCKET_PATH}",
    "tokenizer": rf"words|whitespace|regex:.+|huggingface:{_BUCKET_PATH}|[\w.]+:\w+",
    "input_format": "|".join(INPUT_FORMATS),
    "output_format": "|".join(OUTPUT_FORMATS),
    "pruning": "|".join(PRUNINGS),
    "policy": "|".join(POLICIES),
}
_HELP = {
    "input": "file or pattern (gs://...), or a BigQuery table; several with a space between",
    "noise_key": "gcp-secret:projects/PROJECT/secrets/NAME, or file:gs://BUCKET/NAME.key, which is made if it is not "
    "there; one key is for one release",
}


def template_metadata() -> dict[str, Any]:
    """The content of metadata.json."""
    return {
        "name": "dpngram extract",
        "description": "Release n-grams from private text under user-level differential privacy.",
        "parameters": [_parameter(action) for action in _actions().values()],
    }


def command_line(words: Sequence[str]) -> list[str]:
    """The flags of `dpngram extract` from a template's NAME=VALUE; what is not ours stays as it is.

    An empty value is a parameter that nobody filled in.
    """
    actions, line = _actions(), []
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        action = actions.get(name)
        if action is None or not equals:
            line.append(word)
        elif _is_switch(action):
            if value.lower() not in ("true", "false", ""):
                raise ParameterError(f"{name} must be true or false, got {value!r:.80}.")
            line += [f"--{name}"] if value.lower() == "true" else []
        elif name == "input":
            line += [f"--input={path}" for path in value.split()]
        elif value:
            line.append(word)
    return line


def launch(words: Sequence[str]) -> int:
    """What the launcher of the template runs. Unless told otherwise, workers run the image that it runs in."""
    try:
        line = command_line(words)
    except ParameterError as error:
        return print_error("dpngram extract", str(error), status=2)
    image = os.environ.get(IMAGE_VARIABLE)
    if image and not any(word.startswith(("--sdk_container_image", "--setup_file")) for word in line):
        line.append(f"--sdk_container_image={image}")
    return run(line)


def _actions() -> dict[str, argparse.Action]:
    return {action.dest: action for action in make_parser()._actions if action.dest not in _LEFT_OUT}


def _is_switch(action: argparse.Action) -> bool:
    return action.nargs == 0


def _parameter(action: argparse.Action) -> dict[str, Any]:
    name = action.dest
    text = _HELP.get(name, action.help or "")
    parameter: dict[str, Any] = {
        "name": name,
        "label": name.replace("_", " ").capitalize(),
        "helpText": f"{text[:1].upper()}{text[1:]}.",
        "isOptional": not (action.required or name in _NEEDED),
    }
    form = _form(action)
    if form is not None:
        parameter["regexes"] = [f"^({form})$"]
    return parameter


def _form(action: argparse.Action) -> str | None:
    """What a value looks like, where it cannot be any text; the program itself checks ranges."""
    if _is_switch(action):
        return "true|false"
    if action.dest in _FORMS:
        return _FORMS[action.dest]
    if action.dest in _WHOLE_NUMBERS:
        return "[0-9]+"
    if action.type is number_or_text:
        return _NUMBER
    if action.type is number_list:
        raise NotImplementedError(f"{action.dest} needs a form of its own.")
    return None


if __name__ == "__main__":
    sys.stdout.write(json.dumps(template_metadata(), indent=2) + "\n")

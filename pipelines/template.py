"""`dpngram extract` as a Dataflow Flex Template: its parameters, made from the real flags, and its launcher.

    python -m dpngram.pipelines.template > templates/dataflow/metadata.json

A template passes NAME=VALUE only. So a switch takes true or false, and several inputs are one value with spaces.
"""

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from dpngram.accounting import ParameterError
from dpngram.pipelines.extract import make_parser, run
from dpngram.pipelines.io.input_formats import INPUT_FORMATS, TableReader
from dpngram.pipelines.launch.dataflow import BUCKET
from dpngram.pipelines.launch.flags import Flag, Kind, print_error
from dpngram.transforms.tokenizers import tokenizer_pattern
from dpngram.transforms.vocabulary import OF_TOKENIZER

__all__ = ["command_line", "launch", "template_metadata"]

IMAGE_VARIABLE = "DPNGRAM_IMAGE"  # set in the image: its own name, for the workers
# --verbose may show text of the data in a log that many people can read; --quiet has no effect in a template, and the
# launcher of a template does not wait for the counts that go into the operator's notes. A ledger
# is a file that can be locked and that stays; the launcher has none. --memory and --scratch are for local runs.
_LEFT_OUT = ("budget", "ledger", "memory", "operator_notes", "quiet", "scratch", "verbose")
# Optional for a local run, which makes a fresh key; workers on other machines cannot share a key without a name.
_NEEDED = ("noise_key",)
_NUMBER = r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?"
_BUCKET_PATH = rf"{BUCKET}\S*"
_KINDS = {
    Kind.SWITCH: "true|false",
    Kind.NUMBER: _NUMBER,
    Kind.WHOLE_NUMBER: "[0-9]+",
    Kind.NUMBERS: rf"{_NUMBER}(,{_NUMBER})*",
    Kind.WHOLE_NUMBERS: "[0-9]+(,[0-9]+)*",
    Kind.PATH: _BUCKET_PATH,
}
_HELP = {
    "input": "file or pattern (gs://...), or table; several with a space between",
    "noise_key": "gcp-secret:projects/PROJECT/secrets/NAME, or file:gs://BUCKET/NAME.key, which is made if it is not "
    "there; one key is for one release",
}


def template_metadata() -> dict[str, Any]:
    """The content of metadata.json."""
    return {
        "name": "dpngram extract",
        "description": "Release n-grams from private text under user-level differential privacy.",
        "parameters": [_parameter(flag) for flag in _flags().values()],
    }


def command_line(words: Sequence[str]) -> list[str]:
    """The flags of `dpngram extract` from a template's NAME=VALUE; what is not ours stays as it is.

    An empty value is a parameter that was not filled in.
    """
    flags, line = _flags(), []
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        flag = flags.get(name)
        if flag is None or not equals:
            line.append(word)
        elif flag.kind is Kind.SWITCH:
            if value.lower() not in ("true", "false", ""):
                raise ParameterError(f"{name} must be true or false, got {value!r:.80}.")
            line += [f"--{name}"] if value.lower() == "true" else []
        elif flag.several:
            line += [f"--{name}={path}" for path in value.split()]
        elif value:
            line.append(word)
    return line


def launch(words: Sequence[str]) -> int:
    """Runs in the launcher of the template. Workers get the image of the launcher, unless a flag names another."""
    try:
        line = command_line(words)
    except ParameterError as error:
        return print_error("dpngram extract", str(error), status=2)
    image = os.environ.get(IMAGE_VARIABLE)
    if image and not any(word.startswith(("--sdk_container_image", "--setup_file")) for word in line):
        line.append(f"--sdk_container_image={image}")
    return run(line)


def _flags() -> dict[str, Flag]:
    return {flag.name: flag for flag in make_parser().flags if flag.name not in _LEFT_OUT}


def _parameter(flag: Flag) -> dict[str, Any]:
    text = _HELP.get(flag.name, flag.arguments()["help"].replace("%%", "%"))
    parameter: dict[str, Any] = {
        "name": flag.name,
        "label": flag.name.replace("_", " ").capitalize(),
        "helpText": f"{text[:1].upper()}{text[1:]}.",
        "isOptional": not (flag.required or flag.name in _NEEDED),
    }
    pattern = _pattern(flag)
    if pattern is not None:
        parameter["regexes"] = [f"^({pattern})$"]
    return parameter


def _pattern(flag: Flag) -> str | None:
    """What a value looks like, where it cannot be any text; the program itself checks ranges.

    Workers run on other machines: files must be in buckets.
    """
    if flag.name == "input":
        tables = [reader.pattern for reader in INPUT_FORMATS.values() if isinstance(reader, TableReader)]
        return "|".join(f"{place}( {place})*" for place in [_BUCKET_PATH, *tables])
    if flag.name == "noise_key":
        return rf"gcp-secret:projects/\S+/secrets/\S+|(file:)?{_BUCKET_PATH}"
    if flag.name == "tokenizer":
        return tokenizer_pattern(_BUCKET_PATH)
    if flag.name == "vocabulary":
        return rf"{OF_TOKENIZER}|{_BUCKET_PATH}"
    if flag.choices:
        return "|".join(flag.choices)
    return flag.pattern or _KINDS.get(flag.kind)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(template_metadata(), indent=2) + "\n")

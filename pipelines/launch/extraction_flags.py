"""The flags that say how n-grams are extracted, the same for every program that does it."""

import argparse
from typing import Any

from dpngram.pipelines.io.encoding import OUTPUT_FORMATS, output_format_help
from dpngram.pipelines.launch.flags import Flag, Kind
from dpngram.pipelines.launch.scaling import default_shards
from dpngram.transforms.tokenizers import tokenizer_help
from dpngram.transforms.validity_filter import PRUNINGS

__all__ = [
    "deny_flag",
    "extraction_arguments",
    "extraction_flags",
    "output_format_flag",
    "pruning_flag",
    "screen_flags",
    "vocabulary_flag",
]


def extraction_flags(what: str, when: str, *, shards: int | None = None) -> list[Flag]:
    """Tokens, key and shards.

    Args:
        what: what the program makes: a release, a stream, a comparison.
        when: when to give a noise key.
        shards: the default; None: from the size of the input.
    """
    cut = "number of blocks that the users are divided into"
    return [
        Flag("tokenizer", f"one of: {tokenizer_help()}", default="words"),
        Flag("sentences", "n-grams do not cross the end of a sentence", Kind.SWITCH),
        Flag("noise_key", f"where the key of the noise is: file:PATH, env:NAME or gcp-secret:NAME; {when}"),
        Flag(
            "key_records",
            "directory that remembers what keys were used for, where all workers can write (always remembered: in "
            "$DPNGRAM_STATE on this machine, and beside a key file)",
            Kind.PATH,
            metavar="DIR",
        ),
        Flag("release", f"label of the {what}; every {what} with the same key needs another", default=""),
        Flag(
            "shards",
            cut if shards else f"{cut} (default: from the size of the input)",
            Kind.WHOLE_NUMBER,
            default=shards,
        ),
    ]


def pruning_flag() -> Flag:
    rules = "both: the first and the last n-1 tokens of a candidate were released; single: the first n-1 only"
    return Flag(
        "pruning",
        f"one of: {', '.join(PRUNINGS)} ({rules}); policy plus needs both",
        default="both",
        choices=PRUNINGS,
    )


def output_format_flag() -> Flag:
    return Flag("output_format", f"one of: {output_format_help()}", default="jsonl", choices=tuple(OUTPUT_FORMATS))


def deny_flag() -> Flag:
    return Flag(
        "deny",
        "file with a token or phrase on each line; n-grams that hold one of them are left out of the output. This is "
        "done after the release and changes no guarantee; the list must not be made by looking at the data",
        Kind.PATH,
        metavar="FILE",
    )


def vocabulary_flag() -> Flag:
    return Flag(
        "vocabulary",
        "file of words, one a line, that is public, or tokenizer for all tokens of a huggingface tokenizer: only these "
        "words take part, and level 1 costs hardly anything. They are not released again; the list must not be made by "
        "looking at the data (policy plus)",
        metavar="FILE",
    )


def screen_flags(*, progress: bool) -> list[Flag]:
    """What is shown while the program runs."""
    quiet = [Flag("quiet", "do not show progress, advice and doubts about the budget", Kind.SWITCH)] if progress else []
    return [*quiet, Flag("verbose", "show Beam's messages and tracebacks, which may quote the data", Kind.SWITCH)]


def extraction_arguments(flags: argparse.Namespace, input_bytes: int = 0, *, local: bool = False) -> dict[str, Any]:
    """The arguments of `ExtractLevels` and `CompareSystems` that these flags give.

    Args:
        flags: of `extraction_flags`.
        input_bytes: the likely size of the text.
        local: whether the run takes place in this process.
    """
    names = ("tokenizer", "sentences", "pruning", "noise_key", "key_records", "release")
    arguments = {name: getattr(flags, name) for name in names if name in flags}
    return {**arguments, "shards": default_shards(input_bytes, local=local) if flags.shards is None else flags.shards}

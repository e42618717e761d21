"""Beam's flags on our command line."""

import argparse
from collections.abc import Sequence

from apache_beam.options.pipeline_options import PipelineOptions

from dpngram.accounting import ParameterError
from dpngram.pipelines.launch.beam_internals import FLINK_FLAGS
from dpngram.pipelines.launch.dataflow import spell_dry_run
from dpngram.pipelines.launch.flags import suggestion

__all__ = ["beam_options"]


def beam_options(words: Sequence[str], ours: Sequence[str] = ()) -> PipelineOptions:
    """Beam's options from what is left of the command line; a flag that Beam does not know either is an error.

    Args:
        words: the command line without dpngram's flags.
        ours: the names of dpngram's flags, one of which may have been misspelt.
    """
    words = spell_dry_run(words)
    parser = _beam_parser()
    try:
        if parser.parse_known_args(words)[0].runner in ("FlinkRunner", "PortableRunner"):
            for name in FLINK_FLAGS:
                parser.add_argument(f"--{name}", nargs="?")  # some are switches
        _, unknown = parser.parse_known_args(words)
    except argparse.ArgumentError as error:
        raise ParameterError(f"flag must be valid for Beam: {error}") from None
    if unknown:
        meant = suggestion(unknown[0], [*ours, *vars(parser.parse_known_args([])[0])]) or "."
        raise ParameterError(f"flag must be one of dpngram's or Beam's, got {unknown[0]!r:.80}{meant}")
    return PipelineOptions(words)


def _beam_parser() -> argparse.ArgumentParser:
    """Beam's parser with all flags of Beam. Beam shows it to whoever may want to add some.

    The difference of `get_all_options` with and without unknown options would not do: it misses words that are not
    flags, and prints a page of usage where a value is wrong.
    """
    shown: list[argparse.ArgumentParser] = []
    PipelineOptions([]).get_all_options(add_extra_args_fn=shown.append)
    (parser,) = shown
    parser.exit_on_error = False  # an ArgumentError instead
    parser.allow_abbrev = False  # older versions of Beam take the beginning of a flag for the flag
    return parser

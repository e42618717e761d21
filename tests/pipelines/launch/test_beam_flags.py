"""Which words of a command line are Beam's."""

import pytest
from apache_beam.options.pipeline_options import DebugOptions, WorkerOptions

from dpngram.accounting import ParameterError
from dpngram.pipelines.launch.beam_flags import beam_options
from dpngram.pipelines.launch.beam_internals import FLINK_FLAGS


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--no_such_flag"], "--no_such_flag"),
        (["--no_such_flag=3"], "--no_such_flag=3"),
        (["--tokeniser", "words"], "--tokeniser"),
        (["--num_work=3"], "--num_work=3"),  # no abbreviations
        (["stray"], "stray"),
        (["--num_workers=2", "stray"], "stray"),
        (["-x", "3"], "-x"),
        (["-x"], "-x"),
        (["--", "--foo"], "--"),
        (["--state_backend=rocksdb"], "--state_backend=rocksdb"),  # Flink's, and this is not Flink
    ],
)
def test_words_that_nobody_knows(words, shown, capsys):
    with pytest.raises(ParameterError, match="flag must be one of dpngram's or Beam's") as caught:
        beam_options(words)
    assert repr(shown) in str(caught.value)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--num_workers", "many"], "argument --num_workers: invalid int value: 'many'"),
        (["--temp_location"], "argument --temp_location: expected one argument"),
        (["--direct_running_mode=other"], "argument --direct_running_mode: invalid choice"),
    ],
)
def test_values_that_beam_does_not_take(words, message, capsys):
    """One line, and not the page of usage that Beam prints."""
    with pytest.raises(ParameterError, match="flag must be valid for Beam") as caught:
        beam_options(words)
    assert message in str(caught.value)
    assert capsys.readouterr().err == ""


def test_flags_of_flink():
    words = [f"--{name}=1" for name in FLINK_FLAGS]
    assert len(words) == 18
    for runner in ("FlinkRunner", "PortableRunner"):
        beam_options(["--runner", runner, *words])


def test_values_reach_beam():
    options = beam_options(["--experiments=a", "--experiment=b", "--max_num_workers", "7"])
    assert options.view_as(DebugOptions).experiments == ["a", "b"]
    assert options.view_as(WorkerOptions).max_num_workers == 7


@pytest.mark.parametrize(
    ("word", "meant"),
    [("--user_feild", "user_field"), ("--max_num_workerz=3", "max_num_workers"), ("--frobnicate", "")],
)
def test_did_you_mean(word, meant):
    """One of ours, or one of Beam's."""
    with pytest.raises(ParameterError) as caught:
        beam_options([word], ["user_field", "text_field"])
    assert str(caught.value).endswith(f"{word!r}; did you mean --{meant}?" if meant else f"{word!r}.")

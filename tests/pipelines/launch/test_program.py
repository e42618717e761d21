"""The skeleton of the programs: what is prepared, what is run, and what each failure looks like."""

import logging
import signal

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import DirectOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.runner import PipelineRunner

from dpngram.accounting import ParameterError
from dpngram.pipelines.launch.extraction_flags import screen_flags
from dpngram.pipelines.launch.flags import Flag, OneLineParser
from dpngram.pipelines.launch.program import Job, resume_command, run_job
from dpngram.pipelines.launch.startup import stop_in_order
from dpngram.transforms.messages import Message
from dpngram.transforms.randomness.noise_key import NoiseKeyError


@pytest.fixture(autouse=True)
def _log_level():
    """The skeleton sets it for the whole process."""
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


@pytest.fixture
def parser():
    parser = OneLineParser("program", "What it does.")
    parser.add_flags([Flag("noise_key", "the key"), *screen_flags(progress=False)])
    return parser


def raising(error):
    def act(*_):
        raise error

    return act


@pytest.mark.parametrize("status", [0, 1])
def test_the_job_says_what_came_of_it(parser, status):
    seen = []

    def prepare(flags, options):
        seen.append((flags.noise_key, options.view_as(DirectOptions).direct_num_workers))
        return Job(lambda: status)

    assert run_job(parser, ["--noise_key", "a.key", "--direct_num_workers=3"], prepare) == status
    assert seen == [("a.key", 3)]


@pytest.mark.parametrize("error", [ParameterError("level must be 1."), NoiseKeyError("noise_key must be a path.")])
def test_what_cannot_be_prepared_is_a_wrong_flag(parser, capsys, error):
    with pytest.raises(SystemExit) as stop:
        run_job(parser, [], raising(error))
    assert stop.value.code == 2
    assert capsys.readouterr().err == f"program: error: {error} (--help lists the flags)\n"


def test_a_flag_that_nobody_knows(parser, capsys):
    with pytest.raises(SystemExit) as stop:
        run_job(parser, ["--no_such_flag"], raising(AssertionError))
    assert stop.value.code == 2
    assert "flag must be one of dpngram's or Beam's" in capsys.readouterr().err


@pytest.mark.parametrize("error", [RuntimeError("secret words"), ParameterError("user 'secret' must be good.")])
def test_a_job_that_fails_says_nothing_of_the_data(parser, capsys, error):
    """Also not what a ParameterError says: once the job runs, it may be about a record."""
    assert run_job(parser, [], lambda *_: Job(raising(error))) == 1
    said = capsys.readouterr().err
    assert said == f"program: error: the run failed ({type(error).__name__}); --verbose shows the traceback.\n"
    with pytest.raises(type(error), match="secret"):
        run_job(parser, ["--verbose"], lambda *_: Job(raising(error)))


def test_a_run_that_failed_or_was_stopped_offers_to_go_on(parser, capsys):
    """With the command to type, if there is something to go on from, and if that could help."""
    words = ["--noise_key", "my  key's file"]
    again = """program --noise_key 'my  key'"'"'s file' --resume"""

    def end(error, can_resume):
        status = run_job(parser, words, lambda *_: Job(raising(error), can_resume=can_resume))
        return status, capsys.readouterr().err

    offer = f" To finish this run: {again}\n"
    assert end(KeyboardInterrupt(), lambda: True) == (130, f"program: error: stopped.{offer}")
    status, said = end(OSError("secret"), lambda: True)
    assert status == 1
    assert said.endswith(offer)
    assert "secret" not in said
    refused = Message.OTHER_CHECKPOINTS.format()
    assert end(ValueError(refused), lambda: True) == (1, f"program: error: {refused}\n")
    full = Message.SCRATCH_FULL.format()
    assert end(OSError(full), lambda: True) == (1, f"program: error: {full}{offer}")
    for cannot in (None, lambda: False, raising(OSError("secret"))):
        assert end(KeyboardInterrupt(), cannot) == (130, "program: error: stopped.\n")


@pytest.mark.usefixtures("_usual_signals")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 1)])
def test_a_signal_that_a_worker_takes_for_an_error(parser, capsys, number, status):
    """A worker in the main thread turns KeyboardInterrupt into an error of its step."""

    def work():
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            raise RuntimeError("KeyboardInterrupt in a step") from None

    with stop_in_order():
        assert run_job(parser, [], lambda *_: Job(work)) == status
    assert capsys.readouterr().err == "program: error: stopped.\n"


@pytest.fixture(autouse=True)
def _no_signal():
    """What an earlier test was sent is forgotten."""
    with stop_in_order():
        pass


def test_the_command_that_resumes():
    assert (
        resume_command("dpngram extract", ["--overwrite", "--input", "a b*"])
        == "dpngram extract --input 'a b*' --resume"
    )
    assert resume_command("dpngram extract", ["--resume"]) == "dpngram extract --resume"


class SomeClusterRunner(PipelineRunner):
    """Its workers are on other machines."""


@pytest.mark.parametrize(
    ("runner", "flags", "warned"),
    [
        (SomeClusterRunner, ["--noise_key", "env:KEY"], True),
        (SomeClusterRunner, ["--noise_key", "gcp-secret:projects/p/secrets/s"], True),
        (SomeClusterRunner, ["--noise_key", "env:KEY", "--key_records", "gs://bucket/records"], False),
        (SomeClusterRunner, ["--noise_key", "gs://bucket/key"], False),
        (FnApiRunner, ["--noise_key", "env:KEY"], False),
        (FnApiRunner, [], False),
    ],
)
def test_a_key_that_nothing_remembers(parser, capsys, runner, flags, warned):
    """One line before the job runs."""
    parser.add_flags([Flag("key_records", "where uses are remembered")])
    assert run_job(parser, flags, lambda *_: Job(lambda: 0, beam.Pipeline(runner=runner()))) == 0
    said = capsys.readouterr().err
    assert said.count("\n") == warned
    assert said.startswith("program: warning: noise_key: nothing remembers what ") == warned

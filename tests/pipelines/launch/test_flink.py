"""What is added to Beam's flags for a stream on Flink, what is refused, and how a batch is cut into jobs."""

import itertools
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from helpers.planner import most_outputs, planner_visits

from dpngram.accounting import ParameterError, plan_extraction
from dpngram.pipelines.launch.beam_flags import beam_options
from dpngram.pipelines.launch.flink import is_flink, job_ends, stream_settings
from dpngram.transforms import ExtractLevels
from dpngram.transforms.policies import make_rounds

ALWAYS = ["--shutdown_sources_after_idle_ms=9223372036854775807", "--max_bundle_size=1", "--max_bundle_time_mills=100"]
RESTARTS = ["--number_of_execution_retries=10", "--execution_retry_delay=10000"]


def settings(*words, replays=True, runner="PortableRunner"):
    words = ["--runner", runner, *words]
    return stream_settings(beam_options(words), words, replays=replays)


@pytest.mark.parametrize("runner", ["PortableRunner", "FlinkRunner"])
def test_a_topic_is_read_again(runner):
    assert settings(runner=runner) == [*ALWAYS, *RESTARTS]


def test_no_other_source_is():
    assert settings(replays=False) == [*ALWAYS, "--number_of_execution_retries=0"]
    with pytest.raises(ParameterError, match="number_of_execution_retries must be 0"):
        settings("--number_of_execution_retries=3", replays=False)


def test_what_was_given_stays():
    given = ["--max_bundle_time_mills", "300", "--number_of_execution_retries=2", "--execution_retry_delay=1"]
    assert settings(*given) == ALWAYS[:2]
    assert settings("--number_of_execution_retries=0", replays=False) == ALWAYS


def test_other_engines_get_nothing():
    assert settings("--max_num_workers=1", runner="PrismRunner") == []
    assert not is_flink(beam_options([]))


EVERY_MINUTE = "--checkpointing_interval=60000"
WHOLE = "--finish_bundle_before_checkpointing"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([EVERY_MINUTE], "needs --finish_bundle_before_checkpointing"),
        ([EVERY_MINUTE, f"{WHOLE}=false"], "needs --finish_bundle_before_checkpointing"),
        ([EVERY_MINUTE, WHOLE, "--checkpointing_mode=AT_LEAST_ONCE"], "must be EXACTLY_ONCE"),
        (["--checkpointing_interval", "often"], "must be a whole number"),
    ],
)
@pytest.mark.parametrize("replays", [True, False])
def test_checkpoints_that_lose_messages(words, said, replays):
    with pytest.raises(ParameterError, match=said):
        settings(*words, replays=replays)


def test_checkpoints_that_do_not():
    assert settings(EVERY_MINUTE, WHOLE) == [*ALWAYS, *RESTARTS]
    assert settings(EVERY_MINUTE, WHOLE, replays=False) == [*ALWAYS, "--number_of_execution_retries=0"]
    assert settings("--checkpointing_interval=-1") == [*ALWAYS, *RESTARTS]  # Flink's way to say never


def test_a_job_ends_after_its_source():
    words = ["--runner=PortableRunner"]
    added = stream_settings(beam_options(words), words, replays=True, duration=60)
    assert added[0] == "--shutdown_sources_after_idle_ms=70000"


def plan_of(policy, max_n):
    return plan_extraction(epsilon=4, delta=1e-7, max_n=max_n, max_contributions=100, policy=policy)


FLINK = ["--runner=FlinkRunner"]


@pytest.mark.parametrize(
    ("policy", "max_n", "ends"),
    [("plus", 3, [3]), ("plus", 4, [3, 4]), ("plus", 9, [3, 6, 9]), ("paper", 9, [9]), ("paper", 10, [9, 10])],
)
def test_a_job_has_at_most_nine_rounds(policy, max_n, ends):
    assert job_ends(beam_options(FLINK), plan_of(policy, max_n)) == ends
    assert job_ends(beam_options([]), plan_of(policy, max_n)) == [max_n]


def test_more_lengths_than_flink_can_plan():
    job_ends(beam_options(FLINK), plan_of("plus", 18))
    for policy in ("plus", "paper"):
        with pytest.raises(ParameterError, match="max_n must be at most 18 on Flink in batch, got 19"):
            job_ends(beam_options(FLINK), plan_of(policy, 19))
    job_ends(beam_options([]), plan_of("plus", 19))


def graph(plan, done, end, directory):
    """The graph of the job that goes on after level `done`, as if those before it had left their checkpoints."""
    extract = ExtractLevels(plan, noise_key="env:KEY", checkpoints=str(directory))
    for level in make_rounds(plan)[:done]:
        for policy in level:
            Path(extract._open_checkpoints(str(directory))._path(policy)).touch()
    assert extract.levels_done() == done
    pipeline = beam.Pipeline(runner=FnApiRunner())
    documents = pipeline | beam.Create([("user", "a b")], reshuffle=False)
    documents | "ExtractNgrams" >> (extract if end == plan.max_n else extract.up_to(end))
    return pipeline


@pytest.mark.parametrize(
    ("policy", "max_n", "jobs"), [("plus", 9, 3), ("plus", 18, 1), ("paper", 9, 1), ("paper", 18, 2)]
)
def test_flink_can_plan_the_last_jobs(tmp_path, policy, max_n, jobs):
    """One of 2.3e8 visits took 43 s in all, one of 4e9 had no plan after three minutes; a node may have 64 outputs."""
    plan = plan_of(policy, max_n)
    ends = [0, *job_ends(beam_options(FLINK), plan)]
    for done, end in list(itertools.pairwise(ends))[-jobs:]:
        job = graph(plan, done, end, tmp_path)
        assert planner_visits(job) < 2e8
        assert most_outputs(job) <= 64


def test_flink_could_not_plan_one_job(tmp_path):
    """What the limits are for."""
    whole = graph(plan_of("plus", 9), 0, 9, tmp_path)
    assert planner_visits(whole) > 1e13
    assert most_outputs(whole) > 64

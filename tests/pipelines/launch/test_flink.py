"""What is added to Beam's flags for a stream on Flink, and what is refused."""

import pytest

from dpngram.accounting import ParameterError, plan_extraction
from dpngram.pipelines.launch.beam_flags import beam_options
from dpngram.pipelines.launch.flink import check_batch, is_flink, stream_settings

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


def test_a_batch_job_that_flink_would_plan_for_ever():
    flink = beam_options(["--runner=FlinkRunner"])
    for policy, most in (("plus", 3), ("paper", 9)):
        check_batch(flink, plan_of(policy, most))
        with pytest.raises(ParameterError, match=f"max_n must be at most {most} for policy {policy} on Flink in batch"):
            check_batch(flink, plan_of(policy, most + 1))
    check_batch(beam_options([]), plan_of("plus", 9))

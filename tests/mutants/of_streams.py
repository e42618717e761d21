"""Mutants of streams: what is read, and read once more."""

from mutants.mutant import Edit, Mutant

__all__ = ["STREAMS"]

STREAMS = (
    Mutant(
        name="the_producers_clock",
        why="A topic whose times its producers write: one message from the year 3000 makes everybody else's late.",
        edits=(
            Edit(
                "pipelines/io/kafka.py",
                "if kind != TIMESTAMP_LOG_APPEND_TIME:",
                "if kind < TIMESTAMP_LOG_APPEND_TIME - 1:",
            ),
        ),
        tests=("tests/pipelines/io/test_kafka.py::test_refused",),
    ),
    Mutant(
        name="a_partition_overtaken",
        why="The watermark follows the partition that is furthest ahead: messages of the others are dropped as late, "
        "and a window's content depends on the speed of the job.",
        edits=(Edit("pipelines/io/kafka.py", "1000 * min(place.time for place", "1000 * max(place.time for place"),),
        tests=("tests/pipelines/io/test_kafka.py::test_partitions_together",),
    ),
    Mutant(
        name="a_transaction_overtaken",
        why="The watermark passes messages of an open transaction: its producer makes the messages of others late, and "
        "what a window holds is another when the topic is read once more.",
        edits=(
            Edit(
                "pipelines/io/kafka.py",
                "_, end = self._onlooker.get_watermark_offsets",
                "_, end = self._consumer.get_watermark_offsets",
            ),
        ),
        tests=("tests/pipelines/io/test_kafka.py::test_an_open_transaction_holds_the_watermark",),
    ),
    Mutant(
        name="arrivals_by_call",
        why="Where append times fall, an arrival depends on where a call to the broker ended: a topic read once more "
        "has other windows, and users may be in more than the plan pays for.",
        edits=(
            Edit(
                "pipelines/io/kafka.py",
                "is_behind, passed = moment < passed, max(moment, passed)",
                "is_behind = moment < passed",
            ),
            Edit("pipelines/io/kafka.py", "arrivals.append(passed)", "arrivals.append(max(moment, passed))"),
        ),
        tests=("tests/pipelines/io/test_kafka.py::test_arrivals_do_not_depend_on_where_a_call_ends",),
    ),
    Mutant(
        name="blocks_at_the_times_of_users",
        why="A block has the earliest time that somebody wrote in it: on an engine that goes by times it overtakes "
        "others, and one user decides which windows of another user count.",
        edits=(
            Edit(
                "pipelines/io/messages.py",
                "yield TimestampedValue(block, messages.begin)",
                "yield TimestampedValue(block, Timestamp(micros=1000 * int(block.times.min())))",
            ),
        ),
        tests=("tests/pipelines/test_stream.py::test_others_do_not_decide_when_a_user_is_read",),
    ),
    Mutant(
        name="continued_by_another_plan",
        why="A stream goes on from its state under another plan: a user in W windows of either has spent more than any "
        "of the two says.",
        edits=(
            Edit(
                "transforms/randomness/noise_key.py",
                'derive_key(self._master, "stream settings", *self._names, counts).hex()',
                'derive_key(self._master, "stream settings", counts).hex()',
            ),
        ),
        tests=("tests/transforms/test_limit_windows.py::test_a_start_that_counts_something_else_is_refused",),
    ),
    Mutant(
        name="other_windows_are_continued",
        why="A stream goes on from a state that counted longer windows: their numbers are those of other windows, and "
        "users are in more than the plan pays for.",
        edits=(
            Edit(
                "transforms/limit_windows.py",
                "counts = repr((windows, self._form.user_field))",
                "counts = repr((windows is None, self._form.user_field))",
            ),
        ),
        tests=("tests/transforms/test_limit_windows.py::test_a_start_that_counts_something_else_is_refused",),
    ),
    Mutant(
        name="continued_from_nothing",
        why="A stream counts as continued though the engine is told of no state: it begins without any, and users "
        "are in twice as many windows.",
        edits=(
            Edit(
                "pipelines/launch/stream_flags.py",
                'if start == "continued" and not (restored or can_replay(flags, options)):',
                'if start == "continued" and restored is None:',
            ),
        ),
        tests=("tests/pipelines/launch/test_stream_flags.py::test_what_can_be_continued",),
    ),
    Mutant(
        name="a_topic_that_was_cut",
        why="A stream whose first messages are gone is read once more as if it were the same: users are counted anew, "
        "and are in more windows than the plan pays for.",
        edits=(Edit("pipelines/io/kafka.py", "json.dumps([look.id, look.first, self", "json.dumps([look.id, self"),),
        tests=("tests/pipelines/io/test_kafka.py::test_the_same_stream_once_more",),
    ),
    Mutant(
        name="a_topic_that_is_compacted",
        why="A topic that loses messages is read once more: the same noise over other data, and a difference of two "
        "releases without noise in it.",
        edits=(
            Edit(
                "pipelines/io/kafka_topic.py",
                'if settings["cleanup.policy"].value != "delete":',
                'if settings["cleanup.policy"].value is None:',
            ),
        ),
        tests=("tests/pipelines/io/test_kafka_topic.py::test_refused",),
    ),
    Mutant(
        name="a_record_with_other_noise",
        why="A topic gets a second record for a window, with other noise: whoever reads both has two releases of it.",
        edits=(
            Edit(
                "pipelines/io/kafka_output.py",
                "            if before is None:\n",
                "            if before != _digest(value):\n",
            ),
        ),
        tests=("tests/pipelines/io/test_kafka_output.py::test_other_noise_is_refused",),
    ),
    Mutant(
        name="any_stream_is_replayed",
        why="A stream whose beginning nobody wrote down counts as read once more: it may be any other, and each user "
        "is in twice as many windows.",
        edits=(
            Edit(
                "transforms/randomness/noise_key.py",
                "        unknown = replayed and not stored and self.was_stream_started()\n",
                "        unknown = replayed and not stored and not source\n",
            ),
        ),
        tests=("tests/transforms/randomness/test_noise_key.py::test_a_stream_read_once_more",),
    ),
    Mutant(
        name="a_directory_is_replayed",
        why="A stream from a directory counts as read once more, though files may be gone: users are counted anew, and "
        "are in more windows than the plan pays for.",
        edits=(
            Edit(
                "pipelines/launch/stream_flags.py",
                "return flags.kafka_topic is not None and _is_remembered(flags, options)",
                "return _is_remembered(flags, options)",
            ),
        ),
        tests=("tests/pipelines/launch/test_stream_flags.py::test_what_can_be_read_once_more",),
    ),
    Mutant(
        name="nobody_remembers_the_first_start",
        why="Flink starts a stream again under a key that nothing remembers: messages may be gone unseen.",
        edits=(
            Edit(
                "pipelines/launch/stream_flags.py",
                "return flags.kafka_topic is not None and _is_remembered(flags, options)",
                "return flags.kafka_topic is not None",
            ),
        ),
        tests=("tests/pipelines/launch/test_stream_flags.py::test_what_can_be_read_once_more",),
    ),
    Mutant(
        name="checkpoints_that_lose_messages",
        why="Flink drops messages at its checkpoints: what a window holds depends on the moment, and a restart meets "
        "other data under the same key.",
        edits=(
            Edit(
                "pipelines/launch/flink.py",
                'if given.get("finish_bundle_before_checkpointing", "false").lower() != "true":',
                'if given.get("finish_bundle_before_checkpointing") == "":',
            ),
        ),
        tests=("tests/pipelines/launch/test_flink.py::test_checkpoints_that_lose_messages",),
    ),
    Mutant(
        name="restarts_without_state",
        why="Flink starts a stream anew from a source that forgets: users are counted from zero, and nobody is asked.",
        edits=(Edit("pipelines/launch/flink.py", "    if replays:\n", "    if replays is not None:\n"),),
        tests=("tests/pipelines/launch/test_flink.py::test_no_other_source_is",),
    ),
)

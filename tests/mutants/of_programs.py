"""Mutants of the programs: what is written, printed or accepted."""

from mutants.mutant import Edit, Mutant

__all__ = ["PROGRAMS"]

PROGRAMS = (
    Mutant(
        name="manifest_for_a_window_without_a_release",
        why="A window in which nothing passed gets a directory and a manifest: it tells that somebody was there.",
        edits=(
            Edit(
                "transforms/decode_grams.py",
                "    if not len(level):\n        return\n",
                "    if not len(level):\n        yield GramTable(n=level.n)\n        return\n",
            ),
        ),
        tests=("tests/pipelines/test_stream.py::test_a_directory_for_each_window_with_a_release",),
    ),
    Mutant(
        name="a_column_read_as_arrow_likes",
        why="Arrow takes a set for a list if nothing else in the column is in the way: one user decides whether "
        "the rows of others count.",
        edits=(
            Edit(
                "pipelines/frames.py",
                "if values.dtype == object and not _is_plain(values):",
                "if values.dtype == object and not len(values):",
            ),
        ),
        tests=("tests/pipelines/test_frames.py::test_a_row_is_read_by_its_own_values",),
    ),
    Mutant(
        name="a_window_written_twice",
        why="A restarted stream replaces a window's release by one with other noise: whoever kept the first has two.",
        edits=(
            Edit(
                "pipelines/io/writing.py",
                "        there = once and FileSystems.exists(path)\n",
                "        there = once and not path\n",
            ),
        ),
        tests=("tests/pipelines/test_stream.py::test_a_window_is_not_released_twice",),
    ),
    Mutant(
        name="manifest_first",
        why="A run that dies while writing looks finished, and the rerun that somebody starts is a second release.",
        edits=(
            Edit(
                "pipelines/io/writing.py",
                "        levels: list[ManifestLevel] = []\n",
                '        levels: list[ManifestLevel] = []\n        write_whole(path, b"{}")\n',
            ),
        ),
        tests=("tests/pipelines/io/test_writing.py::test_the_manifest_is_written_last",),
    ),
    Mutant(
        name="records_in_the_manifest",
        why="The manifest has the exact number of records: one user more or less can be seen.",
        edits=(
            Edit(
                "pipelines/launch/operator_notes.py",
                "    write_whole(path, (",
                '    place = path.removesuffix(".operator.json") + "/manifest.json"\n'
                "    with open(place) as file:\n"
                '        manifest = {**json.loads(file.read()), "records": counters.get("records")}\n'
                "    write_whole(place, json.dumps(manifest, indent=2).encode())\n"
                "    write_whole(path, (",
            ),
        ),
        tests=("tests/pipelines/test_extract.py::test_an_empty_input_looks_like_one_in_which_nothing_passed",),
    ),
    Mutant(
        name="plans_without_privacy_written",
        why="A plan for experiments, which has no noise, can be written as a release with a guarantee.",
        edits=(
            Edit(
                "pipelines/io/writing.py",
                "        if type(plan) is not ExtractionPlan:\n",
                "        if plan is None:\n",
            ),
        ),
        tests=("tests/pipelines/test_stream.py::test_plans_without_privacy_are_refused",),
    ),
    Mutant(
        name="bad_records_quoted",
        why="The reason of a bad record, which goes into lists and names of counters, quotes the record.",
        edits=(
            Edit(
                "pipelines/io/parsing.py",
                "    return BadRecord(reason, record[0], len(record[1]))\n",
                '    return BadRecord(f"{reason} {record[1]!r}", record[0], len(record[1]))\n',
            ),
        ),
        tests=("tests/pipelines/test_hostile.py::test_two_thousand_hostile_lines",),
    ),
    Mutant(
        name="a_look_shows_rare_names",
        why="The error of a look at JSON records names a field that only one has, which a user may have written.",
        edits=(Edit("pipelines/io/look.py", "if 2 * count >= len(records))", "if count)"),),
        tests=("tests/pipelines/io/test_look.py::test_names_that_users_wrote_are_not_shown",),
    ),
    Mutant(
        name="a_record_stops_a_run",
        why="A run is refused as soon as one of the records that are looked at lacks the field: one user can stop it.",
        edits=(
            Edit(
                "pipelines/io/look.py",
                "return Columns(frozenset(counts), shown, len(records))",
                "return Columns(frozenset(shown), shown, len(records))",
            ),
        ),
        tests=("tests/pipelines/io/test_look.py::test_one_record_with_the_field_is_enough",),
    ),
    Mutant(
        name="errors_quote_the_data",
        why="The line that a failed run prints has the text of somebody else's exception, which may quote a user.",
        edits=(
            Edit(
                "pipelines/launch/failures.py", "({kinds[-1] if kinds else type(error).__name__})", "({text[-300:]!r})"
            ),
        ),
        tests=("tests/pipelines/test_extract.py::test_a_run_that_dies_shows_the_step_and_no_more",),
    ),
    Mutant(
        name="notes_that_all_can_read",
        why="The exact counts of the operator can be read by everybody who has an account on the machine.",
        edits=(
            Edit(
                "pipelines/launch/operator_notes.py",
                '(text.ljust(_SIZE - 1) + "\\n").encode(), private=True)',
                '(text.ljust(_SIZE - 1) + "\\n").encode())',
            ),
        ),
        tests=("tests/pipelines/io/test_output_directory.py::test_a_copy_of_the_output_can_be_published[jsonl]",),
    ),
    Mutant(
        name="notes_in_the_output",
        why="Notes with exact counts may be put into the directory that is published.",
        edits=(Edit("pipelines/extract.py", "        operator_notes=notes,\n", ""),),
        tests=("tests/security/test_leaks.py::test_nothing_private_in_the_output[out/deep---operator_notes]",),
    ),
    Mutant(
        name="the_size_of_the_notes",
        why="Whoever can list the directory sees by the size of the operator's notes that one more record was bad.",
        edits=(Edit("pipelines/launch/operator_notes.py", "text.ljust(_SIZE - 1)", "text"),),
        tests=("tests/pipelines/io/test_output_directory.py::test_all_notes_have_one_size",),
    ),
    Mutant(
        name="checkpoints_that_all_can_read",
        why="Everybody who has an account on the machine can read released sets before there is a release.",
        edits=(Edit("transforms/checkpoints.py", "seal + data, private=True)", "seal + data)"),),
        tests=("tests/transforms/test_checkpoints.py::test_only_the_owner_sees_them",),
    ),
    Mutant(
        name="checkpoints_outlive_the_job",
        why="Nobody waits for a job elsewhere: its checkpoints stay when the release is there, or is deleted.",
        edits=(
            Edit(
                "pipelines/extract.py",
                '"CleanUp" >> CleanUp(output, checkpoints)',
                '"CleanUp" >> CleanUp(output, None)',
            ),
        ),
        tests=("tests/pipelines/io/test_output_directory.py::test_the_graph_itself_cleans_up[paper]",),
    ),
    Mutant(
        name="exact_counts_in_the_output",
        why="The exact counts of a comparison are in the directory that is published.",
        edits=(
            Edit("pipelines/compare.py", "    place = beside(output, _EXACT)\n", '    place = f"{output}/{_EXACT}"\n'),
        ),
        tests=("tests/pipelines/research/test_results.py::test_exact_counts_are_apart_and_right",),
    ),
    Mutant(
        name="checkpoints_without_a_mac",
        why="A run goes on from checkpoints of other data or another key: two releases are mixed, and one is not "
        "paid for.",
        edits=(
            Edit(
                "transforms/checkpoints.py", "        if not hmac.compare_digest(mac, ", "        if len(mac) != len("
            ),
        ),
        tests=("tests/transforms/test_checkpoints.py::test_checkpoints_of_another_run_stop_it[key]",),
    ),
    Mutant(
        name="checkpoints_that_do_not_follow",
        why="The MAC of a checkpoint does not name what its round went on from: a second look is put behind another "
        "survey, for which nobody paid what it weighed.",
        edits=(Edit("transforms/checkpoints.py", 'f"checkpoint {policy.n} {policy.number} {past}"', '"checkpoint"'),),
        tests=("tests/transforms/test_checkpoints.py::test_a_checkpoint_that_follows_from_another_stops_the_run",),
    ),
    Mutant(
        name="a_resumed_round_is_free",
        why="Users do not pay for a survey that has a checkpoint: later, they spend more than they have.",
        edits=(
            Edit(
                "transforms/checkpoints.py",
                'users | "PayOnly" >> PayOnly(self._policy, self._context)',
                'users | "PayOnly" >> beam.Map(self._policy.allow)',
            ),
        ),
        tests=("tests/pipelines/test_jobs.py::test_several_jobs_are_one_run[plus]",),
    ),
    Mutant(
        name="checkpoints_of_other_data",
        why="The MAC of a checkpoint does not cover the content: with a key that has no record, a run on other "
        "data goes on from it.",
        edits=(
            Edit(
                "transforms/randomness/noise_key.py",
                "*self._names, name, binding[:16], hashlib.sha256(data).digest())",
                "*self._names, name, hashlib.sha256(data).digest())",
            ),
        ),
        tests=("tests/transforms/test_checkpoints.py::test_checkpoints_of_another_run_stop_it[env]",),
    ),
    Mutant(
        name="a_worker_in_trouble_is_a_damaged_file",
        why="A worker that cannot start a thread takes its file for damaged: who is read depends on the load of the "
        "machine, and so on others.",
        edits=(Edit("pipelines/io/lines.py", "return isinstance(error.__cause__, StopIteration)", "return True"),),
        tests=("tests/security/test_load.py::test_a_worker_in_trouble_is_no_damaged_file",),
    ),
    Mutant(
        name="avro_values_converted",
        why="A date beyond the year 9999 in a record of one user takes all records behind it out of the release.",
        edits=(Edit("pipelines/io/tables.py", "            as_stored(records.writer_schema)\n", ""),),
        tests=("tests/security/test_records.py::test_an_avro_value_that_is_no_date",),
    ),
    Mutant(
        name="the_length_of_what_is_no_text",
        why="A list with a null in it, in a record of one user, takes all records behind it out of the release.",
        edits=(Edit("pipelines/io/tables.py", "for part in parts if isinstance(part, str))", "for part in parts)"),),
        tests=("tests/security/test_records.py::test_an_avro_content_that_is_no_text",),
    ),
    Mutant(
        name="a_huge_row_is_damage",
        why="A row of two gigabytes, which Arrow cannot hold in one column, takes its neighbours out of the release.",
        edits=(
            Edit(
                "pipelines/io/lines.py",
                "(MemoryError, pa.ArrowNotImplementedError, pa.lib.ArrowCapacityError)",
                "MemoryError",
            ),
        ),
        tests=("tests/security/test_load.py::test_a_worker_in_trouble_is_no_damaged_file",),
    ),
    Mutant(
        name="key_beside_a_comparison",
        why="The key of a comparison may lie among its tables: with it the noise can be taken off.",
        edits=(
            Edit(
                "pipelines/compare.py",
                "flags.output, noise_key=flags.noise_key, key_records",
                "flags.output, noise_key=None, key_records",
            ),
        ),
        tests=("tests/pipelines/test_compare.py::test_nothing_private_in_the_output",),
    ),
    Mutant(
        name="key_beside_the_windows",
        why="The key of a stream may lie in the output: beside it are names of all windows that had data.",
        edits=(
            Edit(
                "pipelines/launch/stream_flags.py",
                "    check_apart(output, noise_key=reference, key_records=key_records, **paths)",
                "   ",
            ),
        ),
        tests=("tests/pipelines/test_stream.py::test_one_line_and_status_2",),
    ),
    Mutant(
        name="stream_without_a_bound",
        why="`dpngram stream` leaves users in all windows; its guarantee says otherwise.",
        edits=(Edit("pipelines/stream.py", "        bound_windows=True,\n", "        bound_windows=False,\n"),),
        tests=("tests/pipelines/test_stream.py::test_the_program_bounds_windows",),
    ),
    Mutant(
        name="late_without_end",
        why="A message of any age is taken, behind the watermark: what its window holds depends on the speed of the "
        "job, and a restart meets other data under the same key.",
        edits=(Edit("pipelines/io/messages.py", "moments + delay < arrived,", "moments + delay < 0,"),),
        tests=("tests/pipelines/io/test_messages.py::test_a_message_is_late_by_itself",),
    ),
    Mutant(
        name="windows_named_with_the_delay",
        why="Noise depends on how long a stream waits: another --max_delay draws other noise for the same messages, "
        "and two releases of one window can be compared.",
        edits=(
            Edit(
                "transforms/keyed_dofn.py", "window_name(window, self._randomness.window_delay)", "window_name(window)"
            ),
        ),
        tests=("tests/pipelines/test_stream.py::test_the_delay_leaves_no_trace",),
    ),
    Mutant(
        name="exact_counts_without_asking",
        why="K-anonymity and statistics of the data are computed and written though nobody asked: they are exact.",
        edits=(Edit("pipelines/compare.py", "    if not reveal:\n", "    if not reveal and given is not None:\n"),),
        tests=("tests/pipelines/test_compare.py::test_nothing_exact_without_asking",),
    ),
    Mutant(
        name="budgets_of_repeats_forgotten",
        why="A comparison states the budget of one repeat, and spends that of all.",
        edits=(
            Edit(
                "pipelines/research/systems.py",
                "return self.repeats * math.fsum(row.epsilon_spent for row in self.rows)",
                "return math.fsum(row.epsilon_spent for row in self.rows)",
            ),
        ),
        tests=("tests/pipelines/research/test_results.py::test_the_sum_of_all_budgets_is_told",),
    ),
    Mutant(
        name="scratch_in_the_clear",
        why="Text of the data is written to the disk as it is, where it stays readable after the file is deleted.",
        edits=(
            Edit(
                "transforms/blocks/scratch.py",
                "            _write(file.number, sealed, offset)\n",
                "            _write(file.number, bytes(view[start : start + _PIECE]) + sealed[-_TAG:], offset)\n",
            ),
        ),
        tests=("tests/transforms/blocks/test_scratch.py::test_nothing_can_be_read_or_found",),
    ),
    Mutant(
        name="scratch_nonces_used_again",
        why="A new file has the key and the nonces of a deleted one: the XOR of both is that of their texts.",
        edits=(
            Edit(
                "transforms/blocks/scratch.py",
                "            if segment == self._segment:\n",
                "            if segment < 0:\n",
            ),
        ),
        tests=("tests/transforms/blocks/test_scratch.py::test_no_nonce_is_used_twice",),
    ),
    Mutant(
        name="scratch_of_another_run",
        why="extract_frame, and every graph of a host, would write blocks to the disk of a run beside it.",
        edits=(
            Edit(
                "transforms/blocks/scratch.py",
                "    return _CURRENT.get()\n",
                '    return next(iter(_OPEN), b"")\n',
            ),
        ),
        tests=("tests/transforms/blocks/test_scratch.py::test_it_is_there_for_one_run",),
    ),
)

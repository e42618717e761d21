"""Mutants of the keyed draws: noise that is drawn again, shared, repeated or known."""

from mutants.mutant import Edit, Mutant

__all__ = ["RANDOMNESS"]

_KEYS = "transforms/randomness/noise_key.py"
_RECORDS = "transforms/randomness/key_records.py"
_KEYS_TESTS = "tests/transforms/randomness/test_noise_key.py"
_RECORDS_TESTS = "tests/transforms/randomness/test_key_records.py"
_REFERENCE = "tests/transforms/test_reference.py::test_released_grams_are_identical[0-both]"
_DERIVE = 'derive_key(self._master, "run", *self._names, window, fingerprint)'
_SUBKEY = "names = (purpose, level, round_number) if not past else (purpose, level, round_number, past)"
_DIFFER = (f"{_KEYS_TESTS}::test_draws_differ_in_every_name",)

RANDOMNESS = (
    Mutant(
        name="noise_drawn_again_on_retry",
        why="Noise comes from the system and not from the name of the cell: a bundle that runs twice is two releases, "
        "and their mean has less noise than the plan says.",
        edits=(
            Edit(
                "transforms/noisy_threshold.py",
                "    bits = prf.encrypt(cells.digests) if cells.has_digests else prf.blocks(cells.keys, 0)\n",
                "    bits = np.frombuffer(__import__('os').urandom(16 * len(cells)), np.uint64).reshape(-1, 2)\n",
            ),
        ),
        tests=(_REFERENCE,),
    ),
    Mutant(
        name="noise_of_a_shard",
        why="Noise depends on how many cells the shard has: cut otherwise, the same data give a second release.",
        edits=(
            Edit(
                "transforms/noisy_threshold.py",
                "else prf.blocks(cells.keys, 0)\n",
                "else prf.blocks(cells.keys, len(cells))\n",
            ),
        ),
        tests=(_REFERENCE,),
    ),
    Mutant(
        name="same_key_on_changed_data",
        why="A key that made one release makes another from other data: two releases that are equal tell that the data "
        "are, and nothing pays for that.",
        edits=(Edit(_RECORDS, "    if not hmac.compare_digest(stored, content):\n", "    if not stored:\n"),),
        tests=(f"{_KEYS_TESTS}::test_one_key_one_release",),
    ),
    Mutant(
        name="use_of_a_key_not_recorded",
        why="Nothing remembers what a key was used for, so nothing refuses a second use.",
        edits=(
            Edit(_KEYS, "if not self._reference.remember(self.id, self._use(window), content):", "if not content:"),
        ),
        tests=(f"{_KEYS_TESTS}::test_one_key_one_release",),
    ),
    Mutant(
        name="a_copy_of_a_key_is_another_key",
        why="Uses are remembered beside the key file only: a copy elsewhere, a hard link or a variable with the same "
        "bytes makes a second release under one key, and equal releases tell that the data are equal.",
        edits=(Edit(_RECORDS, "state = None if fresh else state_directory()", "state = None"),),
        tests=(f"{_RECORDS_TESTS}::test_the_record_follows_the_key",),
    ),
    Mutant(
        name="a_link_to_a_key_is_another_key",
        why="Uses are remembered beside the name of a key and not beside the file behind it: on another machine a link "
        "makes a second release under one key.",
        edits=(Edit(_RECORDS, "[os.path.realpath(key_file), key_file]", "[key_file]"),),
        tests=(f"{_RECORDS_TESTS}::test_the_record_follows_the_key",),
    ),
    Mutant(
        name="records_only_behind_the_link",
        why="Uses are remembered beside the file behind a link only: a secret mount replaces that directory, and the "
        "record with it.",
        edits=(Edit(_RECORDS, "[os.path.realpath(key_file), key_file]", "[os.path.realpath(key_file)]"),),
        tests=(f"{_RECORDS_TESTS}::test_a_secret_mount_that_moves",),
    ),
    Mutant(
        name="records_of_earlier_versions_forgotten",
        why="A key that an earlier version used makes a second release.",
        edits=(Edit(_RECORDS, "    if place.key_file is not None:\n", "    if not place:\n"),),
        tests=(f"{_RECORDS_TESTS}::test_records_of_earlier_versions_count",),
    ),
    Mutant(
        name="a_closed_record_is_no_record",
        why="A record that cannot be read, of another use perhaps, does not stop a second use of its key.",
        edits=(
            Edit(
                _RECORDS,
                "        if FileSystems.get_scheme(path) is None and not os.path.lexists(path):\n",
                "        if path:\n",
            ),
        ),
        tests=(f"{_RECORDS_TESTS}::test_a_record_that_cannot_be_read_stops_a_use",),
    ),
    Mutant(
        name="a_use_that_nothing_remembers",
        why="A key is used although its record can be kept nowhere: nothing refuses the next use.",
        edits=(Edit(_KEYS, "if not lasts and self.is_remembered:", "if not use:"),),
        tests=(f"{_RECORDS_TESTS}::test_no_place_for_a_record",),
    ),
    Mutant(
        name="a_key_that_everybody_reads_is_taken",
        why="Whoever has the key subtracts the noise: a key file that others can read keeps nothing secret.",
        edits=(Edit(_KEYS, "        if exposed:\n", "        if not stored:\n"),),
        tests=(f"{_KEYS_TESTS}::test_a_key_that_is_open_to_others_is_refused",),
    ),
    Mutant(
        name="a_stream_started_twice",
        why="A stream starts again without its state, in silence: every user is in W windows more than the plan pays "
        "for.",
        edits=(Edit(_KEYS, "content) and not known:", "content) and not start:"),),
        tests=(f"{_KEYS_TESTS}::test_a_stream_is_started_once",),
    ),
    Mutant(
        name="the_start_of_a_stream_forgotten",
        why="The graph of a stream does not remember that it was started, so nothing refuses a second start.",
        edits=(
            Edit(
                "transforms/limit_windows.py",
                "if self._start is not None:  # no document passes",
                "if self._start is not None and self._shards < 0:  # no document passes",
            ),
        ),
        tests=("tests/transforms/test_limit_windows.py::test_no_document_passes_before_a_stream_is_remembered",),
    ),
    Mutant(
        name="two_names_of_a_key_in_a_graph",
        why="A graph takes two names of one key for two keys: two histograms with the same noise, whose difference is "
        "exact.",
        edits=(
            Edit(
                "transforms/noisy_threshold.py",
                "name = (randomness.release, randomness.application,",
                "name = (str(randomness.key), randomness.application,",
            ),
        ),
        tests=("tests/transforms/test_context.py::test_a_round_is_in_a_graph_once",),
    ),
    Mutant(
        name="settings_not_in_the_record_of_a_key",
        why="The record of a key's use holds the content only: the same data with other parameters under one "
        "label are a "
        "second release that is not refused.",
        edits=(
            Edit(
                _KEYS,
                'derive_key(self._master, "content", *self._names, window, fingerprint)',
                'derive_key(self._master, "content", window, fingerprint)',
            ),
        ),
        tests=(f"{_KEYS_TESTS}::test_one_key_one_release",),
    ),
    Mutant(
        name="fingerprint_left_out_of_the_key",
        why="The same key draws the same noise on other data: the difference of two releases is exact.",
        edits=(Edit(_KEYS, _DERIVE, 'derive_key(self._master, "run", *self._names, window)'),),
        tests=_DIFFER,
    ),
    Mutant(
        name="window_left_out_of_the_key",
        why="Windows with the same content give the same bytes, and others do not: an equality test that nothing "
        "pays for.",
        edits=(Edit(_KEYS, _DERIVE, 'derive_key(self._master, "run", *self._names, fingerprint)'),),
        tests=_DIFFER,
    ),
    Mutant(
        name="application_left_out_of_the_key",
        why="Two places in a graph give the same bytes if and only if they saw the same data: an equality test.",
        edits=(
            Edit(
                _KEYS, _DERIVE, 'derive_key(self._master, "run", *self._names[:2], self._names[3], window, fingerprint)'
            ),
        ),
        tests=_DIFFER,
    ),
    Mutant(
        name="release_label_left_out_of_the_key",
        why="A new release under a new label gives the old bytes if and only if the data are the same: an "
        "equality test.",
        edits=(
            Edit(
                _KEYS, _DERIVE, 'derive_key(self._master, "run", self._names[0], *self._names[2:], window, fingerprint)'
            ),
        ),
        tests=_DIFFER,
    ),
    Mutant(
        name="level_left_out_of_the_key",
        why="Cells of two levels that have the same key share their noise, and it can be subtracted.",
        edits=(Edit(_KEYS, _SUBKEY, "names = (purpose, round_number, past)"),),
        tests=_DIFFER,
    ),
    Mutant(
        name="purpose_left_out_of_the_key",
        why="Clipping coins, zero cells and noise come from one function: what is seen of one is known of the other.",
        edits=(Edit(_KEYS, _SUBKEY, "names = (level, round_number, past)"),),
        tests=_DIFFER,
    ),
    Mutant(
        name="two_rounds_share_their_noise",
        why="The rounds of a level draw the same noise for a cell: what one round tells of it can be subtracted "
        "from the next.",
        edits=(
            Edit(
                "transforms/randomness/noise_key.py",
                "lambda purpose: self.prf(purpose, level, round_number, window, binding, past)",
                "lambda purpose: self.prf(purpose, level, 0, window, binding, past)",
            ),
        ),
        tests=("tests/transforms/policies/test_base.py::test_rounds_and_levels_draw_apart",),
    ),
    Mutant(
        name="two_levels_share_their_noise",
        why="All levels draw with the name of the first: cells of two levels with one key share their noise.",
        edits=(
            Edit(
                "transforms/randomness/noise_key.py",
                "lambda purpose: self.prf(purpose, level, round_number, window, binding, past)",
                "lambda purpose: self.prf(purpose, 1, round_number, window, binding, past)",
            ),
        ),
        tests=("tests/transforms/policies/test_base.py::test_rounds_and_levels_draw_apart", _REFERENCE),
    ),
    Mutant(
        name="all_windows_draw_alike",
        why="The graph names every window the same: two windows with the same content give the same bytes, which "
        "tells so.",
        edits=(
            Edit(
                "transforms/keyed_dofn.py",
                "(self._policy.n, self._policy.number, self.window_name(window), binding, past)",
                '(self._policy.n, self._policy.number, b"global", binding, past)',
            ),
        ),
        tests=("tests/transforms/test_keyed_dofn.py::test_each_window_is_a_release_of_its_own[paper]",),
    ),
    Mutant(
        name="tokenizer_left_out_of_the_key",
        why="The same text, tokenised otherwise, is other data under the same noise.",
        edits=(Edit("transforms/extract.py", '            "tokenizer": self._tokenizer.spec,\n', ""),),
        tests=(
            "tests/transforms/test_extract.py::test_everything_that_decides_is_in_the_settings",
            "tests/transforms/test_bind_release.py::test_a_key_used_for_other_data_is_refused[paper]",
        ),
    ),
    Mutant(
        name="vocabulary_left_out_of_the_key",
        why="Two releases with different public vocabularies draw the same bits for the words that both have.",
        edits=(Edit("transforms/extract.py", "            **listed,\n", ""),),
        tests=("tests/transforms/test_vocabulary.py::test_the_key_is_bound_to_the_list",),
    ),
    Mutant(
        name="plan_left_out_of_the_key",
        why="Two releases with other noise levels draw the same bits: from both, the exact weights follow.",
        edits=(
            Edit(
                "transforms/extract.py",
                '            "plan": self._plan.settings(),\n',
                '            "plan": "",\n',
            ),
        ),
        tests=("tests/transforms/test_extract.py::test_everything_that_decides_is_in_the_settings",),
    ),
    Mutant(
        name="pruning_left_out_of_the_key",
        why="Releases with both pruning rules share their noise.",
        edits=(Edit("transforms/extract.py", '            "pruning": self._pruning,\n', ""),),
        tests=("tests/transforms/test_extract.py::test_everything_that_decides_is_in_the_settings",),
    ),
    Mutant(
        name="fingerprint_by_xor",
        why="Two equal posts of a user cancel: data with and without them have the same fingerprint, and the "
        "same noise.",
        edits=(
            Edit(
                "transforms/group_users.py",
                "limbs = np.ascontiguousarray(digests).view(np.uint32).reshape(-1, 4).sum(axis=0, dtype=np.uint64)\n",
                "limbs = np.bitwise_xor.reduce(np.ascontiguousarray(digests).view(np.uint32).reshape(-1, 4), axis=0)\n",
            ),
        ),
        tests=(_REFERENCE,),
    ),
    Mutant(
        name="fingerprint_without_the_text",
        why="The fingerprint covers who wrote and not what: changed text draws the same noise.",
        edits=(
            Edit(
                "transforms/group_users.py",
                "digest.pairs(posts.user, posts.user if user_per_document else posts.sequence)",
                "digest.pairs(posts.user, posts.user)",
            ),
        ),
        tests=(_REFERENCE,),
    ),
    Mutant(
        name="fingerprint_of_one_block",
        why="The graph keeps the fingerprint of the last block instead of the sum: a change in another block "
        "keeps the noise.",
        edits=(
            Edit(
                "transforms/bind_release.py",
                'int.from_bytes(accumulator[start:end], "little") + int.from_bytes(value[start:end], "little")\n',
                'int.from_bytes(value[start:end], "little")\n',
            ),
        ),
        tests=("tests/transforms/test_testing.py::test_it_equals_the_plain_loop[paper]",),
    ),
    Mutant(
        name="keys_of_workers_not_compared_at_a_draw",
        why="A worker with another key draws other noise for the same cells: two noises of one release.",
        edits=(
            Edit(
                _KEYS,
                "        self.verify_binding(binding)\n        return self._prf(",
                "        return self._prf(",
            ),
        ),
        tests=(f"{_KEYS_TESTS}::test_a_worker_with_another_key_is_found_out",),
    ),
    Mutant(
        name="keys_of_workers_not_compared_for_users",
        why="Posts that were named under two keys meet: one user is two.",
        edits=(Edit("transforms/group_users.py", "        source.verify(piece.key_check)\n", ""),),
        tests=(f"{_KEYS_TESTS}::test_a_worker_with_another_key_is_found_out",),
    ),
    Mutant(
        name="every_key_the_same",
        why="A fresh key is all zeros: anybody can compute the noise and subtract it.",
        edits=(
            Edit(
                _KEYS,
                "create_once(self.location, secrets.token_bytes(KEY_BYTES))",
                "create_once(self.location, bytes(KEY_BYTES))",
            ),
        ),
        tests=(f"{_KEYS_TESTS}::test_a_fresh_key_is_for_its_owner_only_and_made_once",),
    ),
    Mutant(
        name="a_key_for_everybody",
        why="The key file can be read by all users of the machine: whoever has the key subtracts the noise.",
        edits=(Edit(_RECORDS, "stat.S_IRUSR | stat.S_IWUSR)", "stat.S_IRUSR | stat.S_IWUSR | stat.S_IROTH)"),),
        tests=(f"{_KEYS_TESTS}::test_a_fresh_key_is_for_its_owner_only_and_made_once",),
    ),
    Mutant(
        name="a_round_twice_in_a_graph",
        why="Two histograms of one graph may have the same noise: the difference of what they release is exact.",
        edits=(Edit("transforms/noisy_threshold.py", "    if name in claimed:\n", "    if not name:\n"),),
        tests=("tests/transforms/test_context.py::test_a_round_is_in_a_graph_once",),
    ),
    Mutant(
        name="a_vocabulary_under_another_key",
        why="The words of a public vocabulary are named by another key than the users' tokens: what is released no "
        "longer depends on the users, and nobody is told.",
        edits=(
            Edit("transforms/vocabulary.py", "        self._source.verify_binding(binding)", "        str(binding)"),
        ),
        tests=("tests/transforms/test_vocabulary.py::test_another_key_or_other_settings_are_found_out",),
    ),
    Mutant(
        name="key_in_the_graph",
        why="The key travels in the job's description, where whoever may look at the job can read it.",
        edits=(
            Edit(
                "transforms/bind_release.py",
                "return Randomness(key, release, applied_label(pipeline), named, window_delay)",
                "return Randomness(key, release, applied_label(pipeline), named + key.load().hex(), window_delay)",
            ),
        ),
        tests=("tests/transforms/test_extract.py::test_labels_and_secrets_of_the_graph[paper]",),
    ),
    Mutant(
        name="names_run_together",
        why="Names of a derivation are joined without their lengths: label 'a' in place 'bc' draws as 'ab' in 'c'.",
        edits=(
            Edit(
                "transforms/randomness/prf.py", 'mac.update(len(part).to_bytes(8, "little") + part)', "mac.update(part)"
            ),
        ),
        tests=("tests/transforms/randomness/test_prf.py::test_derived_keys_do_not_confuse_their_names",),
    ),
    Mutant(
        name="noise_of_one_sign",
        why="The noise is never negative: a cell below the lowest possible noisy weight has no user.",
        edits=(
            Edit("transforms/randomness/draws.py", "    return np.where(upper, -z, z)\n", "    return np.abs(z)\n"),
        ),
        tests=(
            "tests/transforms/randomness/test_draws.py::test_normal_is_symmetric_and_finite",
            "tests/transforms/randomness/test_draws.py::test_normal_law",
        ),
        attack="crowd",
    ),
    Mutant(
        name="noise_of_53_bits",
        why="The tails end where a float's bits do, at 8 sigma, and have gaps: values that only one weight can reach.",
        edits=(
            Edit(
                "transforms/randomness/draws.py",
                "    for word in bits.T[::-1]:\n        midpoint = (word + midpoint) * 2.0**-64\n",
                "    midpoint = ((bits[:, 0] >> np.uint64(11)) + 0.5) * 2.0**-53\n",
            ),
        ),
        tests=("tests/transforms/randomness/test_draws.py::test_uniform_keeps_its_precision_near_zero",),
    ),
    Mutant(
        name="tails_of_128_bits",
        why="Tails end at 13 sigma, and steps beyond 10 sigma have few draws: some values only one weight can "
        "reach, and the plan pays for those beyond 16.9 sigma only.",
        edits=(Edit("transforms/randomness/draws.py", "    if len(far):\n", "    if len(far) < 0:\n"),),
        tests=("tests/transforms/randomness/test_draws.py::test_draws_in_the_far_tail_have_256_bits",),
    ),
    Mutant(
        name="counts_from_sums_of_single_steps",
        why="Sums of a million terms, one after another, are off by more than plans pay for.",
        edits=(
            Edit("transforms/randomness/draws.py", "    width = math.isqrt(len(terms)) + 1\n", "    width = 3\n"),
            Edit(
                "transforms/randomness/draws.py",
                "np.cumsum(rows, axis=1)",
                "np.cumsum(rows.astype(np.float32), axis=1)",
            ),
        ),
        tests=("tests/transforms/randomness/test_draws.py::test_binomial_against_exact_quantiles",),
    ),
)

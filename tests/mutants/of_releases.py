"""Mutants of what is released: thresholds, zero cells, windows, and what the noise does not cover."""

from mutants.mutant import Edit, Mutant

__all__ = ["RELEASES"]

_NOISE = "tests/transforms/randomness/test_noise.py"
_REFERENCE = "tests/transforms/test_reference.py::test_released_grams_are_identical[0-both]"
_OF_PLUS = "tests/transforms/policies/test_plus.py"
_SPURIOUS = "transforms/add_spurious_grams.py"

RELEASES = (
    Mutant(
        name="exact_weight_in_the_output",
        why="Grams are chosen by their noisy weights, and published with the exact ones.",
        edits=(
            Edit(
                "transforms/noisy_threshold.py",
                "        noisy=noisy,\n",
                "        noisy=reached.weight // noise.step,\n",
            ),
        ),
        tests=(_REFERENCE,),
        attack="crowd",
    ),
    Mutant(
        name="no_grid",
        why="Weights keep the low bits of a floating-point quantile, from which exact sums can be told (Mironov 2012).",
        edits=(Edit("transforms/randomness/noise.py", "_GRID_BITS = 14\n", "_GRID_BITS = 64\n"),),
        tests=(f"{_NOISE}::test_threshold_is_raised_to_the_grid", _REFERENCE),
    ),
    Mutant(
        name="rho_rounded_down",
        why="A threshold lowered to the grid shows lone tokens more often than delta allows.",
        edits=(
            Edit(
                "transforms/randomness/noise.py",
                "return math.ceil(Fraction(rho) * UNIT / self.step)",
                "return math.floor(Fraction(rho) * UNIT / self.step)",
            ),
        ),
        tests=(f"{_NOISE}::test_threshold_is_raised_to_the_grid",),
    ),
    Mutant(
        name="noisy_weights_rounded_to_nearest",
        why="A value half a step below rho_1 is shown: lone tokens appear more often than delta allows.",
        edits=(
            Edit(
                "transforms/randomness/noise.py",
                "return (weight + noise) // self.step",
                "return (weight + noise + self.step // 2) // self.step",
            ),
        ),
        tests=(_REFERENCE,),
    ),
    Mutant(
        name="light_cells_never_pass",
        why="Cells below half of the threshold get no noise at all: a released gram of little weight is then "
        "spurious, and it "
        "is known that nobody has it.",
        edits=(
            Edit(
                "transforms/randomness/noise.py",
                "return np.flatnonzero((bits[:, 0] >= least_word) | (weight >= half))",
                "return np.flatnonzero(weight >= half)",
            ),
        ),
        tests=(f"{_NOISE}::test_cells_that_noise_carries_over_the_threshold_are_all_looked_at",),
    ),
    Mutant(
        name="pruning_with_an_unnoised_set",
        why="A gram whose prefix or suffix has one posting only is pruned, though both are in S_{k-1}: what a "
        "user may give "
        "depends on exact counts of others.",
        edits=(
            Edit(
                "transforms/blocks/candidates.py",
                "np.repeat(level.find(self.grams), np.diff(self.gram_start))",
                "np.repeat(np.where(np.diff(self.gram_start) > 1, level.find(self.grams), -1), "
                "np.diff(self.gram_start))",
            ),
        ),
        tests=(_REFERENCE,),
    ),
    Mutant(
        name="spurious_grams_left_out",
        why="Only grams that somebody has are released: each of them tells that it has a user.",
        edits=(Edit(_SPURIOUS, "is_zero = (find_keys(taken, zero) < 0)", "is_zero = np.zeros(len(zero), bool)"),),
        tests=(_REFERENCE,),
        attack="gap",
    ),
    Mutant(
        name="half_of_the_spurious_grams",
        why="Zero cells are drawn with half of their probability: a released gram is more likely to have a user "
        "than the "
        "mechanism allows.",
        edits=(
            Edit(
                "transforms/policies/cutoffs.py",
                "np.where(has_floor, self.noise.zero_probability(self.floor), 0.0)",
                "np.where(has_floor, self.noise.zero_probability(self.floor) / 2, 0.0)",
            ),
        ),
        tests=("tests/transforms/policies/test_cutoffs.py::test_zero_cells_follow_the_law_of_noise",),
    ),
    Mutant(
        name="zero_probability_doubled",
        why="Zero cells pass twice as often as a cell of weight 0 would: presence and absence can be told apart.",
        edits=(
            Edit(
                "transforms/randomness/noise.py",
                "np.asarray(special.ndtr(-self.bound(least)))",
                "np.asarray(2 * special.ndtr(-self.bound(least)))",
            ),
        ),
        tests=(f"{_NOISE}::test_threshold_is_raised_to_the_grid",),
    ),
    Mutant(
        name="the_last_gram_is_never_spurious",
        why="One member of V_k is left out of the walk: when it is released, somebody has it.",
        edits=(
            Edit(
                "transforms/policies/strata.py",
                "distinct_ranks(size, count, prf, 2 * stratum)",
                "distinct_ranks(size - 1, min(count, size - 1), prf, 2 * stratum)",
            ),
        ),
        tests=(
            "tests/transforms/policies/test_strata.py::test_walk_of_extreme_probabilities",
            "tests/transforms/policies/test_strata.py::test_walk_visits_each_rank_with_the_given_probability",
        ),
    ),
    Mutant(
        name="valid_grams_counted_wrong",
        why="V_k is taken to be smaller than it is: members beyond the count are never spurious, and released only if "
        "somebody has them.",
        edits=(
            Edit(
                "transforms/policies/strata.py",
                "members = left.count[self._mine] * right.count[self._theirs].astype(np.int64)",
                "members = np.maximum(left.count[self._mine], right.count[self._theirs]).astype(np.int64)",
            ),
        ),
        tests=("tests/transforms/policies/test_strata.py::test_valid_count_and_ranks",),
    ),
    Mutant(
        name="spurious_grams_at_the_threshold",
        why="All spurious grams have the weight of the threshold: whoever reads the weights tells them apart.",
        edits=(
            Edit(
                "transforms/randomness/noise.py",
                "return np.maximum(noise // self.step, least)",
                "return np.maximum(0 * noise, least)",
            ),
        ),
        tests=("tests/transforms/policies/test_cutoffs.py::test_zero_cells_follow_the_law_of_noise",),
    ),
    Mutant(
        name="spurious_grams_after_the_real_ones",
        why="The order of the rows tells which grams nobody has.",
        edits=(
            Edit(
                _SPURIOUS,
                '    order = np.argsort(keys, kind="stable")\n    return Cells(',
                "    order = np.lexsort((keys, np.isin(keys, zero)))\n    return Cells(",
            ),
        ),
        tests=(_REFERENCE, "tests/pipelines/test_extract.py::test_release_and_manifest[paper]"),
    ),
    Mutant(
        name="nobody_leaves_no_binding",
        why="With a public vocabulary a release without any spurious gram tells that there is no user at all.",
        edits=(
            Edit(
                "transforms/bind_release.py",
                "        if not isinstance(users.windowing.windowfn, GlobalWindows):\n            return total\n",
                "        if users:\n            return total\n",
            ),
        ),
        tests=("tests/transforms/test_vocabulary.py::test_nobody_and_somebody_look_alike",),
    ),
    Mutant(
        name="a_vocabulary_in_windows",
        why="A window in which only one user is gets spurious grams; without the user it leaves nothing.",
        edits=(
            Edit(
                "transforms/vocabulary.py",
                "        if not isinstance(binding.windowing.windowfn, GlobalWindows):\n",
                "        if binding is None:\n",
            ),
        ),
        tests=("tests/transforms/test_vocabulary.py::test_windows_are_refused",),
    ),
    Mutant(
        name="parts_in_any_windows",
        why="A graph made of single parts may release a window twice, with a trigger that fires early or late.",
        edits=(Edit("transforms/bind_release.py", "        check_windowing(users)\n", ""),),
        tests=("tests/transforms/test_context.py::test_parts_refuse_the_windowing_that_the_whole_refuses",),
    ),
    Mutant(
        name="grams_outside_of_the_domain",
        why="A gram that is not in V_k is released if users bring it: without them its probability is 0.",
        edits=(Edit("transforms/blocks/levels.py", "        if (suffix < 0).any():\n", "        if not len(keys):\n"),),
        tests=("tests/transforms/blocks/test_levels.py::test_grams_outside_of_v_k_are_refused",),
    ),
    Mutant(
        name="tallies_in_the_order_of_parts",
        why="What a policy ranks has zero cells first: their place tells users' cells from others.",
        edits=(
            Edit(
                _SPURIOUS,
                '    order = np.argsort(keys, kind="stable")\n    return',
                "    order = np.arange(len(keys))\n    return",
            ),
        ),
        tests=("tests/transforms/test_add_spurious_grams.py::test_policies_see_cells_sorted_by_key",),
    ),
    Mutant(
        name="a_second_chance_for_users_grams",
        why="Drawn zero cells that users have are not taken out: such grams are released twice, or have two chances.",
        edits=(
            Edit(
                _SPURIOUS,
                "np.concatenate([np.zeros(0, np.uint64), *(part.taken for part in parts)])",
                "np.zeros(0, np.uint64)",
            ),
        ),
        tests=(_REFERENCE,),
    ),
    Mutant(
        name="workers_may_disagree_about_zero_cells",
        why="Shards that walked otherwise report other cells as taken: a gram may be in the release twice, once "
        "with each noise.",
        edits=(
            Edit(
                _SPURIOUS,
                "    if any(part.zero_cells_name != name_zero_cells(zero) for part in parts):\n",
                "    if not len(cutoffs.size):\n",
            ),
        ),
        tests=("tests/transforms/test_add_spurious_grams.py::test_walks_that_disagree_stop_the_run",),
    ),
    Mutant(
        name="a_walk_for_all_windows_of_a_bundle",
        why="Windows whose shards take turns in one bundle share zero cells, and so their draws: two releases with one "
        "noise.",
        edits=(
            Edit(
                "transforms/noisy_threshold.py",
                "return same_names and self.previous is previous and",
                "return self.previous is previous and",
            ),
        ),
        tests=("tests/transforms/test_noisy_threshold.py::test_shards_of_a_bundle_share_their_walk_and_no_other",),
    ),
    Mutant(
        name="a_walk_for_all_levels_of_a_bundle",
        why="Zero cells of another level's V_k are taken for this one's: what users have and what nobody has follow "
        "other laws.",
        edits=(
            Edit(
                "transforms/noisy_threshold.py",
                "self.previous is previous and self.earlier is earlier",
                "bool(self.window)",
            ),
        ),
        tests=("tests/transforms/test_noisy_threshold.py::test_shards_of_a_bundle_share_their_walk_and_no_other",),
    ),
    Mutant(
        name="tallies_of_exact_weights",
        why="What is active in a level of `plus` follows from exact weights instead of noisy ones.",
        edits=(
            Edit(
                "transforms/noisy_threshold.py",
                "        reached = noisy >= least\n",
                "        reached = cells.weight // noise.step >= least\n",
            ),
        ),
        tests=(f"{_OF_PLUS}::test_what_is_active_depends_on_noisy_values_only",),
    ),
    Mutant(
        name="zero_cells_tallied_by_their_mean",
        why="The tally of zero cells below the floor has no noise: what follows tells the exact number of grams that "
        "users have.",
        edits=(
            Edit(
                "transforms/policies/cutoffs.py",
                "binomial(bits[group : group + 1], rest, share)",
                "round(rest * share)",
            ),
        ),
        tests=("tests/transforms/policies/test_cutoffs.py::test_zero_cells_below_the_floor_are_multinomial",),
    ),
    Mutant(
        name="zero_cells_under_the_floor_forgotten",
        why="The chance of a group ignores that a cell is under the floor: the tallies tell zero cells from "
        "users' cells.",
        edits=(
            Edit(
                "transforms/policies/cutoffs.py",
                "share = float(masses[group] / masses[group:].sum())",
                "share = float(masses[group] / bins.tail[starts[group]])",
            ),
        ),
        tests=("tests/transforms/policies/test_cutoffs.py::test_zero_cells_below_the_floor_are_multinomial",),
    ),
    Mutant(
        name="ceilings_of_one_block",
        why="A block drops cells that it could not release alone: what others give to a cell is lost or not "
        "depending on "
        "who shares their block.",
        edits=(
            Edit("transforms/baselines/release_unions.py", "np.where(mine > 0, ceiling.of(part.digests), 0)", "mine"),
        ),
        tests=(
            "tests/transforms/baselines/test_compare_systems.py::test_the_graph_releases_what_sets_release",
            "tests/transforms/baselines/test_release_unions.py::test_unions_are_identical_to_sets[2]",
        ),
    ),
    Mutant(
        name="a_level_loses_its_last_piece",
        why="A worker that lacks a part of S_{k-1} prunes with a smaller V_k than the others: what users may give does "
        "not follow from the release any more, and zero cells are missing.",
        edits=(
            Edit(
                "transforms/blocks/pieces.py",
                "    if not found or sum(found.values()) != len(encoded):\n",
                "    if not found:\n",
            ),
        ),
        tests=("tests/transforms/blocks/test_pieces.py::test_anything_else_is_an_error",),
    ),
    Mutant(
        name="pieces_of_two_levels",
        why="Pieces of two tries of a step are put together as one level, which neither try has released.",
        edits=(Edit("transforms/blocks/pieces.py", "if len(names) > 1 or piece", "if piece"),),
        tests=("tests/transforms/blocks/test_pieces.py::test_anything_else_is_an_error",),
    ),
    Mutant(
        name="lost_parts_go_unnoticed",
        why="A runner that loses a side input makes a round without users: only zero cells are released.",
        edits=(Edit(_SPURIOUS, "        if len(theirs) == len(every):\n", "        if every is None:\n"),),
        tests=("tests/transforms/test_side_inputs.py::test_what_the_runner_loses_stops_the_run",),
    ),
    Mutant(
        name="a_part_of_a_level_is_written",
        why="Rows are missing from a file whose checksum is right: what is released depends on what a runner loses.",
        edits=(Edit("transforms/blocks/grams.py", "if waiting or done != total:", "if waiting:"),),
        tests=("tests/transforms/blocks/test_grams.py::test_a_lost_table_is_an_error",),
    ),
    Mutant(
        name="two_panes_released",
        why="A trigger that fires early releases a window twice, with the budget of once.",
        edits=(Edit("transforms/windowing.py", "    if not once:\n", "    if not trigger:\n"),),
        tests=("tests/transforms/test_windowing.py::test_refused",),
    ),
    Mutant(
        name="late_data_accepted",
        why="A post that comes late releases its window a second time.",
        edits=(
            Edit(
                "transforms/windowing.py",
                "    if windowing.allowed_lateness != 0:\n",
                "    if windowing.allowed_lateness < 0:\n",
            ),
        ),
        tests=("tests/transforms/test_windowing.py::test_refused",),
    ),
    Mutant(
        name="session_windows_accepted",
        why="Bounds of sessions come from the data: the name of a window tells when somebody wrote.",
        edits=(
            Edit(
                "transforms/windowing.py",
                "(GlobalWindows, FixedWindows, SlidingWindows):",
                "(GlobalWindows, FixedWindows, SlidingWindows) and windows is None:",
            ),
        ),
        tests=("tests/transforms/test_windowing.py::test_refused",),
    ),
    Mutant(
        name="user_ids_on_the_runners_pages",
        why="The bound on windows groups by the user id itself, and keys are shown in logs and pages of a runner.",
        edits=(
            Edit(
                "transforms/limit_windows.py",
                "            yield number, block.take(np.flatnonzero(shard == number))",
                "            part = block.take(np.flatnonzero(shard == number))\n"
                "            yield part.users[0].as_py(), part",
            ),
        ),
        tests=("tests/transforms/test_limit_windows.py::test_keys_of_the_bound_name_nobody",),
    ),
)

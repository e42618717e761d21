"""Mutants of policy `plus`: rounds that are not paid for, cells without noise, and releases that know users' cells."""

from mutants.mutant import Edit, Mutant

__all__ = ["PLUS"]

_POLICY = "transforms/policies/plus.py"
_SPURIOUS = "transforms/add_spurious_grams.py"
_CUTOFFS = "transforms/policies/cutoffs.py"
_BUDGETS = "transforms/policies/budgets.py"
_TESTS = "tests/transforms/policies/test_plus.py"
_COUNT_TESTS = "tests/transforms/test_noisy_count.py"
_COUNTED, _UNCOUNTED = (f"{_TESTS}::test_the_invariant[0]",), (f"{_TESTS}::test_the_invariant[1]",)

PLUS = (
    Mutant(
        name="the_count_is_free",
        why="Users do not pay for what they vouch for: after a count they spend at higher levels what they have given.",
        edits=(Edit(_POLICY, "            left = left - self._vouch(second, left)[2]\n", "            pass\n"),),
        tests=_COUNTED,
    ),
    Mutant(
        name="the_count_is_too_cheap",
        why="The cost of a count grows with what a user vouches for, not with its square: whoever has many cells moves "
        "the count by more than it paid for.",
        edits=(
            Edit(_BUDGETS, "    charge = root * root  #", "    charge = root * np.uint64(1 << 16)  #"),
            Edit(_BUDGETS, "    given[charge > allowed] = 0  #", "    charge = np.minimum(charge, allowed)  #"),
        ),
        tests=("tests/transforms/policies/test_budgets.py::test_a_count_is_paid_for",),
    ),
    Mutant(
        name="the_count_has_no_noise",
        why="The cut follows the exact number of cells in the zone that users have.",
        edits=(
            Edit(
                _POLICY,
                "float(noise.noisy(weight, draw.blocks(np.zeros(1, np.uint64), 0), draw)[0]) * noise.grid",
                "exact / COUNT_UNIT",
            ),
        ),
        tests=("tests/statistical/test_zero_cells.py::test_the_count_has_its_noise_even_if_nobody_vouches",),
    ),
    Mutant(
        name="no_noise_where_nobody_vouches",
        why="A count of nothing is exactly 0: the cut tells that no user has a cell in the zone.",
        edits=(
            Edit(
                _POLICY,
                "            noise = Noise(survey.count_sigma)\n",
                "            noise = Noise(survey.count_sigma if exact else 1e-6)\n",
            ),
        ),
        tests=(
            "tests/statistical/test_zero_cells.py::test_the_count_has_its_noise_even_if_nobody_vouches",
            f"{_COUNT_TESTS}::test_noise_is_drawn_even_if_nobody_vouches",
        ),
    ),
    Mutant(
        name="a_level_nobody_vouches_for_is_not_counted",
        why="Without any shard of vouched cells there is no release: it tells that nobody has a cell in the zone.",
        edits=(
            Edit(
                "transforms/noisy_count.py",
                "        if len(earlier):\n",
                "        if len(earlier) and len(every) > 1:\n",
            ),
        ),
        tests=(f"{_COUNT_TESTS}::test_noise_is_drawn_even_if_nobody_vouches",),
    ),
    Mutant(
        name="a_gram_counts_in_every_block",
        why="The minimum is taken in each block and not after the sum: a gram counts for more than 1, and how often "
        "depends on how users are cut into blocks, so the count bounds nothing.",
        edits=(
            Edit(
                _POLICY,
                "        return second.pairs.sum_by_gram(vouched), None\n",
                "        return np.minimum(second.pairs.sum_by_gram(vouched), COUNT_UNIT), None\n",
            ),
            Edit(_POLICY, "int(np.minimum(cells.weight, COUNT_UNIT).sum())", "int(cells.weight.sum())"),
        ),
        tests=(f"{_TESTS}::test_a_gram_counts_for_one_at_most",),
    ),
    Mutant(
        name="the_second_look_is_free",
        why="Users do not pay for the second look: they have more for the count and for higher levels than is left.",
        edits=(
            Edit(
                _POLICY,
                "self.users.budget - price(self._user, self._guide, self._allowed, self._full)",
                "self.users.budget",
            ),
        ),
        tests=_COUNTED,
    ),
    Mutant(
        name="the_second_look_spends_what_the_survey_spent",
        why="Where the second look may spend the whole allowance, it does so even if the survey has left less.",
        edits=(Edit(_BUDGETS, "    return np.minimum(part, budget)\n", "    return part\n"),),
        tests=_UNCOUNTED,
    ),
    Mutant(
        name="more_than_is_left_at_the_last_level",
        why="A user whose text reaches no higher level spends a whole budget, whatever it has spent before.",
        edits=(
            Edit(
                _POLICY,
                "self._allowed = np.where(users.is_last, users.budget, self._allowed)",
                "self._allowed = np.where(users.is_last, FULL_BUDGET, self._allowed)",
            ),
        ),
        tests=_UNCOUNTED,
    ),
    Mutant(
        name="the_last_count_spends_the_level_again",
        why="A user at its last level vouches with what it had before the second look.",
        edits=(
            Edit(
                _POLICY,
                "allowed = np.where(users.is_last, left, part_of(users.allowance, self.shares[2], left))",
                "allowed = np.where(users.is_last, users.budget, part_of(users.allowance, self.shares[2], left))",
            ),
        ),
        tests=_COUNTED,
    ),
    Mutant(
        name="a_users_weights_follow_its_block",
        why="How evenly users spread their weight depends on how many grams the others of their block have: removing "
        "one user changes what others give.",
        edits=(
            Edit(
                _POLICY,
                "grams = np.bincount(self._user, minlength=len(users))\n",
                "grams = np.full(len(users), len(self._user) / len(users))\n",
            ),
        ),
        tests=_UNCOUNTED,
    ),
    Mutant(
        name="silent_active_cells_have_no_noise",
        why="In the second look active cells to which no user gives weight are exactly 0: all others have a user.",
        edits=(
            Edit(
                _SPURIOUS,
                "cutoffs.noise.noisy(np.zeros(len(members), np.int64), noise.blocks(members, 0), noise)",
                "np.zeros(len(members), np.int64)",
            ),
        ),
        tests=(f"{_TESTS}::test_every_active_cell_has_fresh_noise",),
    ),
    Mutant(
        name="silent_active_cells_are_left_out",
        why="Only users' cells go on to the ranking: whatever is released has a user.",
        edits=(
            Edit(
                _SPURIOUS,
                "    silent = find_keys(theirs, members) < 0\n",
                "    silent = np.zeros(len(members), bool)\n",
            ),
        ),
        tests=(f"{_TESTS}::test_every_active_cell_has_fresh_noise",),
    ),
    Mutant(
        name="tallies_of_users_cells_only",
        why="What the law of heights is fitted to lacks the zero cells below the floors: a tally of users' cells alone "
        "tells how many grams users have.",
        edits=(Edit(_SPURIOUS, "        below = zeros_below + np.where(", "        below = np.where("),),
        tests=(f"{_TESTS}::test_every_member_is_counted_once",),
    ),
    Mutant(
        name="groups_of_zero_cells_not_drawn",
        why="All zero cells below a floor are counted in the lowest group: what is in the others has a user.",
        edits=(
            Edit(
                _CUTOFFS,
                "counts[stratum, group] = binomial(bits[group : group + 1], rest, share)",
                "counts[stratum, group] = rest",
            ),
        ),
        tests=("tests/transforms/policies/test_cutoffs.py::test_zero_cells_below_the_floor_are_multinomial",),
    ),
    Mutant(
        name="a_level_forgets_the_survey",
        why="Two runs on other processors release the same S_k after surveys that differ in one weight. Users then "
        "have other budgets, and level k+1 asks two queries with the same noise.",
        edits=(
            Edit(
                "transforms/policies/plus.py",
                "return dataclasses.replace(level, name=name_after(survey.name, level.name))",
                "return level",
            ),
        ),
        tests=("tests/transforms/policies/test_plus.py::test_the_same_release_after_another_survey_has_another_name",),
    ),
    Mutant(
        name="a_class_is_cut",
        why="Of the last class only the first half is released: which cells of a tie pass follows from their order.",
        edits=(
            Edit(
                _POLICY,
                "        grid, weight = Noise(self.level.sigma).grid, survey.weight[rows]\n",
                "        rows = rows[np.sort(np.argsort(survey.rank[rows], kind='stable')[: len(rows) - 3])]\n"
                "        grid, weight = Noise(self.level.sigma).grid, survey.weight[rows]\n",
            ),
        ),
        tests=(f"{_TESTS}::test_classes_are_released_whole",),
    ),
    Mutant(
        name="users_cells_come_first",
        why="The cells that go into the ranking have users' cells first: whoever sees the order, or cuts a tie, knows "
        "which they are.",
        edits=(
            Edit(
                _SPURIOUS,
                '    order = np.argsort(keys, kind="stable")\n    return Cells(',
                "    order = np.lexsort((keys, ~np.isin(keys, theirs)))\n    return Cells(",
            ),
        ),
        tests=(f"{_TESTS}::test_every_member_is_counted_once",),
    ),
    Mutant(
        name="both_looks_share_their_noise",
        why="Survey and second look draw the same noise for a cell: their difference is exact.",
        edits=(
            Edit(
                "transforms/randomness/noise_key.py",
                "names = (purpose, level, round_number) if not past else (purpose, level, round_number, past)",
                "names = (purpose, level)",
            ),
        ),
        tests=(f"{_TESTS}::test_every_active_cell_has_fresh_noise",),
    ),
    Mutant(
        name="survey_left_out_of_the_key",
        why="A survey that a retry made otherwise is followed by the same noise: from both, exact weights follow.",
        edits=(
            Edit(
                "transforms/randomness/noise_key.py",
                "names = (purpose, level, round_number) if not past else (purpose, level, round_number, past)",
                "names = (purpose, level, round_number)",
            ),
        ),
        tests=(f"{_COUNT_TESTS}::test_the_count_has_noise_of_its_own_for_each_survey",),
    ),
    Mutant(
        name="surveys_have_one_name",
        why="The name of a survey says only how many cells it has: another survey after a retry has the same noise.",
        edits=(
            Edit(
                "transforms/blocks/surveys.py",
                '        digest.update(len(data).to_bytes(8, "little") + data)\n',
                '        digest.update(len(data).to_bytes(8, "little"))\n',
            ),
        ),
        tests=("tests/transforms/blocks/test_surveys.py::test_a_name_is_for_all_that_is_named",),
    ),
    Mutant(
        name="heavy_cells_are_always_active",
        why="Users' cells with enough weight need not reach the floor: what is active depends on exact weights.",
        edits=(
            Edit(
                "transforms/noisy_threshold.py",
                "        reached = noisy >= least\n",
                "        reached = (noisy >= least) | (cells.weight > noise.step << 14)\n",
            ),
        ),
        tests=(f"{_TESTS}::test_what_is_active_depends_on_noisy_values_only",),
    ),
    Mutant(
        name="the_floor_follows_users_cells",
        why="The floor of a stratum is lower where users have cells: zero cells are drawn for another floor, so that "
        "what is between the two has a user.",
        edits=(
            Edit(
                "transforms/noisy_threshold.py",
                "        reached = noisy >= least\n",
                "        least = least - (np.bincount(stratum)[stratum] > 9) * (least > 0) * 4000\n"
                "        reached = noisy >= least\n",
            ),
        ),
        tests=(f"{_TESTS}::test_what_is_active_depends_on_noisy_values_only",),
    ),
    Mutant(
        name="listed_words_without_noise",
        why="Listed words that nobody has weigh exactly 0, so the prediction of level 2 tells who is there.",
        edits=(
            Edit(
                _SPURIOUS,
                "noise.noisy(np.zeros(len(words), np.int64), prf.encrypt(words.digests), prf)  #",
                "np.zeros(len(words), np.int64)  #",
            ),
        ),
        tests=("tests/transforms/test_vocabulary.py::test_all_words_have_noisy_weights_whoever_is_there",),
    ),
    Mutant(
        name="words_beyond_the_list",
        why="Tokens that are not in the public vocabulary have cells, too: whether there is one depends on one user.",
        edits=(
            Edit(_POLICY, "return listed_tokens(users, earlier)", "return all_tokens(users)"),
            Edit(_POLICY, "CandidateBlock, listed_tokens\n", "CandidateBlock, all_tokens\n"),
        ),
        tests=("tests/transforms/test_vocabulary.py::test_what_users_spend_on_listed_words",),
    ),
)

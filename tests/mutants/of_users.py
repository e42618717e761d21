"""Mutants of what one user may give: a user who counts twice, weighs too much, or moves others."""

from mutants.mutant import Edit, Mutant

__all__ = ["USERS"]

_CONTRIBUTION = "transforms/policies/clipping.py"
_CLIPPING = "tests/transforms/policies/test_clipping.py"
_REFERENCE = "tests/transforms/test_reference.py::test_released_grams_are_identical[0-both]"
_BUDGETS = "tests/transforms/policies/test_budgets.py"

USERS = (
    Mutant(
        name="others_decide_who_is_first",
        why="Documents are taken kind by kind, in an order that other users' documents decide: one user more changes "
        "which windows others are admitted to.",
        edits=(
            Edit(
                "transforms/blocks/documents.py",
                "    if len(parts) < 2:\n        yield from (block",
                "    if len(parts) < 20:\n        yield from (block",
            ),
        ),
        tests=(
            "tests/transforms/blocks/test_documents.py::test_the_documents_of_a_user_stay_in_their_order",
            "tests/pipelines/io/test_messages.py::test_others_do_not_change_the_order_of_a_users_documents",
        ),
    ),
    Mutant(
        name="no_deduplication",
        why="A gram counts as often as a user says it: a user who repeats a phrase moves its cell by more than 1.",
        edits=(
            Edit(
                _CONTRIBUTION,
                "    first = run_starts(user)\n",
                "    first = np.ones(len(user), bool)\n",
            ),
        ),
        tests=(f"{_CLIPPING}::test_a_gram_counts_once_for_each_user",),
        attack="crowd",
    ),
    Mutant(
        name="no_clipping",
        why="A user with more than Delta grams gives all of them the weight of Delta: the norm of its vector "
        "exceeds 1.",
        edits=(Edit(_CONTRIBUTION, "        _clip(block, user, first, given, cap, clip)\n", ""),),
        tests=(f"{_CLIPPING}::test_total_squared_weight_of_a_user_is_at_most_one",),
        attack="lone",
    ),
    Mutant(
        name="one_gram_beyond_the_cap",
        why="A user with Delta + 1 grams keeps them all, at the weight of Delta: norm above 1.",
        edits=(Edit(_CONTRIBUTION, "    over = given > cap\n", "    over = given > cap + 1\n"),),
        tests=(f"{_CLIPPING}::test_total_squared_weight_of_a_user_is_at_most_one",),
    ),
    Mutant(
        name="clipping_by_popularity",
        why="Users keep the grams that most others of their block have: what others give depends on a user who "
        "comes or "
        "goes, so the histogram moves by more than one user's vector.",
        edits=(
            Edit(
                _CONTRIBUTION,
                "    draw = clip.blocks(block.user[user[crowded]], block.grams[gram])[:, 0]\n",
                "    draw = np.uint64(2**63) - np.diff(block.gram_start).astype(np.uint64)[gram]\n",
            ),
        ),
        tests=(_REFERENCE,),
    ),
    Mutant(
        name="nearest_instead_of_downward_rounding",
        why="Weights rounded to the nearest integer: for half of all t the squares of a user's t weights exceed 2^64.",
        edits=(
            Edit(
                "transforms/policies/clipping.py",
                "    return np.append(0, root.astype(np.int64))\n",
                "    return np.append(0, np.rint(2.0**32 / np.sqrt(t.astype(np.float64))).astype(np.int64))\n",
            ),
        ),
        tests=(f"{_CLIPPING}::test_weights_never_exceed_norm_one",),
    ),
    Mutant(
        name="sums_in_floating_point",
        why="Sums of weights lose their last bits in an order that depends on the data and the workers: a user's "
        "presence moves cells by rounding, and a retry gives another release.",
        edits=(
            Edit(
                "transforms/blocks/cells.py",
                "    total = np.add.reduceat(weight[order], starts)\n",
                "    total = np.add.reduceat(weight[order].astype(np.float64), starts).astype(np.int64)\n",
            ),
        ),
        tests=("tests/transforms/blocks/test_cells.py::test_sums_are_exact_in_any_order",),
    ),
    Mutant(
        name="posts_of_a_user_in_two_shards",
        why="Posts are cut by their length as well as by user: a user is several users, with a budget for each.",
        edits=(
            Edit(
                "transforms/blocks/posts.py",
                "    shard = (block.user[:, 0] % np.uint64(shards)).astype(np.int64)\n",
                "    shard = ((block.user[:, 0] + block.lengths.astype(np.uint64)) % "
                "np.uint64(shards)).astype(np.int64)\n",
            ),
        ),
        tests=(_REFERENCE,),
        attack="crowd",
    ),
    Mutant(
        name="a_post_is_a_user",
        why="Posts of one user in one shard are laid out as users of their own: each gets a whole budget.",
        edits=(
            Edit(
                "transforms/group_users.py",
                "    if user_per_document:\n        place",
                "    head = np.ones(len(user), bool)\n    if user_per_document:\n        place",
            ),
        ),
        tests=(_REFERENCE,),
        attack="crowd",
    ),
    Mutant(
        name="one_user_named_otherwise_in_each_block",
        why="The name of a user depends on the block that it was read in: posts in two bundles are two users.",
        edits=(
            Edit(
                "transforms/prepare_posts.py",
                "        distinct = digests.user.strings(*split_binary(encoded.dictionary))\n",
                "        distinct = digests.user.strings(*split_binary(encoded.dictionary)) ^ np.uint64(len(users))\n",
            ),
        ),
        tests=(_REFERENCE,),
    ),
    Mutant(
        name="two_users_become_one",
        why="User ids are folded to lower case: Ann and ann share one cap and one budget, so what the one gives "
        "depends "
        "on the other, and removing one changes the histogram by more than a user's vector.",
        edits=(
            Edit(
                "transforms/document_form.py",
                "    return user.encode() if isinstance(user, str) else user\n",
                "    return user.lower().encode() if isinstance(user, str) else user\n",
            ),
        ),
        tests=("tests/transforms/test_prepare_posts.py::test_users_are_told_apart_by_their_bytes",),
    ),
    Mutant(
        name="a_shared_anonymous_user",
        why="Documents without a user become those of one user with an empty name: many people share a budget, and "
        "each of them decides what the others give.",
        edits=(
            Edit(
                "transforms/document_form.py",
                "    if not isinstance(user, (str, bytes)) or not user:\n",
                "    if not isinstance(user, (str, bytes)):\n",
            ),
        ),
        tests=("tests/transforms/test_prepare_posts.py::test_documents_that_cannot_be_used_are_left_out",),
    ),
    Mutant(
        name="a_sentence_is_a_user",
        why="Where every document is a user, cutting it into sentences makes several users of one.",
        edits=(
            Edit(
                "transforms/prepare_posts.py",
                "    if sentences and form.user_per_document:\n",
                "    if not name:\n",
            ),
        ),
        tests=("tests/pipelines/launch/test_input_flags.py::test_flags_that_cannot_be",),
    ),
    Mutant(
        name="a_file_read_twice",
        why="A file that two patterns name is read twice: in plain text every line is then two users.",
        edits=(
            Edit(
                "pipelines/io/reading.py",
                "        found.setdefault(_identity(path), path)\n",
                "        found.setdefault(path, path)\n",
            ),
        ),
        tests=("tests/pipelines/io/test_reading.py::test_a_file_that_several_patterns_name_is_read_once",),
    ),
    Mutant(
        name="budget_not_charged",
        why="Under `plus` users spend at every level what they have spent before: norm up to the root of all rounds.",
        edits=(
            Edit(
                "transforms/policies/plus.py",
                "sum_by_gram(candidates, weight), dataclasses.replace(users, budget=users.budget - charge)",
                "sum_by_gram(candidates, weight), users",
            ),
            Edit(
                "transforms/policies/plus.py",
                "pairs.sum_by_gram(given), dataclasses.replace(users, budget=users.budget - charge)",
                "pairs.sum_by_gram(given), users",
            ),
        ),
        tests=("tests/transforms/policies/test_plus.py::test_the_invariant[0]",),
    ),
    Mutant(
        name="a_new_budget_at_every_level",
        why="Every level starts with a full budget, whatever was spent before.",
        edits=(
            Edit(
                "transforms/policies/plus.py",
                "np.full(len(users), FULL_BUDGET) if self.n == 1 else users.budget",
                "np.full(len(users), FULL_BUDGET)",
            ),
        ),
        tests=(
            "tests/transforms/policies/test_plus.py::test_users_without_books_are_refused_after_level_1",
            "tests/transforms/policies/test_plus.py::test_the_invariant[0]",
        ),
    ),
    Mutant(
        name="allowances_above_the_budget",
        why="The share of a level is rounded up: a user may be allowed more than it has left, and the books wrap "
        "around to a full budget.",
        edits=(
            Edit("transforms/policies/budgets.py", "/ sums * (1 - 2.0**-48)", "/ sums * (1 + 2.0**-40)"),
            Edit(
                "transforms/policies/budgets.py",
                "np.minimum((budget.astype(np.float64) * fraction[reach]).astype(np.uint64), budget)\n",
                "np.ceil(np.minimum(budget.astype(np.float64) * fraction[reach], 2.0**63)).astype(np.uint64)\n",
            ),
        ),
        tests=(f"{_BUDGETS}::test_allowances_never_exceed_the_budget",),
    ),
    Mutant(
        name="weights_of_plus_rounded_up",
        why="A round's weights cost more than its share, so the rho of the round hides less than it should.",
        edits=(
            Edit(
                "transforms/policies/budgets.py",
                "    weight = (np.take(scale, user) * guides).astype(np.int64)\n",
                "    weight = np.ceil(np.take(scale, user) * guides).astype(np.int64)\n",
            ),
        ),
        tests=(f"{_BUDGETS}::test_no_user_spends_more_than_its_share_of_the_allowance",),
    ),
    Mutant(
        name="charged_by_the_guide",
        why="What a user pays follows its guides, not the squares of them: it spends more than it is charged.",
        edits=(
            Edit(
                "transforms/policies/budgets.py",
                "allowed.astype(np.float64) * (norms / least), 0.0)",
                "allowed.astype(np.float64) * (norms / least) ** 2, 0.0)",
            ),
        ),
        tests=(f"{_BUDGETS}::test_no_user_spends_more_than_its_share_of_the_allowance",),
    ),
    Mutant(
        name="union_clips_each_length_apart",
        why="DPSU-all is one union of all lengths, but a user gives a vector of norm 1 for each length: the root of T.",
        edits=(
            Edit(
                "transforms/baselines/release_unions.py",
                "    weight = equal_weights(together, query.max_contributions, clip)\n",
                "    weight = np.concatenate([equal_weights(part, query.max_contributions, clip) for part in grams])\n",
            ),
        ),
        tests=("tests/transforms/baselines/test_release_unions.py::test_clipping_bounds_every_user_over_all_lengths",),
    ),
    Mutant(
        name="windows_of_a_user_not_bounded",
        attack="bound",
        why="The plan is for W windows, and nobody enforces it: a user in more of them is in more releases than "
        "paid for.",
        edits=(
            Edit("transforms/extract.py", "self._bound_windows = bound_windows\n", "self._bound_windows = False\n"),
        ),
        tests=("tests/transforms/test_limit_windows.py::test_a_user_in_ten_times_as_many_windows[2-True]",),
    ),
    Mutant(
        name="any_number_of_cells",
        why="A user with a long text gives tiny weights to more cells than the plan pays rounding for.",
        edits=(Edit("transforms/policies/budgets.py", "    weight[weight < _LEAST_WEIGHT] = 0\n", ""),),
        tests=("tests/transforms/policies/test_budgets.py::test_no_weight_is_below_the_least",),
    ),
    Mutant(
        name="one_window_is_no_bound",
        why="With windows=1 nobody is limited by default: a user is in every window, and the guarantee says one.",
        edits=(
            Edit(
                "transforms/extract.py",
                "self._bound_windows = bound_windows\n",
                "self._bound_windows = bound_windows and plan.windows > 1\n",
            ),
        ),
        tests=("tests/transforms/test_limit_windows.py::test_one_window_is_a_bound_too",),
    ),
    Mutant(
        name="text_that_no_coder_takes",
        why="One user's text with half of a surrogate pair fails the run of all others.",
        edits=(Edit("transforms/limit_windows.py", "text = plain_text(text)", "pass"),),
        tests=("tests/transforms/test_limit_windows.py::test_what_a_coder_cannot_take_is_a_bad_document",),
    ),
    Mutant(
        name="a_hard_link_is_another_file",
        why="A file with two names in the input is read twice: in plain text every line is then two users.",
        edits=(
            Edit(
                "pipelines/io/reading.py",
                "    return (status.st_dev, status.st_ino) if status.st_ino else real",
                "    return real if status.st_ino else real",
            ),
        ),
        tests=("tests/pipelines/io/test_reading.py::test_a_file_that_several_patterns_name_is_read_once",),
    ),
    Mutant(
        name="tokens_by_chance",
        why="A tokenizer that draws lots gives other tokens to a bundle that runs again: two data sets in one release.",
        edits=(Edit("transforms/tokenizers/by_text.py", '.get("dropout"):', '.get("dropout") == "never":'),),
        tests=("tests/transforms/tokenizers/test_by_text.py::test_a_tokenizer_that_draws_lots_is_refused",),
    ),
    Mutant(
        name="one_window_too_many",
        why="A user may be in W + 1 windows; the noise is for W.",
        edits=(Edit("transforms/admission.py", "if len(new) <= left[who]:", "if len(new) <= left[who] + 1:"),),
        tests=("tests/transforms/test_admission.py::test_admission",),
    ),
    Mutant(
        name="windows_that_are_over_forgotten",
        why="A user's windows count until they are over, and then no more: the user is in any number of them.",
        edits=(Edit("transforms/admission.py", "_CLOSED + closed", "_CLOSED + 0 * closed"),),
        tests=("tests/transforms/test_admission.py::test_windows_that_are_over_keep_their_number",),
    ),
    Mutant(
        name="a_users_late_windows_are_kept",
        why="A document beyond W is kept if one of its sliding windows is a known one: it counts in the others, too.",
        edits=(
            Edit(
                "transforms/admission.py",
                "if len(new) <= left[who]:",
                "if len(new) <= left[who] or len(new) <= high - low:",
            ),
        ),
        tests=("tests/transforms/test_limit_windows.py::test_sliding_windows_count_each_window_of_a_post[True]",),
    ),
    Mutant(
        name="admitted_at_another_time",
        why="A document goes into the window of its element's time, which a coder has cut, not into the one that was "
        "counted: a user is in more windows than were paid for.",
        edits=(
            Edit(
                "transforms/limit_windows.py",
                "        time = timestamp.micros // 1000\n",
                "        time = int(timestamp.micros / 1000)\n",
            ),
        ),
        tests=("tests/transforms/test_limit_windows.py::test_times_that_a_coder_cuts",),
    ),
)

"""Mutants of the ledger: releases that are not counted, or not in full."""

from mutants.mutant import Edit, Mutant

__all__ = ["LEDGER"]

_COMPOSITION = "accounting/composition.py"
_FILE = "pipelines/io/ledger_file.py"
_FLAGS = "pipelines/launch/ledger_flags.py"

LEDGER = (
    Mutant(
        name="level_one_of_later_releases_left_out",
        why="Each release may show a token of one user alone, and only the first is counted.",
        edits=(
            Edit(
                _COMPOSITION,
                "_add_up([one.first_level_delta for one in spent])",
                "spent[0].first_level_delta",
            ),
        ),
        tests=("tests/accounting/test_composition.py::test_several_releases_against_sixty_digits",),
    ),
    Mutant(
        name="precision_of_later_releases_left_out",
        why="The touched cells of later releases are drawn with finite precision, and nobody pays for it.",
        edits=(Edit(_COMPOSITION, "        sum(one.cells for one in spent),\n", "        spent[0].cells,\n"),),
        tests=("tests/accounting/test_composition.py::test_several_releases_against_sixty_digits",),
    ),
    Mutant(
        name="a_budget_that_checks_only_the_sum",
        why="Later plans may follow results towards whichever part of the budget is left, which no proof covers.",
        edits=(
            Edit(
                _COMPOSITION,
                "                and total.first_level_delta <= limits.first_level_delta\n",
                "",
            ),
        ),
        tests=("tests/accounting/test_composition.py::test_the_limits_follow_from_the_first_release_alone",),
    ),
    Mutant(
        name="an_entry_after_the_run",
        why="A run that dies after its noise was seen is not in the ledger.",
        edits=(
            Edit("pipelines/extract.py", "    if not dry_run:\n        account.enter()\n", ""),
            Edit(
                "pipelines/extract.py",
                "    status = _show(_summary(flags.output), account)\n",
                "    account.enter()\n    status = _show(_summary(flags.output), account)\n",
            ),
        ),
        tests=("tests/pipelines/test_ledger.py::test_the_entry_is_there_before_anything_runs",),
    ),
    Mutant(
        name="keys_that_nothing_remembers_are_one_release",
        why="Two releases of other data with one variable are entered once.",
        edits=(
            Edit(_FLAGS, 'if not key.is_remembered or key.scheme == "gcp-secret":', 'if key.scheme == "gcp-secret":'),
        ),
        tests=("tests/pipelines/launch/test_ledger_flags.py::test_what_nothing_remembers_is_a_new_release_each_time",),
    ),
    Mutant(
        name="a_key_without_its_record_repeats_a_release",
        why="Where the record of a key is gone, other data are released with it, and entered as the release before.",
        edits=(Edit(_FLAGS, "[:32], repeats)", "[:32], True)"),),
        tests=("tests/pipelines/launch/test_ledger_flags.py::test_only_a_record_that_is_there_now_makes_a_repetition",),
    ),
    Mutant(
        name="the_state_of_the_launcher_is_a_record_of_the_workers",
        why="Workers on other machines do not find the record, and take other data; the ledger counts one release.",
        edits=(Edit("transforms/randomness/noise_key.py", "self.places() if place.lasts]", "self.places()]"),),
        tests=(
            "tests/pipelines/launch/test_ledger_flags.py::test_workers_elsewhere_do_not_see_the_state_of_this_machine",
        ),
    ),
    Mutant(
        name="a_ledger_without_a_lock",
        why="Two runs at once both have the last of a budget, or one writes over the other's entry.",
        edits=(
            Edit(_FILE, "                fcntl.flock(descriptor, fcntl.LOCK_EX if write else fcntl.LOCK_SH)\n", ""),
        ),
        tests=("tests/pipelines/io/test_ledger_file.py::test_many_at_once",),
    ),
    Mutant(
        name="lines_cut_off_a_ledger_unnoticed",
        why="Whoever cuts off the last lines has their budget again.",
        edits=(Edit(_FILE, "        if len(digests) <= lines or digests[lines] != digest:\n", "        if False:\n"),),
        tests=("tests/pipelines/io/test_ledger_file.py::test_edits_are_noticed",),
    ),
)

"""Mutants of the gate: whether there is a release at all follows one user, or is not paid for."""

from mutants.mutant import Edit, Mutant

__all__ = ["GATE"]

_GATE = "transforms/decide_release.py"
_GROUP = "transforms/group_users.py"
_PLAN = "accounting/plan.py"
_TESTS = "tests/transforms/test_decide_release.py"

GATE = (
    Mutant(
        name="gate_counts_records",
        why="A user counts as often as it has bad records: 250 of them stop a run of twenty thousand users.",
        edits=(Edit(_GROUP, "    bad = _distinct(posts.bad)\n", "    bad = posts.bad\n"),),
        tests=(f"{_TESTS}::test_one_user_moves_the_statistic_by_at_most_one[0.01-0]",),
    ),
    Mutant(
        name="gate_forgets_whose_records_are_bad",
        why="The user of a bad record is not told to the gate, so that each of the user's bad records counts.",
        edits=(
            Edit(
                "pipelines/io/parsing.py",
                '        return "bad_text", None, usable\n',
                '        return "bad_text", None, []\n',
            ),
        ),
        tests=("tests/pipelines/io/test_reading.py::test_whose_records_are_bad[jsonl]",),
    ),
    Mutant(
        name="gate_forgets_users_of_broken_text",
        why="A user whose texts are not UTF-8 counts once for each of them: hundreds stop a run.",
        edits=(
            Edit(
                "pipelines/io/parsing.py",
                '        return "bad_utf8", None, _whose(line, fields)\n',
                '        return "bad_utf8", None, []\n',
            ),
        ),
        tests=("tests/pipelines/io/test_reading.py::test_whose_records_are_bad[jsonl]",),
    ),
    Mutant(
        name="gate_without_noise",
        why="Whether there is a release is decided by exact counts: at the margin one user decides.",
        edits=(Edit(_GATE, "(self.excess(counts) + noise) // step", "self.excess(counts) // step"),),
        tests=(f"{_TESTS}::test_the_verdict_is_that_of_a_gaussian",),
    ),
    Mutant(
        name="gate_with_half_its_noise",
        why="The noise of the gate is half of what the plan pays for.",
        edits=(Edit(_GATE, "* (self.sigma * UNIT))", "* (self.sigma * UNIT / 2))"),),
        tests=(f"{_TESTS}::test_the_verdict_is_that_of_a_gaussian",),
    ),
    Mutant(
        name="gate_share_not_charged",
        why="The levels have all of the budget, and the gate spends its part on top; the plan's check agrees.",
        edits=(
            Edit(_PLAN, "[*((1 - GATE_SHARE) * part for part in parts), GATE_SHARE]", "[*parts, GATE_SHARE]"),
            Edit(
                "accounting/schedules.py",
                "    total = math.fsum(shares)\n    return tuple(sigma",
                "    total = 1\n    return tuple(sigma",
            ),
            Edit(_PLAN, "compose_sigmas([*levels, gate])", "compose_sigmas(levels)"),
        ),
        tests=("tests/accounting/test_plan.py::test_known_points",),
    ),
    Mutant(
        name="bad_records_left_out_of_the_fingerprint",
        why="A key can be used again with other bad records: the gate asks twice with the same noise.",
        edits=(
            Edit(
                _GROUP,
                '*source.digest("bad").encrypt(bad), np.frombuffer(unnamed_sum',
                "np.frombuffer(unnamed_sum",
            ),
        ),
        tests=(f"{_TESTS}::test_whose_records_are_bad_is_in_the_fingerprint",),
    ),
    Mutant(
        name="records_without_a_user_left_out_of_the_fingerprint",
        why="A key can be used again with more bad records that have no user: the gate asks twice with the same noise.",
        edits=(Edit(_GROUP, "* posts.unnamed_bad % (1 << 128)", "* 0"),),
        tests=(f"{_TESTS}::test_whose_records_are_bad_is_in_the_fingerprint",),
    ),
    Mutant(
        name="the_fraction_left_out_of_the_key",
        why="The same noise decides about two fractions: the two verdicts together tell more than one may.",
        edits=(
            Edit(
                "transforms/extract.py",
                '            "max_bad_fraction": 1.0 if self._gate is None else self._gate.max_bad_fraction,\n',
                "",
            ),
        ),
        tests=(f"{_TESTS}::test_the_fraction_and_bad_records_are_bound_to_the_noise[paper]",),
    ),
    Mutant(
        name="one_document_of_no_form_fails_the_run",
        why="A document without a user, which a host's parser may make of one user's record, stops the run by itself.",
        edits=(
            Edit(
                "transforms/document_form.py",
                "            except UNUSABLE:\n                unnamed += 1\n",
                "            except UNUSABLE:\n                raise\n",
            ),
        ),
        tests=(f"{_TESTS}::test_a_gate_by_default_stops_a_graph_that_reads_nothing",),
    ),
    Mutant(
        name="nothing_waits_for_the_gate",
        why="The run goes on without the verdict: levels, checkpoints and rows exist although the gate stops the run.",
        edits=(
            Edit(
                "transforms/bind_release.py",
                'content = content | "Decide" >> DecideRelease(self._randomness, gate)',
                'content | "Decide" >> DecideRelease(self._randomness, gate)',
            ),
        ),
        tests=("tests/pipelines/test_extract.py::test_all_that_draws_and_writes_waits_for_the_gate",),
    ),
)

"""What a worker may say: a table, and nothing beside it.

Every `raise` of the package is looked at. One with a message either takes it from the table, or stands where only the
launcher comes by, or is listed here with the reason why no user ever sees it.
"""

import ast
import string
from pathlib import Path

import pytest

from dpngram.transforms.messages import Message

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("accounting", "transforms", "pipelines")
# Rooms and folders whose functions run when a plan is made, a graph is built or a page is drawn. A function in them
# that Beam calls (a DoFn's method, or one given to Map or FlatMap) is looked at all the same.
LAUNCHER = (
    "accounting/",  # a plan that exists passed its checks
    "pipelines/launch/",
    "pipelines/pages/",
    "pipelines/research/",
    *(
        f"pipelines/{name}.py"
        for name in (
            "audit",
            "beam_yaml",
            "compare",
            "extract",
            "frames",
            "ledger",
            "plan",
            "stream",
            "synth",
            "template",
        )
    ),
)
BUILT = "runs when the graph is built"
CHECKED = "is checked when the graph is built; here it cannot happen any more"
ALLOWED = {
    "pipelines/io/bigquery.py check_table": BUILT,
    "transforms/extract.py ExtractLevels.up_to": BUILT,
    "pipelines/io/input_formats.py InputFormat.__post_init__": BUILT,
    "pipelines/io/deny_list.py read_deny_list": BUILT,
    "pipelines/io/input_formats.py format_of_files": BUILT,
    **dict.fromkeys(
        (
            f"pipelines/io/ledger_file.py {name}"
            for name in (
                *(f"Ledger.{method}" for method in ("__init__", "_refuse", "_locked", "_parse", "_check_head")),
                "_check_budget",
            )
        ),
        "a ledger is used before the run, never on a worker",
    ),
    "pipelines/io/look.py avro_columns": "a look before the run; its caller chooses the words",
    "pipelines/io/look.py look_at_files": BUILT,
    "transforms/vocabulary.py PublicVocabulary.__post_init__": BUILT,
    "transforms/vocabulary.py PublicVocabulary.of": BUILT,
    "transforms/vocabulary.py _lines": BUILT,
    "pipelines/io/input_formats.py InputFormat._files": CHECKED,
    "pipelines/io/kafka.py PlacesTracker.check_done": "a mistake in our own code: every call puts off, or ends",
    "pipelines/io/output_directory.py prepare_output": BUILT,
    "pipelines/io/output_directory.py _check_finished": BUILT,
    "pipelines/io/output_directory.py _look_at_checkpoints": BUILT,
    "pipelines/io/output_directory.py _look_at_notes": BUILT,
    "pipelines/io/encoding.py _row": "reads a finished release; its callers tell the user what to do",
    **dict.fromkeys(
        (f"pipelines/io/load_release.py {name}" for name in ("read_release", "_load")),
        "reads a finished release, never on a worker",
    ),
    "pipelines/io/release_files.py rows_path": "reads a finished release; its callers tell the user what to do",
    "pipelines/io/writing.py _Writer.__init__": BUILT,
    "transforms/baselines/compare_systems.py CompareSystems.__init__": BUILT,
    "transforms/blocks/columns.py _decode": "becomes DAMAGED_BLOCK in `Block.from_bytes`",
    "transforms/blocks/columns.py _unpack": "becomes DAMAGED_BLOCK in `Block.from_bytes`",
    "transforms/bind_release.py check_key": BUILT,
    "transforms/bind_release.py choose_key": BUILT,
    "transforms/blocks/candidates.py open_candidates": "there are two kinds of users; a mistake in our own code",
    "transforms/blocks/columns.py Block.to_bytes": "a mistake in our own code: no input decides what a field holds",
    "transforms/document_form.py check_form": BUILT,
    "transforms/document_types.py check_documents": BUILT,
    "transforms/extract.py ExtractLevels._limit_windows": BUILT,
    "transforms/extract.py ExtractLevels._make_round": BUILT,
    "transforms/noisy_threshold.py claim_round": BUILT,
    "transforms/policies/base.py RoundPolicy.__post_init__": BUILT,
    "transforms/policies/cutoffs.py Cutoffs.__post_init__": "a mistake of a policy; ours have tests",
    "transforms/policies/paper.py PaperRound.weigh": CHECKED,
    "transforms/policies/plus.py PlusCount.cutoffs": "a mistake in our own code: the graph asks a count for none",
    "transforms/policies/plus.py _with_grams": "there are two kinds of users; a mistake in our own code",
    "transforms/prepare_posts.py choose_tokenizer": BUILT,
    "transforms/randomness/draws.py binomial": "callers expect fewer than 2^31 cells, with chances inside (0, 1)",
    "transforms/randomness/key_records.py state_directory": BUILT,
    "transforms/randomness/key_records.py remember": "becomes KEY_RECORD_UNREADABLE in `KeyReference.remember`",
    "transforms/randomness/key_records.py _read": "becomes KEY_RECORD_UNREADABLE in `KeyReference.remember`",
    "transforms/randomness/noise_key.py KeyReference.parse": BUILT,
    "transforms/randomness/noise_key.py KeyReference.create_if_missing": BUILT,
    "transforms/tokenizers/__init__.py _name_of": BUILT,
    "transforms/tokenizers/__init__.py _named_tokenizer": BUILT,
    "transforms/tokenizers/by_text.py CallableTokenizer.__post_init__": BUILT,
    "transforms/tokenizers/by_text.py HuggingFaceTokenizer.__post_init__": BUILT,
    "transforms/tokenizers/by_text.py RegexTokenizer.__post_init__": BUILT,
    "transforms/windowing.py check_delay": BUILT,
    "transforms/windowing.py check_windowing": BUILT,
    "transforms/windowing.py window_name": CHECKED,
}


class _Raises(ast.NodeVisitor):
    """All `raise` statements of a module with a message, by where they stand."""

    def __init__(self, tree):
        self.found = []  # (names of classes and functions around it, whether Beam calls that, the statement)
        self._names, self._bases, self._called = [], [], False
        self._given = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("beam.Map", "beam.FlatMap", "beam.MapTuple"):
                self._given |= {ast.unparse(argument) for argument in node.args[:1]}
        self.visit(tree)

    def visit_ClassDef(self, node):
        self._names.append(node.name)
        self._bases.append(" ".join(map(ast.unparse, node.bases)))
        self.generic_visit(node)
        self._names.pop()
        self._bases.pop()

    def visit_FunctionDef(self, node):
        before = self._called
        of_step = bool(self._bases) and ("DoFn" in self._bases[-1] or "CombineFn" in self._bases[-1])
        self._called = before or node.name in self._given or (of_step and node.name != "__init__")
        self._names.append(node.name)
        self.generic_visit(node)
        self._names.pop()
        self._called = before

    def visit_Raise(self, node):
        if isinstance(node.exc, ast.Call) and node.exc.args:
            of_transform = bool(self._bases) and "PTransform" in self._bases[-1]
            built = of_transform and self._names[-1] in ("__init__", "expand", "_bounded")
            self.found.append((".".join(self._names[:2]), self._called, built, node))


def sites():
    """(file, place in it, whether Beam calls the function, whether it is a composite's, the message)."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            for place, called, built, node in _Raises(ast.parse(path.read_text(encoding="utf-8"))).found:
                yield name, place, called, built, node.exc.args[0]


def is_from_the_table(message):
    call = message.func if isinstance(message, ast.Call) else None
    if not isinstance(call, ast.Attribute) or call.attr != "format":
        return False
    return ast.unparse(call.value) in {f"Message.{one.name}" for one in Message}


def test_every_message_on_a_worker_is_in_the_table():
    wrong = []
    for file, place, called, built, message in sites():
        listed = f"{file} {place}" in ALLOWED
        on_launcher = not called and (built or listed or file.startswith(LAUNCHER))
        if not is_from_the_table(message) and not on_launcher:
            wrong.append(f"{file} {place} line {message.lineno}: {ast.unparse(message)[:80]}")
    assert wrong == []


def test_every_message_of_the_table_is_raised():
    used = {ast.unparse(message.func.value) for _, _, _, _, message in sites() if is_from_the_table(message)}
    assert used == {f"Message.{one.name}" for one in Message}


def test_the_list_is_needed():
    """What no longer raises, or takes its message from the table, is taken out of the list."""
    free = {f"{file} {place}" for file, place, _, _, message in sites() if not is_from_the_table(message)}
    assert set(ALLOWED) - free == set()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("class A(beam.DoFn):\n  def process(self, x):\n    raise ValueError('no')", (True, False)),
        ("def f(x):\n  raise ValueError('no')\nbeam.Map(f, 3)", (True, False)),
        ("def f(x):\n  raise ValueError('no')", (False, False)),
        ("class A(beam.PTransform):\n  def expand(self, x):\n    raise ValueError('no')", (False, True)),
    ],
)
def test_the_walk_has_eyes(code, expected):
    ((_, called, built, node),) = _Raises(ast.parse(code)).found
    assert (called, built) == expected
    assert not is_from_the_table(node.exc.args[0])


def test_what_the_table_may_hold():
    """One line, a full stop, and fields that are numbers but for two; no message is part of another."""
    for one in Message:
        assert one.value[-1] in ".?"
        assert "\n" not in one.value
        fields = [name for _, name, _, _ in string.Formatter().parse(one.value) if name is not None]
        assert all(name and name.isidentifier() for name in fields)
        assert set(one.numbers) == set(fields) - {"key", "kind"}
        assert [other for other in Message if other is not one and one.value in other.value] == []


VALUES = {"key": "file:/a/b.key", "kind": "ValueError", "allowed": 0.01, "sigma": 1.5e9}


def sentence(one):
    return one.format(**{**dict.fromkeys(one.numbers, 1234567), **VALUES})


@pytest.mark.parametrize("one", Message)
def test_a_message_is_found_again(one):
    """Alone, among other words, and the last of several; numbers as they were."""
    text = sentence(one)
    for around in ("{}", "Traceback\n  x.ValueError: {} [while running 'A/B']\n\nmore", "{}\n{}"):
        found = one.find(around.replace("{}", text))
        assert found is not None
        assert one.repeat(found, VALUES["key"], VALUES["kind"]) == text
    twice = f"{text}\n{text}"
    assert one.find(twice).start() >= len(text)
    assert one.find(text[:-1]) is None
    assert [other for other in Message if other is not one and other.find(text)] == []


def test_a_number_is_a_number():
    """Where a number should be, no text is taken over."""
    text = sentence(Message.LEVEL_TOO_LARGE)
    assert Message.LEVEL_TOO_LARGE.find(text) is not None
    assert Message.LEVEL_TOO_LARGE.find(text.replace("1,234,567", "alice").replace("1234567", "alice")) is None
    text = sentence(Message.TOO_MANY_BAD_RECORDS)
    assert Message.TOO_MANY_BAD_RECORDS.find(text) is not None
    assert Message.TOO_MANY_BAD_RECORDS.find(text.replace("0.01", "0.01 and alice")) is None

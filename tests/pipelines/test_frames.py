"""`dpngram.extract_frame`: a frame in, a frame out."""

import ast
import concurrent.futures
import json
import subprocess
import sys
import types
from datetime import date
from decimal import Decimal
from uuid import UUID

import apache_beam as beam
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from helpers.runs import BUDGET, GOOD, extract, files, write

import dpngram
from dpngram.pipelines import frames
from dpngram.pipelines.launch import local_memory
from dpngram.transforms.blocks import scratch

PLAN = {"epsilon": 20, "delta": 0.1, "max_n": 3, "max_contributions": 12, "eta": 0.1}
FRAME = pd.DataFrame(GOOD).rename(columns={"user": "author", "text": "body"}).assign(score=1.5, when=pd.Timestamp(0))
NAMES = {"user": "author", "text": "body"}


def rows(frame):
    return [(n, list(tokens), weight) for n, tokens, weight in zip(frame["n"], frame["tokens"], frame["weight"])]  # noqa: B905


def test_the_same_release_as_from_a_file(key, tmp_path):
    """The same data and key: the weights of `dpngram extract`, in its order, whatever the kind of the frame."""
    assert extract(tmp_path / "out", "--input", write(tmp_path / "in.jsonl", GOOD), "--noise_key", key) == 0
    data = b"".join(content for name, content in sorted(files(tmp_path / "out").items()) if name.startswith("ngrams"))
    expected = [(row["n"], row["tokens"], row["weight"]) for row in map(json.loads, data.splitlines())]
    assert len(expected) > 10
    found = dpngram.extract_frame(FRAME, **NAMES, **PLAN, noise_key=key)
    assert rows(found) == expected
    assert list(found.columns) == ["n", "phrase", "tokens", "weight"]
    assert list(found["phrase"]) == [" ".join(tokens) for _, tokens, _ in expected]
    for changed in (
        FRAME.sample(frac=1, random_state=1),
        FRAME.assign(body=FRAME["body"].astype("category"), author=FRAME["author"].astype("string")),
        FRAME.set_index("score"),
    ):
        assert rows(dpngram.extract_frame(changed, **NAMES, **PLAN, noise_key=key)) == expected
    table = dpngram.extract_frame(pa.Table.from_pandas(FRAME), **NAMES, **PLAN, noise_key=key)
    assert isinstance(table, pa.Table)
    assert rows(table.to_pydict()) == expected
    assert BUDGET[1] == "20"  # the plan of the file


def test_nothing_goes_to_disk(tmp_path, monkeypatch):
    """Also while another run of this process keeps its blocks there, and however little memory there is."""
    monkeypatch.setattr(scratch, "LEAST", 0)
    monkeypatch.setattr(local_memory, "machine_memory", lambda: 1)
    with scratch.Scratch(str(tmp_path)).in_use() as opened, concurrent.futures.ThreadPoolExecutor(1) as pool:
        found = pool.submit(dpngram.extract_frame, FRAME, **NAMES, **PLAN, policy="paper").result()
        assert opened.written == 0
    assert len(found) > 10


def test_many_batches(monkeypatch, key):
    expected = rows(dpngram.extract_frame(FRAME, **NAMES, **PLAN, noise_key=key))
    monkeypatch.setattr(frames, "_BATCH_ROWS", 7)
    assert rows(dpngram.extract_frame(FRAME, **NAMES, **PLAN, noise_key=key)) == expected
    assert frames._INPUTS == frames._OUTPUTS == {}


def test_tokens_numbers_and_functions():
    tokens = FRAME.assign(body=FRAME["body"].str.split(), author=np.arange(len(FRAME)))
    found = dpngram.extract_frame(tokens, **NAMES, **PLAN)
    assert {"w0", "w1"} <= set(found[found["n"] == 1]["phrase"])
    found = dpngram.extract_frame(FRAME, **NAMES, **PLAN, tokenizer="whitespace", policy="paper")
    assert len(found) > 10


def test_nothing_is_a_frame_too():
    for empty in (FRAME.head(0), FRAME.head(1), pa.Table.from_pandas(FRAME.head(0))):
        found = dpngram.extract_frame(empty, **NAMES, **PLAN)
        assert len(found) == 0
        assert type(found) is type(empty)
        assert list(found.columns if isinstance(found, pd.DataFrame) else found.column_names)[1] == "phrase"


BAD = [5, 2.5, None, float("nan"), b"bytes", {"a": 1}, {"w0"}, "\ud800", ["w0", None], object(), True]


@pytest.mark.parametrize("bad", BAD, ids=lambda value: type(value).__name__)
def test_one_value_of_one_user_fails_nothing(key, bad):
    """Neither Arrow's conversion nor the gate: what all others gave is released as without it."""
    frame = pd.concat([FRAME, pd.DataFrame({"author": ["one"], "body": [bad]}, dtype=object)], ignore_index=True)
    found = dpngram.extract_frame(frame, **NAMES, **PLAN, noise_key=key)
    assert {"w0", "w1"} <= set(found["phrase"])
    if not isinstance(bad, int) or isinstance(bad, bool):
        frame = pd.concat([FRAME, pd.DataFrame({"author": [bad], "body": ["w0"]}, dtype=object)], ignore_index=True)
        assert len(dpngram.extract_frame(frame, **NAMES, **PLAN)) > 10


ANYTHING = [
    *(5, "5", np.int64(5), np.uint8(5), np.str_("5"), 5.0, np.float64(5), 1.5, True, np.True_, 2**63, 2**70, 2.0**60),
    *(float("inf"), float("nan"), None, pd.NA, pd.NaT, b"5", "\ud800", Decimal(5), date(2020, 1, 1), UUID(int=5)),
    *([], ["a"], ("a", "b"), np.array(["a"]), np.array([1]), ["a", None], ["a", 5], [None], [["a"]], {"a": 1}),
    # What Arrow takes for lists, or for texts, where nothing else of the column is in the way:
    *({"a"}, frozenset("a"), {"a": 1}.keys(), [{"a"}], ["a", b"b"], np.array([b"a"]), np.array("a"), np.array([["a"]])),
]


def read(values, parameter, dtype=object):
    """What becomes of each value of a column: its own row, whatever the others are."""
    frame = pd.DataFrame({"column": pd.Series(values, dtype=dtype), "other": ["x"] * len(values)})
    given = {"user": "other", "text": "other", parameter: "column"}
    table = frames._table(frame, **given)
    found = zip(*(table[name].cast(pa.string()).to_pylist() for name in ("user", "text")), strict=True)
    lists = [None if tokens is None or None in tokens else tokens for tokens in table["tokens"].to_pylist()]
    return [(*row, tokens) for row, tokens in zip(found, lists, strict=True)]  # a list with a null is a bad text


@pytest.mark.parametrize("parameter", ["user", "text"])
def test_a_row_is_read_by_its_own_values(parameter):
    """Otherwise one user would decide what is read of all others."""
    alone = [read([value], parameter)[0] for value in ANYTHING]
    assert {row[0] for row in alone} == ({"5", str(2**63), str(2**70), None} if parameter == "user" else {"x"})
    for value, expected in zip(ANYTHING, alone, strict=True):
        for other in ANYTHING:
            assert read([value, other], parameter)[0] == expected, (value, other)


def test_a_row_without_a_user_changes_nobody_elses():
    """pandas makes floats of all whole numbers where one is missing, and objects of them where one is a text."""
    for more, dtype in (([], "int64"), ([None], "float64"), ([None, "X"], "object")):
        users = pd.concat([pd.Series([3, 4]), pd.Series(more, dtype=dtype)])
        assert users.dtype == dtype
        assert [row[0] for row in read(list(users), "user", dtype)][:2] == ["3", "4"]


def test_one_users_lists_do_not_outvote_others_texts(key):
    """More rows of one user with lists of tokens than there are texts: all of both are read."""
    lists = pd.DataFrame({"author": ["X"] * (len(FRAME) + 1), "body": [["w0", "w1"]] * (len(FRAME) + 1)})
    found = dpngram.extract_frame(pd.concat([FRAME, lists], ignore_index=True), **NAMES, **PLAN, noise_key=key)
    expected = dpngram.extract_frame(FRAME, **NAMES, **PLAN)
    assert len(found) > 0.5 * len(expected) > 5


def test_many_bad_rows_stop_it():
    frame = pd.DataFrame({"author": [f"u{i}" for i in range(4000)], "body": [None, "a b"] * 2000})
    with pytest.raises(RuntimeError, match="max_bad_fraction must be at least the share") as caught:
        dpngram.extract_frame(frame, **NAMES, **PLAN)
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert len(dpngram.extract_frame(frame, **NAMES, **PLAN, max_bad_fraction=1)) > 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"user": "autor"},
            "user must be the name of one column, got 'autor'; the frame has author, body, score, when.",
        ),
        ({"text": "score"}, "text must be a column of texts or lists of tokens, got 'score' of type double"),
        ({"frame": pa.Table.from_pandas(FRAME), "user": "score"}, "user must be .* of type double; cast the numbers"),
        ({"user": "when"}, "user must be a column of texts or whole numbers, got 'when' of type timestamp"),
        ({"frame": [1]}, "frame must be a pandas.DataFrame or a pyarrow.Table, got list"),
        ({"frame": pd.concat([FRAME, FRAME], axis=1)}, "user must be the name of one column, got 'author'"),
        ({"epsilon": 0}, "epsilon must be"),
        ({"tokenizer": "werds"}, "tokenizer must be one of"),
        ({"budget": (1, 1e-6)}, "budget must be left out without a ledger"),
    ],
)
def test_what_cannot_be_meant(changes, words):
    with pytest.raises(dpngram.ParameterError, match=words):
        dpngram.extract_frame(**{"frame": FRAME, **NAMES, **PLAN, **changes})


def test_the_ledger(tmp_path, key):
    path = tmp_path / "ledger"
    given = {"frame": FRAME, **NAMES, **PLAN, "ledger": str(path), "budget": (25, 0.2)}
    for _ in range(2):
        dpngram.extract_frame(**given, noise_key=key)
    assert len(dpngram.Ledger(path).read()[0]) == 1
    with pytest.raises(dpngram.ParameterError, match="must fit the budget"):
        dpngram.extract_frame(**given)
    assert len(dpngram.Ledger(path).read()[0]) == 1


def test_arrow_needs_no_pandas():
    code = f"""
import sys
class Hidden:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "pandas":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hidden())
import dpngram, pyarrow
table = pyarrow.table({{"author": [f"u{{i}}" for i in range(100)], "body": ["a b"] * 100}})
print(dpngram.extract_frame(table, user="author", text="body", **{PLAN!r})["phrase"].to_pylist())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"a", "b", "a b"} <= set(ast.literal_eval(done.stdout))  # there may be spurious ones


def test_in_a_notebook(monkeypatch):
    """A bar, and nothing of Beam's own support of notebooks: it loads modules that do not know pandas 3."""
    bars = []

    class Handle:
        update = staticmethod(bars.append)

    def display(bar, *, display_id):
        assert display_id
        bars.append(bar)
        return Handle

    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: Kernel))
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "apache_beam.runners.interactive.interactive_environment", None)
    monkeypatch.setattr(dpngram.pipelines.launch.progress, "is_in_notebook", lambda: True)
    before = beam.pipeline.alter_label_if_ipython, beam.pipeline.is_in_ipython
    with pytest.raises(ImportError):
        beam.Pipeline() | beam.Create([1])
    assert len(dpngram.extract_frame(FRAME, **NAMES, **PLAN)) > 10
    assert (beam.pipeline.alter_label_if_ipython, beam.pipeline.is_in_ipython) == before
    assert [bar._repr_html_().count("<progress") for bar in bars] == [1] * len(bars)
    shown = list(map(repr, bars))
    assert "reading" in shown[0]
    assert any("level 2 of 3" in line for line in shown)
    assert shown[-1].endswith("done")
    bars.clear()
    dpngram.extract_frame(FRAME, **NAMES, **PLAN, progress=False)
    assert bars == []


class Kernel:
    config = ("IPKernelApp",)
    execution_count = 1

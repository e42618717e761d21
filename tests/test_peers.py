"""The Spark job that we are compared with: its candidates, and what it writes. It runs without Spark here."""

import importlib.util
import itertools
import json
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

pd = pytest.importorskip("pandas", reason="the package pandas is not installed")
JOB = Path(__file__).resolve().parent / "benchmarks" / "spark_job.py"


@pytest.fixture
def job(monkeypatch):
    for name in ("pyspark", "pyspark.sql"):
        monkeypatch.setitem(sys.modules, name, mock.MagicMock())
    spec = importlib.util.spec_from_file_location("spark_job", JOB)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def keys_of(job, grams, shorter):
    """As the job has them: rows of both halves; sorted."""
    rows = {gram: row for row, gram in enumerate(shorter)}
    return np.array(sorted(rows[gram[:-1]] * job.SHIFT + rows[gram[1:]] for gram in grams), np.int64)


def grams_of(job, keys, shorter):
    return [(*shorter[key // job.SHIFT], shorter[key % job.SHIFT][-1]) for key in keys.tolist()]


def test_its_candidates_are_those_of_the_paper(job):
    """V_k has the k-grams whose first and last (k-1)-grams were released, each once."""
    random = np.random.default_rng(0)
    released = [[(word,) for word in "abcd"]]
    before = np.array(list("abcd"))
    for level in (2, 3, 4):
        shorter = released[-1]
        size, keys = job.valid(before, level)
        found = grams_of(job, keys(np.arange(size)), shorter)
        words = {word for (word,) in released[0]}
        expected = {
            gram for gram in itertools.product(sorted(words), repeat=level) if {gram[:-1], gram[1:]} <= set(shorter)
        }
        assert len(found) == size == len(expected)
        assert set(found) == expected
        chosen = [gram for gram in sorted(expected) if random.random() < 0.6]
        before = keys_of(job, chosen, shorter)
        released.append(grams_of(job, before, shorter))


def test_no_candidates_when_nothing_fits_together(job):
    """ab and cd: no word triple has both of its halves."""
    before = np.array([0 * job.SHIFT + 1, 2 * job.SHIFT + 3])
    assert job.valid(before, 3)[0] == 0
    assert job.valid(np.array([]), 2)[0] == 0


def test_texts_of_a_level(job, tmp_path):
    words = ["a", "b", "c"]
    pairs = job.texts_of(pd.DataFrame({"key": [0 * job.SHIFT + 1, 1 * job.SHIFT + 2]}), 2, words)
    assert pairs == ["a b", "b c"]
    assert job.texts_of(pd.DataFrame({"key": [0 * job.SHIFT + 1]}), 3, pairs) == ["a b c"]
    job.write_level(tmp_path / "ngrams-02.jsonl", 2, pairs, [3.5, 2.0])
    rows = [json.loads(line) for line in (tmp_path / "ngrams-02.jsonl").read_text().splitlines()]
    assert rows[1] == {"n": 2, "tokens": ["b", "c"], "weight": 2.0}

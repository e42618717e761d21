"""Surveys: names, looking cells up, bytes there and back."""

import dataclasses

import numpy as np
import pytest

from dpngram.transforms.blocks import surveys
from dpngram.transforms.blocks.columns import find_keys
from dpngram.transforms.blocks.surveys import EMPTY_SURVEY, Survey, name_of


def full_survey():
    """Every field has something in it."""
    return Survey(
        keys=np.array([3, 8, 2**63], np.uint64),
        guide=np.array([0, 1, 4096], np.uint16),
        counted=1,
        rest_guide=1,
        noisy=np.array([-5, 0, 2**40]),
        stratum=np.array([0, 1, 1], np.int16),
        size=np.array([10, 20]),
        floor=np.array([0, 30]),
        guide_by_stratum=np.array([4096, 2500], np.uint16),
        guide_by_bin=np.arange(6, dtype=np.uint16).reshape(2, 3),
        zeros=np.array([9.5, 18.0]),
        certainty=np.array([4.0, 9.0]),
        prior=np.full((2, 2), 0.5),
        rank=np.array([0, 700, 885], np.uint16),
        weight=np.array([7, -1, 0]),
        reached=np.array([1, 2]),
        expected=np.array([0.25, 0.5]),
        cut=1,
        count_sigma=0.75,
    )


def other(value):
    """The same with one entry changed a little."""
    if not isinstance(value, np.ndarray):
        return value + 1
    changed = value.copy()
    flat = changed.reshape(-1)
    flat[-1] = np.nextafter(flat[-1], 99) if changed.dtype.kind == "f" else flat[-1] ^ flat.dtype.type(1)
    return changed


def test_bytes_there_and_back():
    for survey in (full_survey(), EMPTY_SURVEY):
        again = Survey.from_bytes(survey.to_bytes())
        for field in dataclasses.fields(survey):
            ours, theirs = np.asarray(getattr(survey, field.name)), np.asarray(getattr(again, field.name))
            assert ours.dtype == theirs.dtype
            assert ours.shape == theirs.shape
            assert (ours == theirs).all()


def test_a_name_is_for_all_that_is_named():
    """Columns, their order and lengths, numbers: each makes another name. A name is never 0, which stands for none."""
    keys, guide = np.array([1, 2], np.uint64), np.array([7], np.uint16)
    name = name_of(keys, guide, 1, 0.5)
    assert 0 < name < 2**63
    assert name == name_of(keys.copy(), guide.copy(), 1, 0.5)
    others = [
        name_of(keys, guide, 1, np.nextafter(0.5, 1)),
        name_of(keys, guide, 0, 0.5),
        name_of(keys, other(guide), 1, 0.5),
        name_of(other(keys), guide, 1, 0.5),
        name_of(keys[:1], guide, 1, 0.5),
        name_of(guide, keys, 1, 0.5),
        name_of(keys, guide, 1),
        name_of(np.array([1], np.uint64), np.array([2], np.uint64), guide, 1, 0.5),
        name_of(),
    ]
    assert len({name, *others}) == len(others) + 1
    assert all(others)


def test_find():
    survey = full_survey()
    assert survey.find(np.array([0, 3, 4, 8, 2**63, 2**64 - 1], np.uint64)).tolist() == [-1, 0, -1, 1, 2, -1]
    assert len(survey) == 3
    assert len(EMPTY_SURVEY) == 0
    assert EMPTY_SURVEY.find(np.array([3], np.uint64)).tolist() == [-1]


@pytest.mark.parametrize("most", [0, 1 << 20])
@pytest.mark.parametrize("size", [0, 1, 2, 30, 5000])
def test_find_as_by_a_search(monkeypatch, most, size):
    """Also where a key shares its slot with another, or is not there."""
    monkeypatch.setattr(surveys, "_MOST_HASHED", most)
    random = np.random.default_rng(size)
    keys = np.unique(random.integers(0, 1 << 63, size).astype(np.uint64))
    survey = Survey(keys=keys)
    wanted = np.concatenate(
        [keys, random.integers(0, 1 << 63, 2 * size + 3).astype(np.uint64), keys[::3] + np.uint64(1)]
    )
    rows = survey.find(wanted)
    assert rows.dtype == np.int32
    assert np.array_equal(rows, find_keys(keys, wanted))
    assert np.array_equal(survey.find(wanted[::-1]), rows[::-1])

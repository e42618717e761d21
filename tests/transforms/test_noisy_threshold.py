"""Shards of one bundle share what they have in common, and nothing else."""

import collections
import dataclasses
import itertools

import numpy as np
import pytest
from apache_beam.transforms.window import IntervalWindow

from dpngram.accounting import plan_extraction
from dpngram.transforms.blocks.cells import CellBlock
from dpngram.transforms.blocks.levels import EMPTY_LEVEL, Level
from dpngram.transforms.blocks.surveys import name_of
from dpngram.transforms.noisy_threshold import _ThresholdDoFn, threshold_cells
from dpngram.transforms.policies import make_rounds
from dpngram.transforms.policies.guide import predict
from dpngram.transforms.policies.plus import PlusSurvey
from dpngram.transforms.randomness.prf import Prf
from dpngram.transforms.testing import key_source
from dpngram.transforms.windowing import window_name

WORDS = 60
SOURCE = key_source(b"k" * 32)
PLAN = plan_extraction(epsilon=8, delta=1e-3, max_n=2, max_contributions=30, eta=0.2, policy="plus")
ROUND = make_rounds(PLAN)[1][0]


def first_level(seed):
    random = np.random.default_rng(seed)
    offsets, data = np.arange(WORDS + 1), np.arange(WORDS, dtype=np.uint8)
    weights = random.integers(1 << 14, 1 << 20, WORDS)
    level = Level.first(offsets, data, Prf(b"t" * 32).strings(offsets, data), weights, 2.0**-10, 1.0)
    level = predict(level, EMPTY_LEVEL, 1.0)
    return dataclasses.replace(level, name=name_of(level.left, level.right))


def cells(seed):
    random = np.random.default_rng(seed)
    return CellBlock(
        keys=np.unique(random.integers(0, WORDS, 50) << 32 | random.integers(0, WORDS, 50)).astype(np.uint64)[:30],
        weight=random.integers(1, 1 << 36, 30),
    )


@pytest.fixture
def walks(monkeypatch):
    """How often a cut is made, and so a walk. Strata have floors, as in large levels."""
    monkeypatch.setattr("dpngram.transforms.policies.plus._ALL_ACTIVE", 0)
    monkeypatch.setattr("dpngram.transforms.policies.plus._LEAST_ACTIVE", 60)
    monkeypatch.setattr("dpngram.transforms.policies.plus._MOST_ACTIVE", 60)
    made = collections.Counter()
    original = PlusSurvey.cutoffs

    def counted(self, *args):
        made["cuts"] += 1
        return original(self, *args)

    monkeypatch.setattr(PlusSurvey, "cutoffs", counted)
    return made


def test_shards_of_a_bundle_share_their_walk_and_no_other(walks):
    """Windows, contents and levels that take turns in a bundle: each shard has the draws of its own."""
    step = _ThresholdDoFn(ROUND, SOURCE.randomness)
    step._source = SOURCE
    windows = IntervalWindow(0, 10), IntervalWindow(10, 20)
    bindings = SOURCE.binding(b"f" * 16), SOURCE.binding(b"g" * 16)
    levels = first_level(1), first_level(2)
    kinds = list(itertools.product(levels, bindings, windows))
    kinds += sorted(kinds, key=lambda kind: (kind[2].start, kind[1]))  # once levels change the fastest, once windows
    step.start_bundle()
    walks.clear()
    for number, (level, binding, window) in enumerate(kinds):
        draw = SOURCE.draws(2, 0, window_name(window), binding, level.name)
        cut = ROUND.cutoffs(level, EMPTY_LEVEL)
        walks.clear()
        for shard in range(3):
            block = cells(10 * number + shard)
            found = list(step.process((shard, block), window, binding, level))
            assert [part.to_bytes() for part in found] == [
                threshold_cells(block, cut, draw, past=level.name).to_bytes()
            ]
        assert walks["cuts"] == 1  # for three shards
    step.finish_bundle()
    assert not any(isinstance(held, (Level, np.ndarray)) for held in vars(step).values())
    assert step._prepared is None

"""What a round may read, and that no two rounds of a graph have the same noise."""

import dataclasses

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly
from apache_beam.transforms.window import FixedWindows

from dpngram.accounting import ParameterError, plan_extraction
from dpngram.transforms import (
    BindRelease,
    ExtractLevel,
    ExtractRound,
    GroupUsers,
    PreparePosts,
    ReleaseContext,
    ValidityFilter,
    make_randomness,
    make_rounds,
)
from dpngram.transforms.context import histogram_shards
from dpngram.transforms.randomness.noise_key import KeyReference

PLAN = plan_extraction(epsilon=4, delta=1e-3, max_n=3, max_contributions=5, policy="paper")


class Begun(beam.PTransform):
    """Documents -> users, with the context of a release as an attribute."""

    def __init__(self, key):
        super().__init__()
        self._key = key

    def expand(self, documents):
        randomness = make_randomness(documents.pipeline, PLAN, {}, self._key)
        users = documents | PreparePosts("words", randomness) | GroupUsers(randomness)
        self.context = ReleaseContext.begin(users | BindRelease(randomness), randomness, blocks=20)
        return users


@pytest.fixture
def begun(tmp_path):
    pipeline = beam.Pipeline(runner=FnApiRunner())
    begin = Begun(str(tmp_path / "key"))
    users = pipeline | beam.Create([("u", "a b")]) | begin
    return users, begin.context


def test_side_inputs_appear_as_levels_are_complete(begun):
    users, context = begun
    assert (context.levels, context.shards, histogram_shards(20)) == (0, 3, 3)
    assert set(context.sides("binding", "first", "previous", "earlier")) == {"binding"}
    users, first = users | "Level1" >> ExtractLevel(make_rounds(PLAN)[0], context)
    second = context.after_level(first)
    assert second.first is second.previous
    assert set(second.sides("binding", "first", "previous", "earlier")) == {"binding", "first", "previous"}
    third = second.after_round(first, "Round1").after_level(first)
    assert third.levels == 2
    assert third.first is second.first
    assert third.previous is not third.first
    assert third.earlier is None


def test_a_round_is_in_a_graph_once(begun):
    """Otherwise two histograms would have the same noise, and their difference would be exact."""
    users, context = begun
    users | "Once" >> ExtractRound(make_rounds(PLAN)[0][0], context)
    with pytest.raises(ParameterError, match="both would have the same noise"):
        users | "Twice" >> ExtractRound(make_rounds(PLAN)[0][0], context)
    renamed = dataclasses.replace(context.randomness, key=KeyReference("env", "PERHAPS_THE_SAME_KEY"))
    with pytest.raises(ParameterError, match="both would have the same noise"):
        users | "Renamed" >> ExtractRound(make_rounds(PLAN)[0][0], dataclasses.replace(context, randomness=renamed))


def test_levels_are_in_order(begun):
    _, context = begun
    with pytest.raises(ParameterError, match="level 2 must follow level 1, got 0 levels"):
        ValidityFilter(make_rounds(PLAN)[1][0], context)


def test_parts_refuse_the_windowing_that_the_whole_refuses(tmp_path):
    early = beam.WindowInto(
        FixedWindows(10), trigger=Repeatedly(AfterCount(1)), accumulation_mode=AccumulationMode.DISCARDING
    )
    pipeline = beam.Pipeline(runner=FnApiRunner())
    with pytest.raises(ParameterError, match="trigger must be the default one"):
        pipeline | beam.Create([("u", "a b")]) | early | Begun(str(tmp_path / "key"))

"""The count in the graph: one noisy number from all shards, also where nobody vouches for anything."""

import dataclasses

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to, is_empty
from apache_beam.transforms.window import GlobalWindow
from helpers.keys import write_key
from helpers.levels import first_level

from dpngram.accounting import ParameterError, plan_extraction
from dpngram.transforms import DecodeGrams, ReleaseContext, make_randomness
from dpngram.transforms.blocks.cells import CellBlock
from dpngram.transforms.blocks.levels import EMPTY_LEVEL
from dpngram.transforms.blocks.pieces import cut_block
from dpngram.transforms.blocks.surveys import EMPTY_SURVEY, Survey
from dpngram.transforms.noisy_count import NoisyCount
from dpngram.transforms.policies import make_rounds, plus
from dpngram.transforms.policies.budgets import COUNT_UNIT
from dpngram.transforms.policies.ranking import _rank
from dpngram.transforms.sum_cells import SumCells
from dpngram.transforms.windowing import window_name

PLAN = plan_extraction(epsilon=8, delta=1e-3, max_n=2, max_contributions=30, eta=0.2, policy="plus")
COUNT = make_rounds(PLAN)[1][2]
GENEROUS = dataclasses.replace(COUNT, plan=dataclasses.replace(PLAN, eta=0.9))
WORDS = make_rounds(PLAN)[0][-1].finish(first_level(40), EMPTY_LEVEL)
ZONE, LAST = _rank(0.01), _rank(0.25)


def survey(counted=1, before=300, inside=1000, count_sigma=4.0):
    """So many cells before the zone and in it, evenly: a little more of the noisy count, and the cut is elsewhere."""
    keys = np.array([a << 32 | b for a in range(40) for b in range(40)], np.uint64)
    rank = np.concatenate(
        [
            np.linspace(ZONE - 30, ZONE, before),
            np.linspace(ZONE + 1, LAST, inside),
            np.full(1600 - before - inside, LAST + 1),
        ]
    ).astype(np.uint16)
    ranks = np.arange(LAST + 1)
    return Survey(
        name=1 + counted,
        keys=keys,
        counted=counted,
        rank=np.random.default_rng(1).permutation(rank),
        weight=np.arange(1600),
        reached=np.searchsorted(rank, ranks, side="right"),
        expected=np.maximum(ranks - ZONE, 0) * 12.0,
        cut=ZONE - 5,
        count_sigma=count_sigma,
    )


SURVEY = survey()
IN_ZONE = SURVEY.keys[(SURVEY.rank > ZONE) & (SURVEY.rank <= LAST)]


def vouched(keys, each):
    return CellBlock(keys=np.sort(keys), weight=np.full(len(keys), each, np.int64))


class Counted(beam.PTransform):
    """(shard, CellBlock) -> Piece: a count after its survey, with nothing before it."""

    def __init__(self, randomness, found, shards, policy=COUNT, content=b"f" * 16, again=False):
        super().__init__()
        self._randomness, self._found, self._shards, self._again = randomness, found, shards, again
        self._policy, self._content = policy, content

    def expand(self, pipeline):
        binding = self._randomness.open().binding(self._content)
        context = ReleaseContext.begin(pipeline | "Bind" >> beam.Create([binding]), self._randomness)
        context = context.after_level(pipeline | "Words" >> beam.Create(cut_block(WORDS)))
        found = pipeline | "Survey" >> beam.Create(cut_block(self._found))
        context = context.after_round(found, "SecondLook")
        histogram = pipeline | "Cells" >> beam.Create(self._shards).with_output_types(tuple[int, CellBlock])
        histogram = histogram | SumCells()
        if self._again:
            histogram | "Again" >> NoisyCount(self._policy, context)
        return histogram | NoisyCount(self._policy, context)


@pytest.fixture
def keyed(tmp_path):
    write_key(tmp_path / "noise.key", b"p" * 32)
    return make_randomness(beam.Pipeline(), PLAN, {}, str(tmp_path / "noise.key"))


def expected(randomness, exact, found=SURVEY, policy=COUNT, content=b"f" * 16):
    """What is released with this exact count, by the same key; in the plain loop."""
    source = randomness.open()
    draw = source.draws(2, 2, window_name(GlobalWindow()), source.binding(content), found.name)
    return policy.release(exact, WORDS, found, draw("count"))


def check(randomness, shards, exact, found=SURVEY, policy=COUNT, content=b"f" * 16):
    level = expected(randomness, exact, found, policy, content)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        released = pipeline | Counted(randomness, found, shards, policy, content)
        assert_that(released | beam.Map(lambda piece: piece.data.tobytes()), equal_to([level.to_bytes()]))
    return level


def test_shards_are_summed_and_a_gram_counts_once(keyed):
    """Blocks of one gram are added first, and then it counts for at most 1: 300 + 200 grams, and 100 halves."""
    half = COUNT_UNIT // 2
    shards = [
        (0, vouched(IN_ZONE[:300], 3 * half)),
        (0, vouched(IN_ZONE[:300], half)),  # more of the same: no more than 1 each
        (1, vouched(IN_ZONE[300:500], half)),
        (1, vouched(IN_ZONE[300:500], half)),  # together 1 each
        (2, vouched(IN_ZONE[500:600], half)),
    ]
    level = check(keyed, shards, 550 * COUNT_UNIT)
    # Any of these mistakes would release other grams.
    others = [expected(keyed, count * COUNT_UNIT) for count in (0, 450, 600, 750, 1050)]
    assert all(len(other) != len(level) for other in others)


def test_noise_is_drawn_even_if_nobody_vouches(keyed):
    """No shard at all: the noisy count is noise around 0, by the key, and decides what is released.

    Keys are fixed, so the outcome is too. With random ones all of three releases would be those without noise once in
    some ten thousand times.
    """
    found = survey(before=78, inside=1000, count_sigma=20.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plus.Noise, "noisy", lambda self, weight, bits, prf: weight // self.step)
        without_noise = len(expected(keyed, 0, found, GENEROUS))
    assert 78 < without_noise < 1078
    lengths = [len(check(keyed, [], 0, found, GENEROUS, bytes([number]) * 16)) for number in range(3)]
    assert lengths != [without_noise] * 3


def test_a_level_without_a_count_looks_at_no_cell(keyed):
    """What users would vouch for changes nothing, and neither does the key."""
    found = survey(counted=0)
    level = check(keyed, [], 0, found)
    assert level.to_bytes() == expected(keyed, 900 * COUNT_UNIT, found).to_bytes()
    assert len(level) == (found.rank <= found.cut).sum() > 0


def test_the_count_has_noise_of_its_own_for_each_survey(keyed):
    """The name of the survey is part of the draw: another survey after a retry cannot be compared with the first."""
    draws = []
    source = keyed.open()
    for name in (SURVEY.name, SURVEY.name + 1):
        draw = source.draws(2, 2, b"w", source.binding(b"f" * 16), name)("count")
        draws.append(draw.blocks(np.zeros(1, np.uint64), 0).tolist())
    assert draws[0] != draws[1]


def test_a_level_without_cells_is_an_empty_piece(keyed):
    """Later steps must not wait for it; nothing of it is in the output."""
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        released = pipeline | Counted(keyed, EMPTY_SURVEY, [])
        assert_that(released | beam.Map(lambda piece: (piece.start, piece.rows)), equal_to([(0, 0)]))
        tables = {1: pipeline | "S1" >> beam.Create(cut_block(WORDS)), 2: released} | DecodeGrams()
        assert_that(tables[2], is_empty(), "no table")


def test_a_count_is_in_a_graph_once(keyed):
    with pytest.raises(ParameterError, match="both would have the same noise"):
        beam.Pipeline(runner=FnApiRunner()) | Counted(keyed, SURVEY, [], again=True)


def test_a_count_has_no_cutoffs():
    with pytest.raises(TypeError, match="a count has no cutoffs"):
        COUNT.cutoffs(WORDS, SURVEY)

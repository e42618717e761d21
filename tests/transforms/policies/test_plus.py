"""Policy plus: what users give in all rounds of all levels, what it costs them, and what the rounds look at."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from helpers.levels import first_level
from scipy import stats

from dpngram.accounting import plan_extraction
from dpngram.transforms.add_spurious_grams import join_zero_cells
from dpngram.transforms.blocks.candidates import CandidateBlock
from dpngram.transforms.blocks.cells import CellBlock, split_cells
from dpngram.transforms.blocks.levels import EMPTY_LEVEL
from dpngram.transforms.blocks.surveys import Survey, name_after, name_of
from dpngram.transforms.document_form import DocumentForm, collect_documents
from dpngram.transforms.noisy_threshold import threshold_cells
from dpngram.transforms.policies import make_rounds, plus, ranking
from dpngram.transforms.policies.budgets import COUNT_UNIT
from dpngram.transforms.policies.cutoffs import ALL
from dpngram.transforms.randomness.prf import Prf
from dpngram.transforms.testing import extract_in_memory, key_source
from dpngram.transforms.tokenizers import make_tokenizer

SOURCE = key_source(b"k" * 32)


def adversarial_corpus():
    """Heavy users and light ones, copies, one post or many, long runs, phrases nobody else has."""
    random = np.random.default_rng(11)
    words = [f"w{i}" for i in range(20)]
    chances = 1 / np.arange(1, 21)
    chances /= chances.sum()
    posts = []
    for user in range(120):
        length = int(random.choice([1, 2, 3, 8, 40, 400]))
        for _ in range(int(random.choice([1, 1, 2, 7]))):
            posts.append((f"u{user}", list(random.choice(words, length, p=chances))))
    posts += [(f"copy{i}", ["w0", "w1", "w2", "w3", "w4"] * 5) for i in range(40)]
    posts += [("lonely", [f"x{i}" for i in range(500)]), ("one", ["w0"])]
    return posts


def some_users(block, rows):
    """A block of these rows of another one, as if the other users had never been there."""
    owner = block.owners()
    kept = np.isin(owner, rows)
    gram = np.repeat(np.arange(len(block.grams)), np.diff(block.gram_start))[kept]
    has, counts = np.unique(gram, return_counts=True)
    lengths = np.diff(block.user_start)[rows]
    start = np.append(0, np.cumsum(lengths)).astype(np.int32)
    moved = np.zeros(len(block), np.int64)
    moved[rows] = start[:-1] - block.user_start[:-1][rows]
    columns = {}
    for name in ("budget", "allowance", "is_last"):
        column = getattr(block, name)
        columns[name] = column[rows] if len(column) else column
    return CandidateBlock(
        user=block.user[rows],
        user_start=start,
        grams=block.grams[has],
        gram_start=np.append(0, np.cumsum(counts)).astype(np.int32),
        positions=(block.positions[kept] + moved[owner[kept]]).astype(np.int32),
        guide_weight=block.guide_weight[has] if len(block.guide_weight) else block.guide_weight,
        **columns,
    )


def with_books(users, candidates):
    """The candidates, with what the users may spend."""
    return dataclasses.replace(candidates, budget=users.budget, allowance=users.allowance, is_last=users.is_last)


class Books:
    """Follows all that users give, apart from the library's own books: each user alone, in unbounded integers."""

    def __init__(self, monkeypatch):
        self.given = {}
        self.kinds = set()
        for kind in (plus.PlusTokens, plus.PlusSurvey, plus.PlusSecondLook, plus.PlusCount):
            monkeypatch.setattr(kind, "weigh", self._recording(kind.weigh))
        monkeypatch.setattr(plus.PlusCount, "pay", self._comparing(plus.PlusCount.pay))

    def _recording(self, original):
        def weigh(policy, users, candidates, clip, earlier):
            weight, paid = original(policy, users, candidates, clip, earlier)
            block, total = with_books(users, candidates), np.zeros(len(candidates.grams), np.int64)
            order = np.argsort(candidates.grams)
            for row in range(len(users)):
                alone = some_users(block, np.array([row]))
                mine, after = original(policy, alone, alone, clip, earlier)
                assert (mine >= 0).all()
                total[order[np.searchsorted(candidates.grams, alone.grams, sorter=order)]] += mine
                self._add(policy, int(block.user[row]), mine, earlier)
                if paid is not None:
                    assert paid.budget[row] == after.budget[0]
            assert total.tolist() == weight.tolist()  # promise 1: nobody's weights depend on others of the block
            return weight, paid

        return weigh

    def _add(self, policy, user, weight, earlier):
        if isinstance(policy, plus.PlusCount):
            if weight.any():
                ratio = Fraction(earlier.count_sigma) / Fraction(policy.level.sigma)
                cost = (Fraction(sum(weight.tolist()), COUNT_UNIT) / ratio) ** 2 * 2**64
                assert weight.max() <= COUNT_UNIT
                self.kinds.add("count")
        else:
            cost = sum(value * value for value in weight.tolist())
            self.kinds.add(type(policy).__name__)
            if earlier is not EMPTY_LEVEL and getattr(earlier, "rest_guide", 0):
                self.kinds.add("rest")
        if weight.any():
            self.given[user] = self.given.get(user, 0) + cost

    def _comparing(self, original):
        def pay(policy, users, found):
            after = original(policy, users, found)
            for row in range(len(users)):
                alone = original(policy, some_users(users, np.array([row])), found)
                assert alone.budget[0] == after.budget[row]
            return after

        return pay

    def check(self, policy, blocks, _found):
        """What users gave and what they have left, together, is no more than they began with."""
        if policy.n > 1 and policy.number == 1:
            return  # the second look is paid for when the level is over
        for block in blocks:
            for name, left in zip(block.user.tolist(), block.budget.tolist(), strict=True):
                assert self.given.get(name, 0) + left <= 2**64 - 1


def small_strata(monkeypatch):
    """Strata of this small V_k have floors, so that there are cells that are not active."""
    monkeypatch.setattr(plus, "_ALL_ACTIVE", 0)
    monkeypatch.setattr(plus, "_LEAST_ACTIVE", 10)
    monkeypatch.setattr(plus, "_MOST_ACTIVE", 10)


@pytest.mark.parametrize("number", range(4))
def test_the_invariant(number, monkeypatch):
    """Squared integer weights of every user, over all levels and rounds, and what it pays for counts, are at most
    2^64 - 1 minus what is left.

    Levels have a count in cases 0 and 2; in the others, cells that are not active take part. In case 1 a user would
    spend more than it has left on a second look with the whole allowance.
    """
    small_strata(monkeypatch)
    monkeypatch.setattr(ranking, "_LEAST_COUNT", 1e9 if number % 2 else 0.0)
    monkeypatch.setattr(ranking, "_LEAST_DOUBTFUL", 0.0)
    blocks, _ = collect_documents(adversarial_corpus(), DocumentForm())
    plan = plan_extraction(
        epsilon=[20.0, 4.0, 20.0, 20.0][number],
        delta=0.1,
        max_n=4,
        max_contributions=[20, 5, 1, 100][number],
        shares=[None, [1, 10, 1, 1], [1, 1, 1, 1], [1e-6, 1, 1e-6, 1e6]][number],
        policy="plus",
        eta=0.1,
    )
    books, rounds = Books(monkeypatch), []

    def observe(policy, users, found):
        rounds.append((policy.n, policy.number))
        books.check(policy, users, found)

    source = key_source(bytes([number]) * 32)
    extract_in_memory(blocks, plan, source, make_tokenizer("words"), shards=3, histogram_shards=2, observe=observe)
    assert rounds[:6] == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]
    assert len(books.given) == 162 or number == 3  # there a word gets a millionth of a budget, or nothing
    assert max(books.given.values()) > 0.9 * 2**64
    assert {"PlusTokens", "PlusSurvey", "PlusSecondLook"} < books.kinds
    assert ("count" in books.kinds) == (number % 2 == 0)
    assert ("rest" in books.kinds) == (number % 2 == 1)


def captured(monkeypatch, counted):
    """The users of one level 2, the surveys after both looks, and the rounds."""
    monkeypatch.setattr(ranking, "_LEAST_COUNT", 0.0 if counted else 1e9)
    monkeypatch.setattr(ranking, "_LEAST_DOUBTFUL", 0.0)
    blocks, _ = collect_documents(adversarial_corpus(), DocumentForm())
    plan = plan_extraction(epsilon=20, delta=0.1, max_n=3, max_contributions=20, policy="plus", eta=0.1)
    seen = []
    extract_in_memory(
        blocks,
        plan,
        SOURCE,
        make_tokenizer("words"),
        observe=lambda policy, users, found: seen.append((policy, users[0], found)) if policy.n == 2 else None,
    )
    (survey_round, users, survey), (second_round, _, ranked), (count_round, paid, _) = seen
    return (survey_round, second_round, count_round), users, survey, ranked, paid


@pytest.mark.parametrize("counted", [False, True], ids=["uncounted", "counted"])
def test_other_users_change_nothing_for_a_user(counted, monkeypatch):
    """Promise 1: with the same survey, a user gives and pays the same, whoever else is in its block."""
    (_, second, count), users, survey, ranked, paid = captured(monkeypatch, counted)
    assert bool(survey.counted) == counted
    clip = Prf(b"c" * 32)
    everybody = np.arange(len(users))
    for policy, earlier in ((second, survey), (count, ranked)):
        together, _ = policy.weigh(users, users, clip, earlier)
        for rows in (everybody[:1], everybody[::3], everybody[5:]):
            some = some_users(users, rows)
            rest = some_users(users, np.setdiff1d(everybody, rows))
            weight = np.zeros(len(users.grams), np.int64)
            for block in (some, rest):
                weight[np.searchsorted(users.grams, block.grams)] += policy.weigh(block, block, clip, earlier)[0]
            assert weight.tolist() == together.tolist()
            assert count.pay(some, ranked).budget.tolist() == paid.budget[rows].tolist()
        assert together.any() == (policy is second or counted)


def test_both_looks_and_the_count_are_paid_for(monkeypatch):
    """With the survey before the second look, and with the one after it: the second look costs the same."""
    (_, second, count), users, survey, ranked, paid = captured(monkeypatch, True)
    before, after = (plus._Second(users, found, second.shares) for found in (survey, ranked))
    assert before.weights().tolist() == after.weights().tolist()
    assert before.left().tolist() == after.left().tolist()
    assert (before.left() < users.budget).mean() > 0.3
    assert (paid.budget <= before.left()).all()
    assert (paid.budget < before.left()).mean() > 0.1
    at_the_end = count.pay(dataclasses.replace(users, is_last=np.ones(len(users), bool)), ranked)
    assert (at_the_end.budget <= users.budget).all()  # nothing wraps around


def test_what_the_second_look_may_spend(monkeypatch):
    """The whole allowance where most cells are certain and some are not active; never more than is left."""
    _, users, survey, _, _ = captured(monkeypatch, counted=False)
    books = {"allowance": np.full(len(users), 2**62, np.uint64), "is_last": np.zeros(len(users), bool)}
    for counted, rest_guide, floor, share in (
        (1, 0, [0, 3], 0.5),
        (0, 0, [0, 3], 0.6),  # much is in doubt
        (0, 1, [0, 0], 0.6),  # most is certain, and all is active
        (0, 1, [0, 3], 1.0),
    ):
        found = dataclasses.replace(survey, counted=counted, rest_guide=rest_guide, floor=np.array(floor))
        for left in (2**63, 2**61):
            mine = dataclasses.replace(users, budget=np.full(len(users), left, np.uint64), **books)
            second = plus._Second(mine, found, (0.4, 0.5, 0.1))
            assert second._allowed == pytest.approx(min(share * 2**62, left), rel=1e-9)
            assert (second.left() <= left).all()


def test_users_without_books_are_refused_after_level_1():
    """Blocks that did not pass level 1 have no budget column; a full one for them would be a second budget."""
    blocks, _ = collect_documents([("u", "a b c")] * 3, DocumentForm())
    plan = plan_extraction(epsilon=20, delta=0.1, max_n=2, max_contributions=5, policy="plus")
    source = key_source(b"b" * 32)
    first, second = (level[0] for level in make_rounds(plan))
    users = []
    extract_in_memory(
        blocks, plan, source, make_tokenizer("words"), observe=lambda _policy, blocks, _level: users.extend(blocks[:1])
    )
    fresh = dataclasses.replace(users[0], budget=np.zeros(0, np.uint64), allowance=np.zeros(0, np.uint64))
    assert len(first.allow(fresh).budget) == 1
    with pytest.raises(ValueError, match="their budget is unknown"):
        second.allow(fresh)


def test_rounds_of_level_1_have_thresholds_of_their_own():
    """Each hides what one user gives with the round's share of the weight; the floor is the threshold."""
    for policy in make_rounds(PLAN)[0]:
        cutoffs = policy.cutoffs(EMPTY_LEVEL, EMPTY_LEVEL)
        assert cutoffs.rho == policy.round.rho
        assert cutoffs.floor.tolist() == [cutoffs.noise.least(policy.round.rho)]
    assert len({policy.round.rho for policy in make_rounds(PLAN)[0]}) == 3


PLAN = plan_extraction(epsilon=8, delta=1e-3, max_n=2, max_contributions=30, eta=0.2, policy="plus")
SURVEY, SECOND, COUNT = make_rounds(PLAN)[1]
WORDS = make_rounds(PLAN)[0][-1].finish(
    dataclasses.replace(first_level(40), weight=np.repeat([3, 6, 20], [20, 15, 5]) * 2**16, grid=2.0**-14), EMPTY_LEVEL
)
CELLS = np.array([a << 32 | b for a in range(40) for b in range(40)], np.uint64)


def draws(policy, earlier, key=SOURCE):
    return key.draws(2, policy.number, b"global", key.binding(b"f" * 16), earlier.name or WORDS.name)


def users_cells(each, step=1):
    """Every fifth cell, and so many steps of weight for each."""
    return CellBlock(keys=CELLS[::5], weight=np.full(len(CELLS[::5]), each * step, np.int64))


def look(policy, earlier, histogram, key=SOURCE, shards=3):
    cutoffs, draw = policy.cutoffs(WORDS, earlier), draws(policy, earlier, key)
    parts = [threshold_cells(cells, cutoffs, draw) for _, cells in split_cells(histogram, shards)] if histogram else []
    return join_zero_cells(parts, cutoffs, draw), cutoffs


def test_every_member_is_counted_once(monkeypatch):
    """Survey: users' cells and zero cells, active or in a group below the floor, are all of V_k in each stratum."""
    small_strata(monkeypatch)
    for weight in (0, 1, 5000, 40_000):
        cells, cutoffs = look(SURVEY, EMPTY_LEVEL, users_cells(weight or 1, SURVEY_STEP) if weight else None)
        active = np.bincount(cells.stratum, minlength=len(cutoffs.size))
        assert (active + cells.below.sum(axis=1)).tolist() == cutoffs.size.tolist()
        assert (np.diff(cells.keys.astype(object)) > 0).all()  # sorted, and nothing twice
        assert cells.stratum.tolist() == cutoffs.strata.of(cells.keys).tolist()
        assert (cutoffs.floor != ALL).any()
        assert 0 < cells.below.sum() < len(CELLS)


SURVEY_STEP = SURVEY.cutoffs(WORDS, EMPTY_LEVEL).noise.step


def test_what_is_active_depends_on_noisy_values_only(monkeypatch):
    """A user's cell is active exactly if its noisy value reaches the floor, which knows no users."""
    small_strata(monkeypatch)
    histogram = users_cells(20_000, SURVEY_STEP)
    cells, cutoffs = look(SURVEY, EMPTY_LEVEL, histogram)
    noise = draws(SURVEY, EMPTY_LEVEL)("noise")
    noisy = cutoffs.noise.noisy(histogram.weight, noise.blocks(histogram.keys, 0), noise)
    reached = noisy >= cutoffs.floor[cutoffs.strata.of(histogram.keys)]
    assert 20 < reached.sum() < len(reached) - 20
    assert np.isin(histogram.keys, cells.keys).tolist() == reached.tolist()
    assert cells.noisy[np.isin(cells.keys, histogram.keys)].tolist() == noisy[reached].tolist()
    # The law of zero cells above the floors is that of the floors, within five standard errors; the key is fixed.
    chance = np.where(cutoffs.floor == ALL, 1.0, cutoffs.noise.zero_probability(cutoffs.floor))
    zero = np.setdiff1d(CELLS, histogram.keys)
    chances = chance[cutoffs.strata.of(zero)]
    found = np.isin(zero, cells.keys).sum()
    assert abs(found - chances.sum()) < 5 * np.sqrt((chances * (1 - chances)).sum())


def test_every_active_cell_has_fresh_noise():
    """Second look: with or without users' weights, every active cell has the noise of its name; not the survey's.

    Of 1,600 cells: Kolmogorov-Smirnov at 1e-6, correlation at 5 standard errors. The key is fixed.
    """
    first, cutoffs = look(SURVEY, EMPTY_LEVEL, None)
    assert first.keys.tolist() == CELLS.tolist()  # all of V_2 is active
    survey = SURVEY.settle(first, cutoffs, WORDS, EMPTY_LEVEL)
    silent, _ = look(SECOND, survey, None)
    assert silent.keys.tolist() == CELLS.tolist()
    values = silent.noisy * cutoffs.noise.grid / cutoffs.noise.sigma
    assert stats.kstest(values, "norm").pvalue > 1e-6
    assert abs(np.corrcoef(values, first.noisy)[0, 1]) < 5 / 40
    spoken, _ = look(SECOND, survey, users_cells(777, SURVEY_STEP))
    difference = spoken.noisy - silent.noisy
    assert difference[::5].tolist() == [777] * 320
    assert difference.sum() == 777 * 320


def test_a_survey_is_named_by_what_decides_the_next_query():
    """By integers: the last bit of a floating-point table, which only ranks cells, changes no name and so no noise."""
    cells, cutoffs = look(SURVEY, EMPTY_LEVEL, None)
    survey = SURVEY.settle(cells, cutoffs, WORDS, EMPTY_LEVEL)
    columns = (survey.keys, survey.guide, survey.counted, survey.rest_guide, survey.stratum, survey.size, survey.floor)
    assert survey.name == name_after(WORDS.name, name_of(*columns))
    assert all(column.dtype.kind in "iu" for column in columns if isinstance(column, np.ndarray))
    second, cutoffs = look(SECOND, survey, None)
    ranked = SECOND.settle(second, cutoffs, WORDS, survey)
    columns = (
        ranked.keys,
        ranked.guide,
        ranked.counted,
        ranked.rest_guide,
        ranking.in_zone(ranked),
        ranked.count_sigma,
    )
    assert ranked.name == name_after(survey.name, name_of(*columns))
    assert (
        SURVEY.finish(WORDS, EMPTY_LEVEL).name
        == SURVEY.finish(dataclasses.replace(WORDS, weight=WORDS.weight + 1), EMPTY_LEVEL).name
    )  # one step more of weight leaves all bins as they are


def test_the_same_release_after_another_survey_has_another_name():
    """Users have paid other amounts, so the queries of the next level are others: they must not share their noise."""
    cells, cutoffs = look(SURVEY, EMPTY_LEVEL, None)
    names = []
    for words in (WORDS, dataclasses.replace(WORDS, name=WORDS.name ^ 1)):
        survey = SURVEY.settle(cells, cutoffs, words, EMPTY_LEVEL)
        for found in (survey, dataclasses.replace(survey, name=survey.name ^ 2)):
            second, second_cutoffs = look(SECOND, found, None)
            ranked = SECOND.settle(second, second_cutoffs, words, found)
            level = COUNT.release(0, words, ranked, Prf(bytes(32)))
            names.append((survey.name, ranked.name, level.name, level.keys.tobytes()))
    assert len({keys for *_, keys in names}) == 1
    assert [len({name[place] for name in names}) for place in range(3)] == [2, 4, 4]


def test_a_gram_counts_for_one_at_most():
    """After the sum over all users and blocks, whatever they vouch for."""
    weight = np.array([0, 1, COUNT_UNIT - 1, COUNT_UNIT, COUNT_UNIT + 1, 50 * COUNT_UNIT])
    assert COUNT.count(CellBlock(keys=np.arange(6, dtype=np.uint64), weight=weight)) == 4 * COUNT_UNIT


def test_classes_are_released_whole():
    """All cells of a rank or none, wherever the cut is; and nothing beyond the cut."""
    ranks = np.random.default_rng(4).integers(600, 700, len(CELLS)).astype(np.uint16)
    for cut in (-1, 599, 600, 650, 651, 699):
        survey = Survey(keys=CELLS, rank=ranks, weight=np.arange(len(CELLS)), cut=cut)
        level = COUNT.release(0, WORDS, survey, Prf(b"r" * 32))
        assert level.keys.tolist() == CELLS[ranks <= cut].tolist()
        assert level.weight.tolist() == np.flatnonzero(ranks <= cut).tolist()

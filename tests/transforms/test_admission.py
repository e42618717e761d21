"""Which documents count, if a user may be in a few windows only: against a reference that looks at one at a time."""

import itertools

import numpy as np
import pytest
from apache_beam.transforms.window import FixedWindows, SlidingWindows, WindowFn
from apache_beam.utils.timestamp import Timestamp

from dpngram.transforms.admission import NOBODY, UserWindows, Windows, admit

WINDOWS = [
    pytest.param(FixedWindows(10), id="fixed"),
    pytest.param(FixedWindows(10, 3), id="fixed with an offset"),
    pytest.param(SlidingWindows(20, 10), id="sliding"),
    pytest.param(SlidingWindows(25, 10, 4), id="sliding with an offset"),
    pytest.param(SlidingWindows(9, 2), id="sliding by an uneven part"),
]


@pytest.mark.parametrize("windows", WINDOWS)
def test_the_windows_of_a_time_are_beams(windows):
    ours = Windows.of(windows)
    times = np.arange(-40_000, 40_000, 250)
    for time, first, last in zip(times.tolist(), *(column.tolist() for column in ours.spans(times)), strict=True):
        theirs = windows.assign(WindowFn.AssignContext(Timestamp(micros=1000 * time)))
        assert sorted(window.end.micros // 1000 for window in theirs) == [ours.end(n) for n in range(first, last + 1)]
        over = ours.over(time)
        assert ours.end(over - 1) <= time < ours.end(over)


def digests(users):
    return np.stack([np.array(users, np.uint64), np.full(len(users), 1 << 60, np.uint64)], axis=1)


def one_by_one(documents, most):
    known, admitted = {}, []
    for user, first, last in documents:
        both = known.get(user, set()) | set(range(first, last + 1))
        admitted.append(len(both) <= most)
        if admitted[-1]:
            known[user] = both
    return admitted, known


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("most", [1, 3, 5, 8])
def test_like_one_at_a_time(windows, most):
    """In any cut into blocks, with the state written and read between them."""
    rng = np.random.default_rng(most)
    users, times = rng.integers(0, 7, 400), rng.integers(0, 150_000, 400)
    users[users == 5] = 256  # a digest with a zero byte where another ends
    first, last = Windows.of(windows).spans(times)
    expected, known = one_by_one(zip(users.tolist(), first.tolist(), last.tolist(), strict=True), most)
    for cuts in ([], [1, 200], range(0, 400, 37)):
        state, found = NOBODY, []
        for begin, end in itertools.pairwise([0, *cuts, 400]):
            rows = slice(begin, end)
            state = UserWindows.from_bytes(state.to_bytes())
            admitted, state = admit(state, digests(users[rows]), first[rows], last[rows], most)
            found += admitted.tolist()
        assert found == expected
        assert len(state.user) == sum(map(len, known.values()))
        assert sorted(state.window.tolist()) == sorted(window for mine in known.values() for window in mine)


def test_admission():
    def admitted(spans, most):
        first, last = np.array(spans).T
        return admit(NOBODY, digests([1] * len(spans)), first, last, most)[0].tolist()

    assert admitted([(1, 1), (2, 2), (2, 2), (3, 3), (1, 1)], 2) == [True, True, True, False, True]
    assert admitted([(1, 2), (2, 3), (4, 5), (3, 3)], 3) == [True, True, False, True]  # two more at a time, or none


def test_another_user_changes_nothing():
    rng = np.random.default_rng(3)
    users, first = rng.integers(0, 5, 300), rng.integers(0, 9, 300)
    state, without = NOBODY, NOBODY
    for rows in np.split(np.arange(300), 6):
        admitted, state = admit(state, digests(users[rows]), first[rows], first[rows], 3)
        others = rows[users[rows] != 2]
        alone, without = admit(without, digests(users[others]), first[others], first[others], 3)
        assert admitted[users[rows] != 2].tolist() == alone.tolist()


def test_windows_that_are_over_keep_their_number():
    """Closing changes nothing for windows that come later, however often it is done."""
    rng = np.random.default_rng(5)
    state = plain = NOBODY
    for now in range(60):
        users = rng.integers(0, 20, 30)
        first = now + rng.integers(0, 3, 30)
        admitted, state = admit(state, digests(users), first, first, 7)
        expected, plain = admit(plain, digests(users), first, first, 7)
        assert admitted.tolist() == expected.tolist()
        state = state.close(now).close(now)
        assert len(state.user) <= 20 * 4
        assert state.counts.sum() == plain.counts.sum()
        assert state.first_open is None or state.first_open >= now
    assert len(state.close(1000).user) == len(np.unique(state.user)) == 20
    assert state.close(1000).first_open is None
    assert len(NOBODY.close(5).user) == 0

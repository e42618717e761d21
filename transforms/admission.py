"""Which documents of a user count, if the user may be in a few windows only: exact, in columns, without Beam.

A document falls into windows `first` to `last`, counted from the beginning of time. It is admitted with all of them, or
not at all, and only if its user is then in at most `most` windows.

Privacy: the rows of one user are never compared with rows of another, so what is admitted of a user is a function of
this user's documents and their order alone.
"""

import dataclasses

import numpy as np
from apache_beam.transforms.window import WindowFn

from dpngram.transforms.blocks.columns import Array, run_starts

__all__ = ["NOBODY", "UserWindows", "Windows", "admit"]

_USER = np.dtype("S16")  # a keyed digest of 128 bits
_CLOSED = -(1 << 62)  # this plus n: a row that stands for n windows which are over


@dataclasses.dataclass(frozen=True)
class Windows:
    """The arithmetic of fixed and sliding windows in milliseconds: window number i is [i·period, i·period + size),
    shifted by the offset. Fixed windows are sliding ones whose period is their size.

    >>> windows = Windows(20_000, 10_000, 0)
    >>> windows.spans(np.array([25_000, 30_000]))
    (array([1, 2]), array([2, 3]))
    >>> windows.end(2), windows.over(40_000)
    (40000, 3)
    """

    size: int
    period: int
    offset: int

    @classmethod
    def of(cls, windows: WindowFn) -> "Windows":
        period = getattr(windows, "period", windows.size)
        return cls(*(length.micros // 1000 for length in (windows.size, period, windows.offset)))

    def spans(self, times: Array) -> tuple[Array, Array]:
        """The first and the last window of each time."""
        times = np.asarray(times, np.int64) - self.offset
        return (times - self.size) // self.period + 1, times // self.period

    def end(self, number: int) -> int:
        return number * self.period + self.offset + self.size

    def over(self, time: int) -> int:
        """The first window that ends after this time; all before it are over."""
        return (time - self.offset - self.size) // self.period + 1


@dataclasses.dataclass(frozen=True)
class UserWindows:
    """The windows that users are in: a row for each user and window, sorted.

    Of windows that are over only their number matters, so a user has one row for all of them.
    """

    user: Array
    window: Array

    @classmethod
    def from_bytes(cls, data: bytes) -> "UserWindows":
        rows = len(data) // (_USER.itemsize + 8)
        user = np.frombuffer(data, _USER, rows)
        return cls(user, np.frombuffer(data, np.int64, rows, rows * _USER.itemsize))

    def to_bytes(self) -> bytes:
        return self.user.tobytes() + self.window.tobytes()

    def __len__(self) -> int:
        return len(self.user)

    @property
    def counts(self) -> Array:
        """How many windows each row stands for."""
        return np.where(self.window < _CLOSED // 2, self.window - _CLOSED, 1)

    @property
    def first_open(self) -> int | None:
        """The first window that is not over."""
        still = self.window[self.window > _CLOSED // 2]
        return int(still.min()) if len(still) else None

    def close(self, before: int) -> "UserWindows":
        """The same counts, but windows before this number are no longer told apart.

        A window that comes again afterwards would count once more: never too little. Under a watermark that is right,
        no document of a window that is over can come.
        """
        over = self.window < before
        user, count = self.user[over], self.counts[over]
        starts = np.flatnonzero(run_starts(user))
        closed = np.add.reduceat(count, starts) if len(user) else count
        return _sorted(
            np.concatenate([user[starts], self.user[~over]]),
            np.concatenate([_CLOSED + closed, self.window[~over]]),
        )


def _sorted(user: Array, window: Array) -> UserWindows:
    order = np.lexsort((window, user))
    return UserWindows(user[order], window[order])


NOBODY = UserWindows(np.zeros(0, _USER), np.zeros(0, np.int64))


def admit(known: UserWindows, digests: Array, first: Array, last: Array, most: int) -> tuple[Array, UserWindows]:
    """Which documents are admitted, in the order of the rows, and the windows that users are in afterwards.

    Args:
        known: the windows that users are in.
        digests: (rows, 2) words: who wrote each document.
        first, last: the windows of each document.
        most: W.
    """
    names, user = np.unique(np.ascontiguousarray(digests, np.uint64).view(_USER).reshape(-1), return_inverse=True)
    lengths = last - first  # two, at most: a window more or less
    spans, span = np.unique(2 * first + (lengths > lengths.min(initial=1 << 40)), return_inverse=True)
    # What one user wrote for the same windows is decided once: (user, windows), in the order of the rows.
    _, at, one = np.unique(user.astype(np.int64) * len(spans) + span, return_index=True, return_inverse=True)
    begin, end = (np.searchsorted(known.user, names, side) for side in ("left", "right"))
    summed = np.append(0, np.cumsum(known.counts))
    left = (most - (summed[end] - summed[begin])).tolist()
    begin, end = begin.tolist(), end.tolist()
    mine: dict[int, set[int]] = {}
    admitted = np.zeros(len(at), bool)
    new_user: list[int] = []
    new_window: list[int] = []
    order = np.argsort(at)
    rows = at[order]
    for which, who, low, high in zip(
        order.tolist(), user[rows].tolist(), first[rows].tolist(), last[rows].tolist(), strict=True
    ):
        if who not in mine:
            mine[who] = set(known.window[begin[who] : end[who]].tolist())
        new = [window for window in range(low, high + 1) if window not in mine[who]]
        if len(new) <= left[who]:
            left[who] -= len(new)
            mine[who].update(new)
            new_user += [who] * len(new)
            new_window += new
            admitted[which] = True
    if new_user:
        known = _sorted(
            np.concatenate([known.user, names[np.array(new_user)]]),
            np.concatenate([known.window, np.array(new_window, np.int64)]),
        )
    return admitted[one], known

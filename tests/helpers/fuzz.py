"""For fuzz tests: the commands in this process, a limit on time, mutations of valid bytes, and how long to look.

By default every test looks at the same examples each time (`derandomize`), half a minute in all. For a longer, random
look: DPNGRAM_FUZZ=50 pytest tests/security -k fuzz   (50 times as many examples, new ones each time).
"""

import contextlib
import io
import os
import signal

import hypothesis
from hypothesis import strategies as st

from dpngram.accounting import ParameterError
from dpngram.pipelines.cli import main

LONGER = int(os.environ.get("DPNGRAM_FUZZ", "0"))
SECONDS = 30


def look(examples):
    """Settings for a test of so many examples, of which half are enough if they are the same every time."""
    return hypothesis.settings(
        max_examples=examples * LONGER or examples // 2,
        derandomize=not LONGER,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        print_blob=True,
    )


@contextlib.contextmanager
def no_hang(seconds=SECONDS):
    """An error in the middle of whatever takes more CPU time than that, however busy the machine is."""

    def stop(_signal, _frame):
        raise TimeoutError(f"took more than {seconds} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def command(*words):
    """(status, what is on stderr) of a dpngram command. Anything but an exit status goes through: a traceback."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")  # as strict as the real ones
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), no_hang():
        try:
            status = main(list(words))
        except SystemExit as stop:
            status = stop.code
        out.flush()
        err.flush()
    return status, err.buffer.getvalue().decode()


def made_or_refused(make):
    """What `make` makes, or None if it refuses in one line."""
    try:
        return make()
    except ParameterError as error:
        message = str(error)
    assert "\n" not in message
    return None


def check(status, err, output=None):
    """The contract of every command: 0, 1 or 2; errors are one line; without success there is no manifest."""
    assert status in (0, 1, 2)
    if status:
        assert err.count("\n") == 1
        assert err.endswith("\n")
        assert ": error: " in err
        assert "Traceback" not in err
        assert output is None or not (output / "manifest.json").exists()


def mutations(valid, most=8):
    """Valid bytes with flips, cuts, splices, repeats and insertions."""
    place = st.integers(0, len(valid))
    step = st.one_of(
        st.tuples(st.just("flip"), place, st.integers(1, 255)),
        st.tuples(st.just("cut"), place, st.integers(1, 64)),
        st.tuples(st.just("end"), place, st.just(0)),
        st.tuples(st.just("repeat"), place, st.integers(1, 64)),
        st.tuples(st.just("insert"), place, st.binary(min_size=1, max_size=12)),
        st.tuples(st.just("set"), place, st.sampled_from([b"\0" * 4, b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80" * 8])),
    )
    return st.lists(step, max_size=most).map(lambda steps: mutate(valid, steps))


def mutate(data, steps):
    data = bytearray(data)
    for kind, place, value in steps:
        place = min(place, len(data))
        if kind == "flip" and place < len(data):
            data[place] ^= value
        elif kind == "cut":
            del data[place : place + value]
        elif kind == "end":
            del data[place:]
        elif kind == "repeat":
            data[place:place] = data[place : place + value]
        elif kind == "insert":
            data[place:place] = value
        elif kind == "set":
            data[place : place + len(value)] = value
    return bytes(data)


def json_values(leaves=8):
    """Any JSON value, NaN and infinities among them, as Python has them."""
    number = st.one_of(st.integers(), st.integers(-(2**70), 2**70), st.floats(), st.just(10**400))
    leaf = st.one_of(st.none(), st.booleans(), number, st.text(max_size=12), st.just("<script>alert(1)</script>"))
    return st.recursive(
        leaf,
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=6), inner, max_size=4)),
        max_leaves=leaves,
    )


def places(value, path=()):
    """Every place in a JSON value, as a path of keys and indices."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from places(inner, (*path, number))


def replaced(value, path, new):
    """A copy with another value at one place; `...` takes the place out."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(path) == 1 and new is ...:
        del copy[path[0]]
    else:
        copy[path[0]] = replaced(copy[path[0]], path[1:], new)
    return copy


def edited(valid, new):
    """Strategy: a JSON value with one to three places replaced by something else, or taken out."""
    every = [path for path in places(valid) if path]

    def apply(edits):
        value = valid
        for path, replacement in edits:
            with contextlib.suppress(KeyError, IndexError, TypeError):  # an earlier edit took the place away
                value = replaced(value, path, replacement)
        return value

    return st.lists(st.tuples(st.sampled_from(every), st.one_of(st.just(...), new)), min_size=1, max_size=3).map(apply)

"""What a program changes in its process, and that it is put back where it matters."""

import gc
import logging
import signal
import subprocess
import sys
import threading
import warnings

import pytest

from dpngram.pipelines.launch.startup import (
    allow_long_chains,
    import_quickly,
    keep_memory,
    quiet_imports,
    quiet_logging,
    stop_in_order,
    stop_status,
)


@pytest.fixture
def root_level():
    root = logging.getLogger()
    before = root.level
    yield
    root.setLevel(before)


@pytest.mark.usefixtures("root_level")
def test_warnings_of_googles_packages_and_of_no_others(recwarn):
    quiet_imports()
    for module in ("google.auth.transport.grpc", "dpngram.pipelines.extract"):
        warnings.warn_explicit("old", FutureWarning, "x.py", 1, module=module)
    warnings.warn_explicit("old", UserWarning, "x.py", 1, module="google.auth")
    assert [warning.category for warning in recwarn] == [FutureWarning, UserWarning]


@pytest.mark.usefixtures("_usual_signals")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 1)])
def test_sigterm_ends_the_body_like_ctrl_c(number, status):
    """Only the exit status tells them apart."""
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), stop_in_order():
        signal.raise_signal(number)
    assert signal.getsignal(signal.SIGTERM) is before
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert stop_status() == status
    with stop_in_order():
        assert stop_status() is None


def test_a_handler_of_the_host_stays():
    seen = []
    signal.signal(signal.SIGTERM, lambda *_: seen.append(1))
    try:
        with stop_in_order():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert seen == [1]


def test_other_threads_have_no_handlers():
    def body():
        with stop_in_order():
            seen.append(signal.getsignal(signal.SIGTERM))

    seen = []
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_DFL]


@pytest.mark.parametrize(("verbose", "level"), [(False, logging.CRITICAL), (True, logging.INFO)])
def test_logging(verbose, level):
    root = logging.getLogger()
    before, handlers = root.level, root.handlers[:]
    try:
        quiet_logging(verbose)
        assert root.level == level
    finally:
        root.setLevel(before)
        root.handlers[:] = handlers


THREAD = """
import threading
from dpngram.pipelines.launch.startup import quiet_logging
quiet_logging({verbose})
def fail():
    raise ValueError("private words")
thread = threading.Thread(target=fail)
thread.start()
thread.join()
"""


@pytest.mark.parametrize("verbose", [False, True])
def test_tracebacks_of_threads(verbose):
    """Their texts may quote the data."""
    command = [sys.executable, "-c", THREAD.format(verbose=verbose)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ("private words" in done.stderr) is verbose


def test_memory():
    keep_memory()
    keep_memory()


def test_no_garbage_is_looked_for_while_a_program_is_imported():
    try:
        with import_quickly():
            assert not gc.isenabled()
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
        gc.unfreeze()
        gc.disable()  # a host's choice
        with import_quickly():
            pass
        assert not gc.isenabled()
        assert not gc.get_freeze_count()
    finally:
        gc.unfreeze()
        gc.enable()


TWICE = """
import gc
from dpngram.pipelines.cli import main
made = []
for _ in range(2):
    made += [[] for _ in range(1000)]
    main(["plan", "--epsilon=4", "--delta=1e-6", "--max_n=1", "--max_contributions=5"])
    print("frozen", gc.get_freeze_count())
"""


def test_what_a_host_has_made_is_not_kept():
    """A second run in a process imports nothing: what is garbage by then must still be found."""
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, check=True)
    first, second = (int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("frozen"))
    assert first > 1000
    assert second < first + 1000


def test_startup_needs_no_beam():
    """`dpngram plan` is quick because of it."""
    code = "import sys, dpngram.pipelines.cli; print('apache_beam' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_long_chains_are_allowed_and_a_higher_limit_stays(monkeypatch):
    """64 levels of `plus` in a run: test_load.py, in a campaign."""
    for limit, after in ((1000, 6000), (9000, 9000)):
        monkeypatch.setattr(sys, "getrecursionlimit", lambda limit=limit: limit)
        said = []
        monkeypatch.setattr(sys, "setrecursionlimit", said.append)
        allow_long_chains()
        assert said == [after]

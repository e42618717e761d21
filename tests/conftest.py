"""Shared fixtures."""

import json
import shutil
import subprocess
import sys
import uuid
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
ENGINE = ROOT / "tests" / "engines" / "test_flink.py"
FETCHING = pytest.StashKey()


def pytest_sessionstart(session):
    """Begins to fetch Flink, which takes minutes once on a new machine, while other tests run.

    `examples/flink.py` keeps it in a cache. The tests of Flink wait for it, and fail with its error if it has failed.
    """
    chosen = [Path(str(name).partition("::")[0]).resolve() for name in session.config.args]
    wanted = any(place == ENGINE or place in ENGINE.parents for place in chosen)
    leader = not hasattr(session.config, "workerinput")  # not one of pytest-xdist's processes
    if leader and wanted and not session.config.option.collectonly and shutil.which("java") and shutil.which("mvn"):
        command = [sys.executable, ROOT / "examples" / "flink.py"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        session.config.stash[FETCHING] = subprocess.Popen(command, **quiet, start_new_session=True)


def pytest_sessionfinish(session):
    if fetching := session.config.stash.get(FETCHING, None):
        fetching.poll()  # it goes on if it is not done: the next run has the rest of it


def pytest_collection_modifyitems(items):
    """Tests of Flink come in the middle: late enough for it to be there, early enough for the end not to wait."""
    late = [item for item in items if item.path == ENGINE]
    items[:] = [item for item in items if item.path != ENGINE]
    items[len(items) // 2 : len(items) // 2] = late


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Tests of one file share fixtures that cost much, an engine among them: they stay in one process."""
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log)


def _new_state(factory, patch):
    """What keys were used for is remembered here, and not in the home of whoever runs the tests."""
    patch.setenv("DPNGRAM_STATE", str(factory.getbasetemp() / f"state-{uuid.uuid4().hex}"))


@pytest.fixture(scope="session", autouse=True)
def _state_of_all_tests(tmp_path_factory):
    """For fixtures of the whole session; processes that a test starts have it, too."""
    with pytest.MonkeyPatch.context() as patch:
        _new_state(tmp_path_factory, patch)
        yield


@pytest.fixture(scope="module", autouse=True)
def _state_of_a_module(tmp_path_factory, _state_of_all_tests):
    with pytest.MonkeyPatch.context() as patch:
        _new_state(tmp_path_factory, patch)
        yield


@pytest.fixture(autouse=True)
def _state_of_a_test(tmp_path_factory, _state_of_a_module):
    """Many tests use the same key bytes; each begins with keys that were not used."""
    with pytest.MonkeyPatch.context() as patch:
        _new_state(tmp_path_factory, patch)
        yield


@pytest.fixture(scope="session")
def msnbc(tmp_path_factory):
    """The paper's second data set, unpacked; read in place, never part of the project."""
    archive = DATA / "msnbc990928.zip"
    if not archive.exists():
        pytest.skip("needs the MSNBC data set: put msnbc990928.zip (UCI) into ../shared/data beside the checkout")
    path = tmp_path_factory.mktemp("msnbc") / "msnbc.seq"
    with zipfile.ZipFile(archive) as file:
        path.write_bytes(file.read("msnbc990928.seq"))
    return path


@pytest.fixture
def posts(tmp_path):
    path = tmp_path / "posts.jsonl"
    path.write_text("".join(json.dumps({"user": f"u{i}", "text": "see you tomorrow"}) + "\n" for i in range(600)))
    return path

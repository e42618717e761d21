"""Shared fixtures."""

import gc
import importlib
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
TESTS = ROOT / "tests"
FLINK = "engines/test_flink.py"
ENGINES = (TESTS / FLINK, TESTS / "engines/test_kafka_flink.py")
# Files that take five seconds of CPU time or more, the longest first. Flink comes late enough to have been fetched.
LONG = (
    "pipelines/test_audit.py",
    "security/test_faults.py",
    "pipelines/test_extract.py",
    "pipelines/test_compare.py",
    "engines/test_dataflow.py",
    "security/test_leaks.py",
    "transforms/test_extract.py",
    "security/test_load.py",
    "pipelines/test_hostile.py",
    "transforms/test_limit_windows.py",
    "transforms/test_reference.py",
    "pipelines/io/test_output_directory.py",
    "statistical/test_precision.py",
    FLINK,
    "transforms/test_decide_release.py",
    "security/test_fuzz_files.py",
    "transforms/test_streams.py",
    "pipelines/test_stream.py",
    "transforms/test_checkpoints.py",
    "security/test_permutations.py",
    "test_examples.py",
    "security/test_fuzz.py",
    "transforms/test_beam_workarounds.py",
    "pipelines/io/test_encoding.py",
    "statistical/test_draws.py",
    "transforms/randomness/test_draws.py",
    "security/test_fuzz_release.py",
    "statistical/test_zero_cells.py",
    "transforms/test_bind_release.py",
    "test_mutants.py",
    "pipelines/launch/test_scaling.py",
    "statistical/test_spurious.py",
    "pipelines/io/test_input_formats.py",
    "pipelines/test_demo.py",
    "pipelines/test_beam_yaml.py",
    "test_packaging.py",
)
# These have fixtures of the whole session in common.
TOGETHER = {
    "tests/pipelines/research/test_results.py": "tests/pipelines/test_compare.py",
    "tests/pipelines/pages/test_comparison_page.py": "tests/pipelines/test_compare.py",
}
FETCHING = pytest.StashKey()


def pytest_sessionstart(session):
    """Begins to fetch Flink, which takes minutes once on a new machine, while other tests run.

    `examples/flink.py` keeps it in a cache. The tests of Flink wait for it, and fail with its error if it has failed.
    """
    chosen = [Path(str(name).partition("::")[0]).resolve() for name in session.config.args]
    wanted = any(place == engine or place in engine.parents for place in chosen for engine in ENGINES)
    leader = not hasattr(session.config, "workerinput")  # not one of pytest-xdist's processes
    if leader and wanted and not session.config.option.collectonly and shutil.which("java") and shutil.which("mvn"):
        command = [sys.executable, ROOT / "examples" / "flink.py"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        session.config.stash[FETCHING] = subprocess.Popen(command, **quiet, start_new_session=True)


def pytest_sessionfinish(session):
    if fetching := session.config.stash.get(FETCHING, None):
        fetching.poll()  # it goes on if it is not done: the next run has the rest of it


def pytest_collection_modifyitems(items):
    """Files that take long come first, so that all processes end at about the same time."""
    order = {TESTS / name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(item.path, len(order)))  # the others stay in their order


def pytest_collection_finish(session):
    """If Beam is loaded, it looks at each signature once, as in our programs. What is imported stays until the end:
    the garbage collector need not look at it again and again.
    """
    if "apache_beam.transforms.core" in sys.modules:
        importlib.import_module("dpngram.pipelines.launch.beam_internals").remember_signatures()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Tests of one file share fixtures that cost much, an engine among them: they stay in one process."""
    from xdist.scheduler import LoadFileScheduling

    class InOrder(LoadFileScheduling):
        """Files begin in the order of the collection. Without this, the file with the most tests would be the first."""

        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return TOGETHER.get(file, file)

        def _assign_work_unit(self, node):
            place = {self._split_scope(test): number for number, test in reversed([*enumerate(self.collection)])}
            self.workqueue.move_to_end(min(self.workqueue, key=place.get), last=False)
            super()._assign_work_unit(node)

    return InOrder(config, log)


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

"""Shared fixtures."""

import json
import zipfile
from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Tests of one file share fixtures that cost much, an engine among them: they stay in one process."""
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log)


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

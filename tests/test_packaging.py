"""A built wheel and an sdist install one top-level name, and the console script, in an empty environment."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = ["setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "accounting", "transforms", "pipelines"]


def run(*command, cwd):
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the sdist, built from a copy so that the checkout stays clean."""
    source = tmp_path_factory.mktemp("source")
    for name in FILES:
        run("cp", "-r", ROOT / name, source / name, cwd=source)
    backend = "import setuptools.build_meta as b; b.build_sdist('dist'); b.build_wheel('dist')"
    run(sys.executable, "-c", backend, cwd=source)
    return sorted((source / "dist").iterdir())


@pytest.mark.parametrize("suffix", [".whl", ".tar.gz"])
def test_one_top_level_name(built, suffix, tmp_path):
    (archive,) = [path for path in built if path.name.endswith(suffix)]
    venv.create(tmp_path, with_pip=True)
    (site,) = tmp_path.glob("lib/python*/site-packages")
    if suffix == ".tar.gz":  # building needs setuptools; the registry is not asked for the dependencies
        run(tmp_path / "bin/pip", "install", "-q", "setuptools>=77", cwd=tmp_path)
    before = {path.name for path in site.iterdir()}
    run(tmp_path / "bin/pip", "install", "-q", "--no-deps", "--no-build-isolation", archive, cwd=tmp_path)
    added = {path.name for path in site.iterdir()} - before
    assert {name for name in added if not name.endswith(".dist-info")} == {"dpngram"}
    assert sorted(path.name for path in (site / "dpngram").iterdir()) == ["accounting", "pipelines", "transforms"]
    assert all((site / "dpngram" / room / "py.typed").exists() for room in ("accounting", "pipelines", "transforms"))
    assert "plan" in run(tmp_path / "bin/dpngram", "--help", cwd=tmp_path)

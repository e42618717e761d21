"""The same graph on Prism, Beam's portable local runner: one release, byte for byte.

Needs Go, which builds Prism from Beam's module into a cache.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import apache_beam as beam
import pytest
from helpers.runs import BUDGET, extract, files, jsonl, small_corpus

pytestmark = pytest.mark.campaign


@pytest.fixture(scope="module")
def prism():
    """The program, built once for this version of Beam."""
    if shutil.which("go") is None:
        pytest.skip("Prism needs go, which is not installed")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dpngram" / f"prism-{beam.__version__}"
    if not (cache / "prism").exists():
        package = f"github.com/apache/beam/sdks/v2/go/cmd/prism@v{beam.__version__}"
        subprocess.run(["go", "install", package], env={**os.environ, "GOBIN": str(cache)}, check=True)
    return cache / "prism"


@pytest.mark.parametrize("policy", ["paper", "plus"])
def test_the_same_bytes(prism, tmp_path, policy):
    (tmp_path / "in.jsonl").write_bytes(jsonl(small_corpus(2000)))
    flags = ["--input", tmp_path / "in.jsonl", "--noise_key", tmp_path / "key", "--policy", policy]
    assert extract(tmp_path / "local", *flags) == 0
    runner = ["--runner=PrismRunner", f"--prism_location={prism}", "--environment_type=LOOPBACK"]
    command = [sys.executable, "-m", "dpngram.pipelines.cli", "extract", "--quiet", *BUDGET, *flags, *runner]
    subprocess.run([*map(str, command), "--output", tmp_path / "prism"], check=True, timeout=600)
    assert files(tmp_path / "prism") == files(tmp_path / "local")

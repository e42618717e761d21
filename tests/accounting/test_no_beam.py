"""accounting/ must stay usable without Beam, and `dpngram plan` fast."""

import subprocess
import sys

import pytest

PLAN = "['plan', '--epsilon', '1', '--delta', '1e-6', '--max_n', '3', '--max_contributions', '9']"


# What takes long to import, and no plan needs.
SLOW = ("apache_beam", "pyarrow", "cryptography", "fastavro", "grpc", "google", "yaml", "pandas")
SLOW += tuple(f"scipy.{part}" for part in ("stats", "optimize", "linalg", "sparse", "integrate", "interpolate"))


@pytest.mark.parametrize(
    "statement", ["import dpngram.accounting", f"from dpngram.pipelines.cli import main; main({PLAN})"]
)
def test_nothing_slow_is_imported(statement):
    """The clock tells little on a busy machine; the list of modules tells why `dpngram plan` is quick.

    What is in the list already when Python starts is not ours, nor what SciPy's special functions need (1.11: linalg).
    """
    check = (
        f"import sys, scipy.special\nbefore = set(sys.modules)\n{statement}\n"
        f"slow = tuple(f'{{part}}.' for part in {SLOW})\n"
        "found = sorted(name for name in set(sys.modules) - before if f'{name}.'.startswith(slow))\n"
        "assert not found, found"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", check], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

"""accounting/ must stay usable without Beam, and `dpngram plan` fast."""

import subprocess
import sys

import pytest

PLAN = "['plan', '--epsilon', '1', '--delta', '1e-6', '--max_n', '3', '--max_contributions', '9']"


@pytest.mark.parametrize(
    "statement", ["import dpngram.accounting", f"from dpngram.pipelines.cli import main; main({PLAN})"]
)
def test_beam_is_not_imported(statement):
    check = (
        f"{statement}\nimport sys\nassert not [m for m in sys.modules if m.split('.')[0] in ('apache_beam', 'pyarrow')]"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", check], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

"""`import dpngram`: what it offers, what it loads, and that it prints nothing."""

import ast
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

import dpngram

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "package" / "__init__.py"
ROOMS = {"accounting", "pipelines", "transforms"}


def python(code, cwd=None):
    """What a fresh process prints, to both streams."""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(
        command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def loaded(code, among):
    """Which of these packages are loaded after the code, and nothing must have been printed before."""
    show = f"\nimport sys\nprint(*sorted({{name.split('.')[0] for name in sys.modules}} & {among!r}))"
    return python(code + show).split()


HEAVY = {"apache_beam", "numpy", "scipy", "pyarrow", "cryptography", "fastavro", "argparse"}


@pytest.mark.parametrize(
    ("code", "packages"),
    [
        ("import dpngram; dpngram.__version__; dir(dpngram); dpngram.pipelines", []),
        ("import dpngram.pipelines.cli", []),
        ("import dpngram; dpngram.plan_extraction", ["numpy", "scipy"]),
        ("from dpngram import ParameterError", ["numpy", "scipy"]),
    ],
)
def test_what_is_loaded(code, packages):
    assert [name for name in loaded(code, HEAVY) if name != "argparse" or not packages] == packages


def test_every_name_is_there():
    for name in dpngram.__all__:
        assert name in dir(dpngram)
        assert getattr(dpngram, name) is not None
    from dpngram.accounting import ExtractionPlan
    from dpngram.transforms import ExtractNgrams

    assert dpngram.ExtractionPlan is ExtractionPlan
    assert dpngram.ExtractNgrams is ExtractNgrams
    assert dpngram.__doc__.startswith("Release n-grams")


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="module 'dpngram' has no attribute 'ExtractNgram'"):
        dpngram.ExtractNgram  # noqa: B018
    assert not hasattr(dpngram, "Randomness")


def test_editors_see_the_names_that_are_there():
    """The imports for mypy and editors are those that `__getattr__` makes."""
    (block,) = [node for node in ast.parse(SOURCE.read_text()).body if isinstance(node, ast.If)]
    seen = {node.module: {alias.name for alias in node.names} for node in block.body}
    assert seen.pop("dpngram") == ROOMS
    (table,) = [node.value for node in block.orelse if isinstance(node, ast.Assign)]
    assert {f"dpngram.{room}": set(names) for room, names in ast.literal_eval(table).items() if names} == seen
    assert set().union(*seen.values(), ROOMS, {"__version__"}) == set(dpngram.__all__)


def test_one_version():
    """`__init__.py` has it; setup.py reads it there. If this fails in a checkout, install it again."""
    assert importlib.metadata.version("dpngram") == dpngram.__version__
    assert python("from dpngram.pipelines.cli import main; main(['--version'])") == f"dpngram {dpngram.__version__}\n"


@pytest.mark.parametrize("name", ["ExtractNgrams", "Ledger", "extract_frame", "read_release"])
def test_nothing_is_printed(name):
    """Without the extra gcp Beam warns of `apitools`, so here it is missing."""
    hide = "import sys; sys.modules['apitools'] = sys.modules['google.cloud.bigquery'] = None\n"
    # Warnings of others about their versions: Python hides the first kind, and Google gives the second to old ones.
    hide += "import warnings; warnings.simplefilter('ignore', DeprecationWarning)\n"
    hide += "warnings.filterwarnings('ignore', category=FutureWarning, module='google')\n"
    assert python(f"{hide}import dpngram\ndpngram.{name}") == ""


@pytest.mark.parametrize("cwd", [".", "package"])
def test_folders_do_not_hide_the_package(cwd):
    """In a checkout, too, `dpngram` is the whole installed package: no folder at its root has this name."""
    code = "from importlib.util import find_spec; print(*(find_spec(f'dpngram.{room}').name for room in ROOMS))"
    assert python(f"ROOMS = {sorted(ROOMS)}; {code}", cwd=ROOT / cwd).split() == [
        f"dpngram.{room}" for room in sorted(ROOMS)
    ]
    assert not (ROOT / "dpngram").exists()

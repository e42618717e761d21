"""Who may import whom: data flows one way, and the pure parts know no Beam."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted(path for room in ("accounting", "transforms", "pipelines") for path in (ROOT / room).rglob("*.py"))
# Each layer may import those before it, and itself.
LAYERS = [
    "accounting",
    "transforms.messages",
    "transforms.blocks",
    "transforms.randomness",
    "transforms.tokenizers",
    "transforms.policies",
    "transforms",
    "transforms.baselines",
    "pipelines",
]
# The coder of blocks; files on any of Beam's filesystems.
KNOWS_BEAM = {
    "transforms/blocks/columns.py",
    "transforms/randomness/key_records.py",
    "transforms/randomness/noise_key.py",
    "transforms/tokenizers/by_text.py",
}
WITHOUT_BEAM = (
    "accounting",
    "transforms.messages",
    "transforms.blocks",
    "transforms.randomness",
    "transforms.tokenizers",
    "transforms.policies",
)
MAY_COMPARE = {"pipelines/compare.py", "pipelines/research/systems.py"}


def layer(module):
    """The longest layer that the dotted name begins with."""
    return max((name for name in LAYERS if f"{module}.".startswith(f"{name}.")), key=len)


def imports(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def names_of_the_package(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "dpngram":
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_layers(path):
    name = str(path.relative_to(ROOT))
    mine = layer(name.removesuffix(".py").replace("/", "."))
    for module in imports(path):
        if module.startswith("dpngram."):
            theirs = layer(module.removeprefix("dpngram."))
            assert LAYERS.index(theirs) <= LAYERS.index(mine), f"{name} imports {module}"
            if theirs == "transforms.baselines" and mine != theirs:
                assert name in MAY_COMPARE, f"{name} imports {module}: baselines are not part of an extraction"
            assert not module.endswith("transforms.testing") or name == "transforms/testing.py", name
        if module.split(".")[0] == "apache_beam":
            assert mine not in WITHOUT_BEAM or name in KNOWS_BEAM, f"{name} imports {module}"


def test_no_cycle_is_hidden():
    """No module is imported under TYPE_CHECKING. (Only `package/` does, and the rooms import just its version.)"""
    assert {name for path in MODULES for name in names_of_the_package(path)} == {"__version__"}
    assert [str(path) for path in MODULES if "TYPE_CHECKING" in path.read_text(encoding="utf-8")] == []

"""What the sources must not do: run code or unpickle what a user supplies, draw from a generator, check by `assert`."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("package", "accounting", "transforms", "pipelines", "templates", "examples")
SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))

# Modules that can run code from bytes, or hide it.
BANNED_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "code", "pdb"}
GENERATORS = {"random", "numpy.random", "np.random"}
BANNED_CALLS = {"eval", "exec", "compile", "__import__", "execfile"}
# Public data are generated here, by an ordinary generator.
MAY_GENERATE = {"pipelines/synth.py", "pipelines/demo.py"}
# These import by name: what the package offers, the programs, and a tokenizer that the operator names, which is checked
# when the graph is built.
MAY_IMPORT = {"package/__init__.py", "transforms/tokenizers/by_text.py", "pipelines/cli.py"}
# For tests and experiments; gives no privacy in any case.
MAY_ASSERT = {"transforms/testing.py"}


def findings(path, name):
    """(line, what) for everything in one file that must not be there."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), name)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            modules = []
        for module in modules:
            if module.split(".")[0] in BANNED_MODULES:
                yield node.lineno, f"imports {module}"
            if module in GENERATORS and name not in MAY_GENERATE:
                yield node.lineno, f"imports {module}"
        generator = isinstance(node, ast.Attribute) and ast.unparse(node) in ("np.random", "numpy.random")
        if generator and name not in MAY_GENERATE:
            yield node.lineno, "draws from numpy's generators"
        if isinstance(node, ast.Assert) and name not in MAY_ASSERT:
            yield node.lineno, "asserts: python -O takes it out"
        if isinstance(node, ast.Call):
            yield from bad_calls(node, name)


def bad_calls(node, name):
    called = ast.unparse(node.func)
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
    last = called.rsplit(".", 1)[-1]
    if called in BANNED_CALLS or called.startswith("builtins."):
        yield node.lineno, f"calls {called}"
    if last == "import_module" and name not in MAY_IMPORT:
        yield node.lineno, "imports a module by a computed name"
    if re.search(r"\byaml\.(unsafe_|full_)?load(_all)?$", called):
        yield node.lineno, f"calls {called}"
    if given.get("allow_pickle", "False") != "False" or (last in ("load", "fromfile") and called.startswith("np.")):
        yield node.lineno, "may unpickle an array"
    if given.get("shell", "False") != "False" or called in ("os.system", "os.popen", "commands.getoutput"):
        yield node.lineno, "calls a shell"
    if last in ("read_pickle", "from_pickle", "loads_pickle", "PickleCoder", "FastPrimitivesCoder"):
        yield node.lineno, f"calls {called}"


def test_sources_are_found():
    assert len(SOURCES) > 60
    assert {path.relative_to(ROOT).parts[0] for path in SOURCES} == set(ROOMS)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_nothing_unsafe(path):
    assert list(findings(path, path.relative_to(ROOT).as_posix())) == []


UNSAFE = {
    "import pickle": "imports pickle",
    "from dill import loads": "imports dill",
    "import numpy.random": "imports numpy.random",
    "from numpy import random": "imports numpy.random",
    "from random import random": "imports random",
    "import numpy as np\nnp.random.default_rng()": "draws from numpy's generators",
    "eval('1')": "calls eval",
    "import yaml\nyaml.load('a')": "calls yaml.load",
    "import yaml\nyaml.unsafe_load('a')": "calls yaml.unsafe_load",
    "import numpy as np\nnp.load('a', allow_pickle=True)": "may unpickle an array",
    "import subprocess\nsubprocess.run('a', shell=True)": "calls a shell",
    "import importlib\nimportlib.import_module('a')": "imports a module by a computed name",
    "assert 1": "asserts: python -O takes it out",
}


@pytest.mark.parametrize("text", UNSAFE)
def test_the_check_has_teeth(text, tmp_path):
    (tmp_path / "bad.py").write_text(text)
    assert UNSAFE[text] in [what for _, what in findings(tmp_path / "bad.py", "transforms/bad.py")]

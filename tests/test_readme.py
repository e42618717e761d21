"""The README's Python runs as it is printed; what SECURITY.md names is there."""

import contextlib
import io
import re
from pathlib import Path

from mutants.mutants import MUTANTS

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"


def test_python_examples_run():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, "README.md", "exec"), {"__name__": "readme"})  # noqa: S102
        assert "see" in printed.getvalue()


def test_every_command_of_the_readme_exists():
    from dpngram.pipelines.cli import PROGRAMS

    used = set(re.findall(r"dpngram (plan|extract|demo|synth|\w+) +--", README.read_text(encoding="utf-8")))
    assert used <= set(PROGRAMS)


def test_tests_named_in_the_security_page_exist():
    """As a file or as a function; a failure class whose test is gone is not covered."""
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "SECURITY.md").read_text()))
    sources = list((ROOT / "tests").rglob("test_*.py"))
    known = {path.stem for path in sources}
    known |= {name for path in sources for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)}
    assert len(named) > 30
    assert named <= known


def test_mutants_named_in_the_security_page_exist():
    page = (ROOT / "SECURITY.md").read_text()
    named = set(re.findall(r"\*([a-z]\w+_\w+)\*", page))
    assert len(named) > 8
    assert named <= {mutant.name for mutant in MUTANTS}

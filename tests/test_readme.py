"""The README's Python runs as it is printed."""

import contextlib
import io
import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


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

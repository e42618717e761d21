"""The campaign over versions: it reads what is declared, and says what is missing."""

import re
import subprocess
import sys

import pytest
from campaign import versions


def test_every_bound_is_read_and_readme_says_the_same():
    pythons, bounds = versions.declared()
    text = (versions.ROOT / "setup.py").read_text(encoding="utf-8")
    (needed,) = re.findall(r"install_requires=\[(.*?)\]", text, re.DOTALL)
    assert len(bounds) == len(re.findall(r'"[^"]+"', needed)) > 3
    assert all(f'"{name}>={version}' in needed for name, version in bounds.items())
    said = f"Python {pythons[0]} to {pythons[-1]}; Beam {bounds['apache-beam']} to"
    assert said in (versions.ROOT / "README.md").read_text(encoding="utf-8")


def test_the_same_beam_in_every_extra():
    text = (versions.ROOT / "setup.py").read_text(encoding="utf-8")
    assert set(re.findall(r"apache-beam[^\"]*(>=[^\"]+)", text)) == {">=2.62,<3"}


def test_every_named_test_is_there():
    assert len(set(versions.WIRING)) == len(versions.WIRING)
    assert [path for path in versions.WIRING if not (versions.ROOT / path).is_file()] == []


def test_interpreters_are_found_by_what_they_answer(tmp_path, monkeypatch):
    """One that does not start, and one of another version, do not count."""
    pyenv = tmp_path / "versions" / "3.99.1" / "bin"
    pyenv.mkdir(parents=True)
    shim = tmp_path / "python3.99"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert versions.find_python("3.99") is None
    (pyenv / "python").write_text("#!/bin/sh\necho 3.99\n")
    (pyenv / "python").chmod(0o755)
    assert versions.find_python("3.99") == str(pyenv / "python")
    assert versions.find_python(f"{sys.version_info.major}.{sys.version_info.minor}") == sys.executable


def test_a_missing_python_is_named(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(versions, "find_python", lambda version: None)
    assert versions.main(["--directory", str(tmp_path)]) == 1
    pythons, _ = versions.declared()
    assert [line.split(" is missing")[0] for line in capsys.readouterr().out.splitlines()] == [
        f"oldest: FAILED: Python {pythons[0]}",
        f"newest: FAILED: Python {pythons[-1]}",
    ]


def test_a_failure_is_one(monkeypatch, capsys, tmp_path):
    """A step that fails ends the environment; its name and the end of the output are shown."""
    monkeypatch.setattr(versions, "find_python", lambda version: sys.executable)
    monkeypatch.setattr(versions.shutil, "copytree", lambda *_, **__: None)
    monkeypatch.setattr(versions, "ROOT", tmp_path)
    monkeypatch.setattr(versions, "declared", lambda: (["3.10"], {"numpy": "1.26"}))
    run = subprocess.run
    failing = ["-c", "import sys; sys.exit('no such package')"]
    monkeypatch.setattr(versions.subprocess, "run", lambda command, **rest: run([sys.executable, *failing], **rest))
    assert versions.main(["oldest", "--directory", str(tmp_path)]) == 1
    assert capsys.readouterr().out.startswith("no such package\noldest: FAILED in venv;")
    assert (tmp_path / "oldest-pins.txt").read_text() == "numpy==1.26\n"


def test_other_environments_are_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        versions.main(["middle"])
    assert "got 'middle'" in capsys.readouterr().err

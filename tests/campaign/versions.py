"""The graph's tests with the oldest and with the newest Python, Beam and packages that setup.py declares.

    python tests/campaign/versions.py                    # both: wiring, windows, side inputs, formats
    python tests/campaign/versions.py oldest --whole     # one of them, with every test
    python tests/campaign/versions.py newest --python 3.14

Each environment is fresh: the packages come from the registry, or from pip's cache. `oldest` has exactly the lower
bounds of setup.py, and of other packages the newest that goes with them. `newest` has the newest of everything.
Exit status 1: something failed.
"""

import argparse
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]

# What depends on Beam and on the packages: wiring, windows, side inputs, streams, and the formats of files.
WIRING = (
    "tests/transforms/test_beam_workarounds.py",
    "tests/transforms/test_context.py",
    "tests/transforms/test_extract.py",
    "tests/transforms/test_limit_windows.py",
    "tests/transforms/test_reference.py",
    "tests/transforms/test_streams.py",
    "tests/transforms/test_windowing.py",
    "tests/pipelines/io/test_input_formats.py",
    "tests/pipelines/launch/test_beam_flags.py",
    "tests/pipelines/launch/test_beam_internals.py",
    "tests/pipelines/test_extract.py",
    "tests/pipelines/test_stream.py",
)
_LEFT_OUT = (".git", ".venv*", ".*cache", "build", "dist", "*.egg-info", "__pycache__")
_SHOWN = """
import importlib.metadata, platform, sys
print("Python", platform.python_version(), *(f", {name} {importlib.metadata.version(name)}" for name in sys.argv[1:]))
"""


def declared() -> tuple[list[str], dict[str, str]]:
    """What setup.py says: the Pythons, in order, and the lower bound of each package that an installation needs."""
    with mock.patch("setuptools.setup") as setup:
        runpy.run_path(str(ROOT / "setup.py"))
    said = setup.call_args.kwargs
    pythons = [word.rsplit(" ", 1)[1] for word in said["classifiers"] if re.search(r"Python :: 3\.\d+$", word)]
    bounds = [re.match(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", requirement) for requirement in said["install_requires"]]
    return pythons, {bound[1]: bound[2] for bound in bounds if bound}


def find_python(version: str) -> str | None:
    """An interpreter of this version: this one, one on the PATH, or one of pyenv's. One that does not start is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    places = [sys.executable, shutil.which(f"python{version}")]
    places += sorted(map(str, pyenv.glob(f"versions/{version}.*/bin/python")), reverse=True)
    question = "import sys; print('%d.%d' % sys.version_info[:2])"
    for place in filter(None, places):
        answer = subprocess.run([place, "-c", question], capture_output=True, text=True, check=False)
        if answer.stdout.strip() == version:
            return place
    return None


def try_environment(name: str, python: str, pins: Sequence[str], tests: Sequence[str], work: Path) -> bool:
    """Makes the environment, runs the tests in it, and prints a line. The whole output is in a file beside it."""
    begun, log = time.monotonic(), work / f"{name}.log"
    place, source, shown = work / name, work / f"{name}-source", work / f"{name}-pins.txt"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*_LEFT_OUT))  # builds leave no files in the checkout
    shown.write_text("\n".join(pins) + "\n")
    inside = str(place / "bin" / "python")
    steps = {
        "venv": [python, "-m", "venv", "--clear", str(place)],
        "pip": [inside, "-m", "pip", "install", "--upgrade", "pip"],
        "pip install": [inside, "-m", "pip", "install", f"{source}[test]", "--constraint", str(shown)],
        "pytest": [inside, "-m", "pytest", "-q", "-n", "auto", "-p", "no:cacheprovider", *tests],
    }
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    with log.open("w") as file:
        for step, command in steps.items():
            if subprocess.run(command, cwd=ROOT, env=clean, stdout=file, stderr=file, check=False).returncode:
                print(*log.read_text(errors="replace").splitlines()[-30:], sep="\n")
                print(f"{name}: FAILED in {step}; all of it is in {log}", flush=True)
                return False
    names = list(declared()[1])
    versions = subprocess.run([inside, "-c", _SHOWN, *names], capture_output=True, text=True, check=True).stdout.strip()
    passed = log.read_text(errors="replace").splitlines()[-1].strip("= ")
    print(f"{name}: {versions.replace(' ,', ',')}: {passed}; {time.monotonic() - begun:.0f} s in all", flush=True)
    return True


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("environments", nargs="*", metavar="oldest|newest", help="which (default: both)")
    parser.add_argument("--whole", action="store_true", help="every test, not only those of the graph")
    parser.add_argument("--python", metavar="X.Y", help="this Python, not the one that setup.py declares")
    parser.add_argument(
        "--directory",
        type=Path,
        metavar="DIR",
        help="keep environments and logs here (default: deleted if all is well)",
    )
    flags = parser.parse_args(argv)
    unknown = set(flags.environments) - {"oldest", "newest"}
    if unknown:
        parser.error(f"environment must be oldest or newest, got {min(unknown)!r}.")
    pythons, bounds = declared()
    lowest = [f"{name}=={version}" for name, version in bounds.items()]
    tests = () if flags.whole else WIRING
    good = True
    work = (flags.directory or Path(tempfile.mkdtemp(prefix="dpngram-versions-"))).resolve()
    work.mkdir(parents=True, exist_ok=True)
    for name in flags.environments or ("oldest", "newest"):
        version = flags.python or pythons[0 if name == "oldest" else -1]
        python = find_python(version)
        if python is None:
            print(f"{name}: FAILED: Python {version} is missing: it is neither on the PATH nor one of pyenv's.")
            good = False
        else:
            good &= try_environment(name, python, lowest if name == "oldest" else (), tests, work)
    if good and flags.directory is None:
        shutil.rmtree(work)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

"""The wheel, the sdist and the image: what is in them, what their metadata say, and that they work by themselves."""

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import dpngram

ROOT = Path(__file__).parent.parent
ROOMS = ("accounting", "pipelines", "transforms")
# In the checkout, and not in the sdist.
LEFT_OUT = shutil.ignore_patterns(
    ".git*",
    ".ci",
    ".venv*",
    ".*cache",
    ".cache",
    ".hypothesis",
    "__pycache__",
    "*.py[cod]",
    "build",
    "dist",
    "*.egg-info",
)
MADE = ("PKG-INFO", "setup.cfg", "dpngram.egg-info", "build")  # by setuptools


def run(*command, cwd):
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files_under(directory):
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}


def sources(directory):
    return {name for name in files_under(directory) if name.split("/")[0] not in MADE}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy, so that the checkout stays clean."""
    return Path(shutil.copytree(ROOT, tmp_path_factory.mktemp("source") / "tree", ignore=LEFT_OUT))


@pytest.fixture(scope="module")
def built(source, tmp_path_factory):
    """A directory with the sdist, unpacked, and the wheel that is built from it, as `python -m build` does."""
    out = tmp_path_factory.mktemp("built")
    private = source / "tests" / "posts.jsonl"  # data that somebody left where only sources belong
    private.write_text("{}\n")
    run(sys.executable, "-c", f"import setuptools.build_meta as b; b.build_sdist({str(out)!r})", cwd=source)
    private.unlink()
    (archive,) = out.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(out, filter="data")
    (unpacked,) = [path for path in out.iterdir() if path.is_dir()]
    copy = Path(shutil.copytree(unpacked, out / "copy"))  # building leaves files behind
    run(sys.executable, "-c", f"import setuptools.build_meta as b; b.build_wheel({str(out)!r})", cwd=copy)
    shutil.rmtree(copy)
    unpacked.rename(out / "sdist")
    return out


@pytest.fixture(scope="module")
def wheel(built):
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def metadata(wheel):
    with zipfile.ZipFile(wheel) as file:
        (name,) = [name for name in file.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_string(file.read(name).decode("utf-8"))


def test_the_sdist_has_every_source_and_no_data(source, built):
    """Tests, documents and examples too: whoever unpacks it can test it. Data in the checkout stay there."""
    inside = sources(built / "sdist")
    assert inside == sources(source)
    assert {"SECURITY.md", "CONTRIBUTING.md", "tests/test_packaging.py", "docs/privacy.md"} <= inside


def test_the_sdist_tests_itself(built):
    """A few files of tests run where it is unpacked: helpers, settings and documents are found there."""
    tests = ["tests/accounting/test_schedules.py", "tests/test_layers.py", "tests/test_readme.py"]
    run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not run", *tests, cwd=built / "sdist")


def test_the_wheel_has_one_top_level_name(source, wheel):
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist() if ".dist-info/" not in name}
    expected = {f"dpngram/{room}/{name}" for room in ROOMS for name in files_under(source / room)}
    assert names == expected | {"dpngram/__init__.py", "dpngram/py.typed"}


def test_the_wheel_in_an_empty_environment(wheel, tmp_path):
    """The command is there, and says its version and its programs before any dependency is needed."""
    venv.create(tmp_path, with_pip=False)
    target = tmp_path / "bin" / "python"
    run(
        sys.executable, "-m", "pip", "--python", target, "install", "-q", "--no-deps", "--no-index", wheel, cwd=tmp_path
    )
    assert run(tmp_path / "bin/dpngram", "--version", cwd=tmp_path) == f"dpngram {dpngram.__version__}\n"
    assert "plan" in run(tmp_path / "bin/dpngram", "--help", cwd=tmp_path)


def test_metadata(metadata):
    assert metadata["Name"] == "dpngram"
    assert metadata["Version"] == dpngram.__version__
    assert metadata["Summary"].rstrip(".") == dpngram.__doc__.splitlines()[0].rstrip(".")
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["License-File"] == "LICENSE"
    assert metadata["Keywords"]
    assert metadata["Author"]
    lowest = metadata["Requires-Python"].partition(",")[0].removeprefix(">=")
    assert f"Programming Language :: Python :: {lowest}" in metadata.get_all("Classifier")
    assert {"gcp", "hf"} <= set(metadata.get_all("Provides-Extra"))


def test_the_description_is_the_readme_without_links_to_files(metadata):
    """On the page of an index they would lead nowhere. Their words stay."""
    assert metadata["Description-Content-Type"] == "text/markdown"
    text, readme = metadata.get_payload(), (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((?!https?://)[^)]*\)", text) == []
    assert len(text.splitlines()) == len(readme.splitlines())
    assert "docs/privacy.md has the proofs" in text


def test_every_dependency_is_imported(metadata):
    """`pip install dpngram` asks for what the sources import, and for nothing else; the rest comes with these."""
    always = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    required = {re.split(r"[<>=!~;\[ ]", line)[0].replace("-", "_") for line in always}
    text = "\n".join(path.read_text(encoding="utf-8") for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    imported = set(re.findall(r"^import (\w+)|^from (\w+)[\w.]* import ", text, re.MULTILINE))
    imported = {name for pair in imported for name in pair if name} - set(sys.stdlib_module_names)
    assert imported - {"dpngram"} == required


def dockerfile():
    """(instruction, rest) of each line; continued lines are joined."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line and not line.startswith("#")]


def test_the_image_copies_what_the_wheel_is_built_from(source, tmp_path):
    """Docker does not run in the tests. The lines of its first stage are followed by hand: what is copied suffices."""
    lines = dockerfile()
    stages = [number for number, (word, _) in enumerate(lines) if word == "FROM"]
    assert len(stages) == 2
    copied = [name for word, rest in lines[: stages[1]] if word == "COPY" for name in rest.split()[:-1]]
    for name in copied:
        (shutil.copytree if (source / name).is_dir() else shutil.copy)(source / name, tmp_path / name)
    (command,) = [rest for word, rest in lines[: stages[1]] if word == "RUN"]
    assert command == "pip wheel --no-cache-dir --no-deps --wheel-dir /wheels ."
    run(sys.executable, "-c", "import setuptools.build_meta as b; b.build_wheel('wheels')", cwd=tmp_path)
    (wheel,) = (tmp_path / "wheels").glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        modules = {name for name in file.namelist() if name.endswith(".py")}
    assert len(modules) == sum(len(list((source / room).rglob("*.py"))) for room in (*ROOMS, "package"))


def test_the_image_runs_the_command_as_nobody_special():
    words = dict(dockerfile())  # the last of each
    assert words["ENTRYPOINT"] == '["dpngram"]'
    assert words["USER"] not in ("root", "0")
    assert [rest for word, rest in dockerfile() if word == "COPY"][-1] == "--from=build /wheels /wheels"
    python = words["ARG"].removeprefix("PYTHON=")
    assert f'"Programming Language :: Python :: {python}"' in (ROOT / "setup.py").read_text()


def test_the_build_of_an_image_sees_sources_only():
    """Data, keys and releases in a checkout are not sent to Docker; what both Dockerfiles copy is."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert lines[1] == "*"
    kept = {line.removeprefix("!") for line in lines if line.startswith("!")}
    texts = [(ROOT / name).read_text() for name in ("Dockerfile", "templates/dataflow/Dockerfile")]
    copied = {
        name.split("/")[0]
        for text in texts
        for line in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.MULTILINE)
        for name in line.split()
    }
    assert kept == copied

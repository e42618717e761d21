"""What is dropped while Beam is imported, what is not, and that the host's logging stays as it was."""

import functools
import logging
import subprocess
import sys

import pytest

from dpngram.transforms.quiet_beam import without_missing_extras

BEAM_FILE = "/lib/site-packages/apache_beam/io/gcp/internal/clients/bigquery/__init__.py"


def log_from(path, level=logging.WARNING, name="root"):
    logger = logging.getLogger(name)
    logger.handle(logger.makeRecord(name, level, path, 1, f"line of {path}", (), None))


@pytest.mark.parametrize(
    ("path", "level", "name", "appears"),
    [
        (BEAM_FILE, logging.WARNING, "root", False),
        (BEAM_FILE.replace("/", "\\"), logging.WARNING, "root", False),
        (BEAM_FILE, logging.ERROR, "root", True),
        (BEAM_FILE, logging.WARNING, "host", True),
        ("/lib/site-packages/apache_beam/pipeline.py", logging.WARNING, "root", True),
        ("/home/host/program.py", logging.WARNING, "root", True),
    ],
)
def test_what_is_dropped(path, level, name, appears, caplog):
    with without_missing_extras():
        log_from(path, level, name)
    assert (f"line of {path}" in caplog.messages) is appears
    log_from(path, level, name)
    assert f"line of {path}" in caplog.messages


def test_an_error_in_the_body(caplog):
    with pytest.raises(ImportError), without_missing_extras():
        raise ImportError("no Beam")
    log_from(BEAM_FILE)
    assert len(caplog.messages) == 1


HOST = """
import logging, sys
sys.modules["apitools"] = None  # as without the extra gcp
{set_up}
before = logging.root.handlers[:], logging.root.filters[:], logging.root.level
import dpngram.transforms
assert (logging.root.handlers, logging.root.filters, logging.root.level) == before, logging.root.handlers
logging.basicConfig(level=logging.INFO, format="host: %(message)s", stream=sys.stdout)
logging.info("still works")
"""


@pytest.mark.parametrize(
    "set_up", ["", "logging.basicConfig(level=logging.INFO, format='host: %(message)s', stream=sys.stdout)"]
)
def test_logging_of_a_host_stays(set_up):
    """Also if it is configured after the import: Beam alone would have given the root logger a handler."""
    command = [sys.executable, "-W", "ignore::FutureWarning", "-c", HOST.format(set_up=set_up)]  # Google's, if old
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = [line for line in done.stdout.splitlines() if "Using Any for unsupported type" not in line]  # Beam 2.62
    assert (said, done.stderr) == (["host: still works"], "")


def test_others_are_heard_meanwhile(monkeypatch, capsys, request):
    """A host without any handler sees its warnings on stderr, as ever."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    request.addfinalizer(functools.partial(logging.getLogger().setLevel, logging.getLogger().level))
    logging.getLogger().setLevel(logging.WARNING)  # a program that ran before may have silenced it
    with without_missing_extras():
        log_from(BEAM_FILE)
        log_from("/home/host/program.py")
        logging.warning("through the module")  # this function adds a handler where there is none
    assert capsys.readouterr().err == "line of /home/host/program.py\nthrough the module\n"
    assert logging.getLogger().handlers == []

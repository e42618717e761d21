"""What a program changes in its process: what is printed, and what is not."""

import subprocess
import sys

import pytest

# In a process of its own: the switches are the process's.
PROGRAM = """
import gc, logging, sys, threading
from dpngram.pipelines.launch.startup import keep_memory, quiet_logging

class Fragile:
    def __del__(self):
        raise ValueError("a user's text, unraisable")

def fail():
    raise ValueError("a user's text, in a thread")

keep_memory()
quiet_logging(sys.argv[1] == "verbose")
thread = threading.Thread(target=fail)
thread.start()
thread.join()
del thread
Fragile()
gc.collect()
logging.getLogger("apache_beam").warning("a user's text, logged")
print("done")
"""


@pytest.mark.parametrize("mode", ["quiet", "verbose"])
def test_other_peoples_texts_are_printed_only_if_asked(mode):
    done = subprocess.run([sys.executable, "-c", PROGRAM, mode], capture_output=True, text=True, check=True)
    assert done.stdout == "done\n"
    if mode == "quiet":
        assert done.stderr == ""
    else:
        assert all(f"a user's text, {place}" in done.stderr for place in ("unraisable", "in a thread", "logged"))

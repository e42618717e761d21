"""A plugin for pytest: says where dpngram was imported from, so that a mutant that was not run is not called alive."""

import os
import sys


def pytest_terminal_summary(terminalreporter):
    tree = os.path.realpath(os.environ["DPNGRAM_MUTANT_TREE"]) + os.sep
    files = [
        os.path.realpath(module.__file__)
        for name, module in sorted(sys.modules.items())
        if f"{name}.".startswith("dpngram.") and getattr(module, "__file__", None)
    ]
    foreign = [file for file in files if not file.startswith(tree)]
    terminalreporter.write_line(f"guard: {len(files)} modules, {len(foreign)} of them foreign {foreign[:1]}")

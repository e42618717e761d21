"""A command line of `dpngram plan` that works, and changes of it."""

WORKING = {"--epsilon": "4", "--delta": "1e-7", "--max_n": "9", "--max_contributions": "300", "--policy": "paper"}


def words(**changes):
    flags = {**WORKING, **{f"--{name}": value for name, value in changes.items()}}
    return ["plan", *(word for flag, value in flags.items() if value is not None for word in (flag, value))]

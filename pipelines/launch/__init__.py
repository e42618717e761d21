"""How a program starts: flags, runner, progress, failures."""

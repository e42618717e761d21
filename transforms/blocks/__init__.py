"""Blocks: the frozen columns that travel between steps. No Beam but the coder in `columns`."""

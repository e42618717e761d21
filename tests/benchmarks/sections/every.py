"""All sections, by name."""

from benchmarks.sections import peers, released

SECTIONS = {**released.SECTIONS, **peers.SECTIONS}

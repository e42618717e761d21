"""All sections, by name."""

from benchmarks.sections import released

SECTIONS = {**released.SECTIONS}

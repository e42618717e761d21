"""All sections, by name."""

from benchmarks.sections import costs, peers, released, trust

SECTIONS = {**released.SECTIONS, **peers.SECTIONS, **costs.SECTIONS, **trust.SECTIONS}

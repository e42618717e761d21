"""All sections, by name."""

from benchmarks.sections import by_hand, compared, costs, peers, released, sizes, special, trust

MODULES = (released, compared, peers, costs, sizes, special, trust, by_hand)
SECTIONS = {name: section for module in MODULES for name, section in module.SECTIONS.items()}

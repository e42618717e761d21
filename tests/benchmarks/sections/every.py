"""All sections, by name."""

from benchmarks.sections import by_hand, compared, costs, modelled, peers, released, sizes, special, trust

MODULES = (released, special, compared, peers, costs, sizes, modelled, trust, by_hand)
SECTIONS = {name: section for module in MODULES for name, section in module.SECTIONS.items()}

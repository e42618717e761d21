"""All sections, by name."""

from benchmarks.sections import by_hand, costs, peers, released, sizes, trust

SECTIONS = {
    name: section for part in (released, peers, costs, sizes, trust, by_hand) for name, section in part.SECTIONS.items()
}

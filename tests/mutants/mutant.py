"""What a seeded mutant is: an edit that breaks a promise, why that matters, and the tests that must notice."""

import dataclasses
from pathlib import Path

__all__ = ["ROOT", "Edit", "Mutant", "apply_edits"]

ROOT = Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class Edit:
    """`old` stands exactly once in `file`, and becomes `new`."""

    file: str
    old: str
    new: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mutant:
    """A deliberately broken build. Several edits where one alone would be caught by a check inside the library."""

    name: str
    why: str  # what it breaks, and why that is a failure of privacy
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]  # of which at least one must fail; the cheapest first
    attack: str = ""  # of `dpngram audit`: one that must see it, too


def apply_edits(mutant: Mutant, tree: Path) -> dict[str, str]:
    """The mutated text of each file that the mutant touches; an error if an edit does not apply."""
    texts: dict[str, str] = {}
    for edit in mutant.edits:
        text = texts.get(edit.file) or (tree / edit.file).read_text(encoding="utf-8")
        if text.count(edit.old) != 1:
            raise ValueError(f"{mutant.name}: the old text is {text.count(edit.old)} times in {edit.file}, not once.")
        texts[edit.file] = text.replace(edit.old, edit.new)
    return texts

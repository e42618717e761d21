"""What the steps of a round read beside their main input."""

import dataclasses

import apache_beam as beam
from apache_beam.pvalue import AsSideInput, AsSingleton

from dpngram.transforms.beam_workarounds import AsWhole, as_side, as_whole
from dpngram.transforms.blocks.pieces import Piece
from dpngram.transforms.randomness.noise_key import Randomness

__all__ = ["ReleaseContext", "histogram_shards"]

# Blocks of users hold positions, shards of a histogram only distinct grams.
_BLOCKS_PER_SHARD = 8


def histogram_shards(blocks: int) -> int:
    """Into how many shards a histogram is cut whose users are in so many blocks."""
    return -(-blocks // _BLOCKS_PER_SHARD)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseContext:
    """The key of a release, and what it has published so far, as side inputs. Made by `begin`, moved on by the others.

        context = ReleaseContext.begin(users | BindRelease(randomness), randomness)
        users, first = users | "Level1" >> ExtractLevel(rounds[0], context)
        users, second = users | "Level2" >> ExtractLevel(rounds[1], context.after_level(first))

    Side inputs belong to the window, and none of them is ever empty where there are users: the binding has an element
    there, it starts the end of each round, and each round ends with at least one piece, also if nothing is released. On
    Flink a window would otherwise wait for the end of the stream. What is missing is an error: without the binding
    nothing can draw noise, and without all pieces of S_{k-1} nothing is pruned.

    Privacy: the levels are public. The binding is private, and only key derivation reads it.
    """

    randomness: Randomness
    start: beam.PCollection[bytes]  # one element for each window that has users: what starts the end of a round
    binding: AsSingleton  # the same element; see `BindRelease`
    shards: int = 1  # into how many parts a histogram is cut
    first: AsWhole | None = None  # S_1
    previous: AsWhole | None = None  # S_{k-1}
    earlier: AsWhole | None = None  # what earlier rounds of this level have found out
    levels: int = 0  # how many levels are complete: k - 1
    last: int | None = None  # the last level of the graph; None: that of the plan
    checkpoint: str | None = None  # the file that gets what the round finds out; None: none
    public_vocabulary: bool = False  # whether S_1 was known before, see `VocabularyLevel`

    @classmethod
    def begin(
        cls, binding: beam.PCollection[bytes], randomness: Randomness, *, blocks: int = 1, last: int | None = None
    ) -> "ReleaseContext":
        """Before anything is released.

        Args:
            binding: from `BindRelease`, with the same `randomness`.
            randomness: where the key is, and what the noise is bound to.
            blocks: into how many blocks the users are cut; a histogram is cut into fewer shards, see
                `histogram_shards`. Does not change the result.
            last: the last level of the graph; None: that of the plan.
        """
        side = as_side(binding, "Binding")
        return cls(randomness=randomness, start=binding, binding=side, shards=histogram_shards(blocks), last=last)

    def after_level(self, level: beam.PCollection[Piece]) -> "ReleaseContext":
        """When the next level is complete: S_k becomes what level k+1 prunes with."""
        side = as_whole(level, f"S{self.levels + 1}")
        return dataclasses.replace(self, first=self.first or side, previous=side, earlier=None, levels=self.levels + 1)

    def after_vocabulary(self, words: beam.PCollection[Piece]) -> "ReleaseContext":
        """When S_1 comes from a `VocabularyLevel` instead of level 1."""
        return dataclasses.replace(self.after_level(words), public_vocabulary=True)

    def with_vocabulary(self, words: beam.PCollection[Piece]) -> "ReleaseContext":
        """Where level 1 weighs the words of a `VocabularyLevel`: its one round reads them as what is known already."""
        return dataclasses.replace(self, earlier=as_whole(words, "Listed"))

    def after_round(self, found: beam.PCollection[Piece], label: str) -> "ReleaseContext":
        """When a round that is not the last of its level is complete."""
        return dataclasses.replace(self, earlier=as_whole(found, f"{label}Found"))

    def sides(self, *names: str) -> dict[str, AsSideInput]:
        """Those of `binding`, `first`, `previous` and `earlier` that are there: keyword arguments for a ParDo."""
        return {name: side for name in names if (side := getattr(self, name)) is not None}

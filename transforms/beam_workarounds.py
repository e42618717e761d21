"""Where Beam needs a helping hand: each function says what is missing, and since when it was seen.

Nothing here uses a private attribute of Beam, but for `AsWhole`, which says what it overrides.
"""

from collections.abc import Iterable
from typing import Any, TypeVar

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsSideInput, AsSingleton
from apache_beam.typehints.native_type_compatibility import convert_to_beam_type

from dpngram.transforms.blocks.columns import Block
from dpngram.transforms.blocks.pieces import Piece, join_pieces

__all__ = [
    "AsWhole",
    "applied_label",
    "as_iter",
    "as_pieces",
    "as_side",
    "as_whole",
    "check_main_input",
    "gather",
    "with_element_type",
]

_NO_DEFAULT: Any = object()
_Element = TypeVar("_Element")


def as_side(collection: beam.PCollection[Any], label: str, default: Any = _NO_DEFAULT) -> AsSingleton:
    """The one element of each window as a side input; a window without one has the default, or is an error.

    Works around a bug in FnApiRunner (seen in Beam 2.77). To find the producer of a side input it takes the first stage
    that mentions the collection. If another stage reads the same collection as its main input, that stage may be
    found instead, and the side input is silently empty. So the side input reads a copy that nothing else reads. A test
    looks at every graph of ours.

    Make one copy for all readers: each costs a worker the element's bytes several times over, and levels may be large.
    """
    copy = _copy(collection, label)
    return AsSingleton(copy) if default is _NO_DEFAULT else AsSingleton(copy, default_value=default)


class AsWhole(AsSideInput):
    """A block as a side input, put together from its pieces once for each bundle and window, as `AsSingleton` does it.

    Beam calls the two methods below when a side input is read, and keeps what they give until the bundle is over, by
    window. Both are Beam's own (Beam 2.62 to 2.77 have them); nothing that is public lets a side input say how its
    elements become a value. If a version of Beam has others, building the graph or the first reading fails.
    """

    def __init__(self, pieces: beam.PCollection[Piece], columns: tuple[str, ...] | None = None) -> None:
        super().__init__(pieces)
        self._columns = columns

    def reading(self, *columns: str) -> "AsWhole":
        """The same block with these columns only: the others take no memory."""
        return AsWhole(self.pvalue, columns)

    def _view_options(self) -> dict[str, Any]:
        return {**super()._view_options(), "columns": self._columns}

    @staticmethod
    def _from_runtime_iterable(pieces: Iterable[Piece], options: dict[str, Any]) -> Block:
        return join_pieces(pieces, options["columns"])


def as_whole(pieces: beam.PCollection[Piece], label: str) -> AsWhole:
    """The block of each window as a side input, from its pieces; a window without one is an error. See `as_side`."""
    return AsWhole(_copy(pieces, label))


def as_pieces(pieces: beam.PCollection[Piece], label: str) -> AsIter:
    """The pieces of a block as a side input, for a step that puts it together by itself. See `as_side`."""
    return AsIter(_copy(pieces, label))


def _copy(collection: beam.PCollection[Any], label: str) -> beam.PCollection[Any]:
    return collection | label >> beam.Map(_same).with_output_types(collection.element_type)


def as_iter(
    collection: beam.PCollection[_Element], start: beam.PCollection[Any], nothing: _Element, label: str
) -> AsIter:
    """All elements of a window as a side input, which is never empty where `start` has an element.

    Works around Flink's runner (seen in Beam 2.62 and 2.70): a side input that is empty in a window becomes ready only
    when the whole stream ends, so the window would not be released before. `nothing`, once for each element of `start`,
    is among the elements; readers leave it out. Nothing else reads the collection, see `as_side`.
    """
    marker = start | f"{label}Marker" >> beam.Map(_instead, nothing).with_output_types(type(nothing))
    return AsIter((collection, marker) | label >> beam.Flatten())


def gather(
    collection: beam.PCollection[_Element], start: beam.PCollection[Any], nothing: _Element, label: str
) -> beam.PCollection[Iterable[_Element]]:
    """All elements of a window together, as one element, for each element of `start`: `nothing` is among them.

    For a step that begins when all of them are there. As a side input they would cost a second on Flink (seen in Beam
    2.62 and 2.70): while an element waits for its side inputs, each of those that comes makes the step forget how far
    its watermark was, so two that come after one watermark hold the window until the next (docs/engines.md). What
    comes last is therefore the main input; the side inputs are there by then.
    """
    marker = start | f"{label}Marker" >> beam.Map(_instead, nothing).with_output_types(type(nothing))
    return (
        (collection, marker)
        | label >> beam.Flatten()
        | f"{label}Keyed" >> beam.Map(_keyed).with_output_types(tuple[int, type(nothing)])  # type: ignore[misc]
        | f"{label}Grouped" >> beam.GroupByKey()
        | f"{label}Together" >> beam.Values()
    )


def _keyed(element: _Element) -> tuple[int, _Element]:
    return 0, element


def _instead(_element: Any, nothing: _Element) -> _Element:
    return nothing


def _same(element: _Element) -> _Element:
    return element


def with_element_type(collection: beam.PCollection[Any], element_type: Any) -> beam.PCollection[Any]:
    """The same collection, with the type from which Beam chooses its coder.

    For tagged outputs of a ParDo. `with_output_types` takes types for tags in newer versions of Beam only.
    """
    collection.element_type = convert_to_beam_type(element_type)
    return collection


def check_main_input(transform: beam.ParDo, element_type: Any) -> beam.ParDo:
    """The same transform, of whose inputs Beam checks the main one only.

    Beam 2.62 refuses two kinds of annotations that are right: a TypedDict, and `**keywords` where no keyword is given.
    """
    return transform.with_input_types(
        element_type, *(Any for _ in transform.args), **dict.fromkeys(transform.kwargs, Any)
    )


def applied_label(pipeline: beam.Pipeline) -> str:
    """The full name of the transform that is being expanded: where in the host's graph we are."""
    label: str = pipeline.transforms_stack[-1].full_label
    return label

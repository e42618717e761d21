"""Side inputs that no runner loses."""

from typing import Any

import apache_beam as beam

__all__ = ["for_sides"]

_MARK = "_dpngram_for_sides"


def for_sides(collection: beam.PCollection[Any], label: str) -> beam.PCollection[Any]:
    """The same elements, in a collection that is read as a side input and as nothing else.

    Beam's FnApiRunner (2.77) takes for the producer of a side input the first stage of its list that has the collection
    among its outputs. A stage that reads it as main input has, too, and the list is not always in order: it follows
    the order of sets, and so differs from process to process. Where the reader comes first, the side input is silently
    empty. What nothing else reads has one such stage only. A test holds that no graph of ours does otherwise.

    One copy does for any number of readers: a copy is given back as it is. Each costs a worker the element's bytes
    several times over, and levels may be large.
    """
    if getattr(collection, _MARK, False):
        return collection
    copy = collection | label >> beam.Map(_same).with_output_types(collection.element_type)
    setattr(copy, _MARK, True)
    return copy


def _same(element: Any) -> Any:
    return element

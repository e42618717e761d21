"""What the type of a host's documents tells before a run: whether they can have a user and a text at all."""

import dataclasses
from collections.abc import Iterable
from typing import Any, get_type_hints

import apache_beam as beam
import numpy as np
from apache_beam.typehints import typehints
from apache_beam.typehints.row_type import RowTypeConstraint
from apache_beam.typehints.schemas import named_fields_from_element_type

from dpngram.accounting import ParameterError
from dpngram.transforms.blocks.documents import DocumentBlock
from dpngram.transforms.document_form import DocumentForm

__all__ = ["check_documents"]

_NEVER_A_DOCUMENT = (str, bytes, int, float, bool, type(None))
_NEVER_A_USER = (float, bool, dict, list, set, np.floating, np.bool_, type(None))
_NEVER_A_TEXT = (int, float, bool, bytes, dict, set, np.number, np.bool_, type(None))
_MOST_NAMES = 20


def check_documents(documents: beam.PCollection[Any], form: DocumentForm) -> None:
    """Raises ParameterError, when the graph is built, if no document of this type can be read.

    Beam knows the type of a collection: from a schema, from annotations, or from what it infers of a function. A type
    that may have a user and a text is accepted, and so is one that nothing is known of (`Any`, a mapping): then the
    gate looks at the documents (`decide_release.Gate`).

    Privacy: schemas and annotations belong to the graph, not to the data. `beam.Create` takes the type from its
    values; they are refused only if not one of them can be read, and before anything runs (SECURITY.md, known
    exceptions). Names of fields are shown, and values never.

    Args:
        documents: the input of the graph.
        form: where the user and the text are in a document.
    """
    element_type = documents.element_type
    problems = [_problem(part, form) for part in _parts(element_type)]
    if problems and all(problems):
        raise ParameterError(f"{problems[0]}.")


def _parts(element_type: Any) -> list[Any]:
    """The types of a union, or the one type."""
    if isinstance(element_type, typehints.UnionConstraint):
        return sorted(element_type.union_types, key=str)
    return [element_type]


def _problem(kind: Any, form: DocumentForm) -> str:
    """Why no document of this type can be read; empty if one may be."""
    if kind is DocumentBlock:
        return ""
    fields = _fields(kind)
    pair = kind.tuple_types if isinstance(kind, typehints.TupleConstraint) else None
    if form.user_per_document:
        if fields is None and pair is None and not _is_one_of(kind, _NEVER_A_TEXT):
            return ""
        return f"documents must be texts or lists of tokens with user_per_document, got {_name(kind)}"
    if fields is not None:
        return _field_problem(kind, fields, form)
    forms = "documents must be (user, text), mappings, or rows with named fields"
    if pair is None:
        known = _is_one_of(kind, _NEVER_A_DOCUMENT) or isinstance(
            kind, (typehints.ListConstraint, typehints.SetTypeConstraint)
        )
        alone = " (user_per_document=True makes each text a user)" if kind is str else ""
        return f"{forms}, got {_name(kind)}{alone}" if known else ""
    if len(pair) != 2:
        return f"{forms}, got tuples of {len(pair)}"
    if _is_one_of(pair[0], _NEVER_A_USER):
        return f"documents must be (user, text) with a user that is a text or a whole number, got {_name(pair[0])}"
    if _is_one_of(pair[1], _NEVER_A_TEXT):
        return f"documents must be (user, text) with a text or a list of tokens, got {_name(pair[1])} as the text"
    return ""


def _field_problem(kind: Any, fields: dict[str, Any], form: DocumentForm) -> str:
    wanted = (("user_field", form.user_field, _NEVER_A_USER), ("text_field", form.text_field, _NEVER_A_TEXT))
    for parameter, name, _ in wanted:
        if name not in fields and not hasattr(kind, name):  # a class may have properties, too
            return f"{parameter} must be a field of the documents, got {name!r}; they have {_list(fields)}"
    for parameter, name, never in wanted:
        if _is_one_of(fields.get(name), never):
            what = "a text or a whole number" if parameter == "user_field" else "a text or a list of tokens"
            return f"{parameter} must be a field with {what}, got {name!r} of type {_name(fields[name])}"
    return ""


def _fields(kind: Any) -> dict[str, Any] | None:
    """Names and types of the fields of rows; None if it is not known what fields there are."""
    if isinstance(kind, RowTypeConstraint):
        return dict(named_fields_from_element_type(kind))
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _annotated(kind, (field.name for field in dataclasses.fields(kind)))
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _annotated(kind, kind._fields)
    return None


def _annotated(kind: type, names: Iterable[str]) -> dict[str, Any]:
    try:
        types = get_type_hints(kind)
    except Exception:  # an annotation may name anything
        types = {}
    return {name: types.get(name, Any) for name in names}


def _is_one_of(kind: Any, classes: tuple[type, ...]) -> bool:
    """Whether a type is certainly one of these, and nothing else."""
    plain = dict if isinstance(kind, typehints.DictConstraint) else kind
    return isinstance(plain, type) and issubclass(plain, classes)


def _name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _list(fields: dict[str, Any]) -> str:
    names = list(fields)
    return ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")

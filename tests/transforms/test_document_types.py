"""Documents that can have no user or no text are refused when the graph is built; everything else passes."""

import dataclasses
import typing

import apache_beam as beam
import pytest
from apache_beam.transforms.window import FixedWindows
from helpers.graphs import PLANS

from dpngram.accounting import ParameterError
from dpngram.transforms import ExtractLevels, ExtractNgrams

PLAN = PLANS["plus"]


class Named(typing.NamedTuple):
    author: str
    body: str | None


class NumberedText(typing.NamedTuple):
    user: str
    text: int


@dataclasses.dataclass
class Record:
    author: str
    body: str

    @property
    def text(self):
        return self.body


def build(values, step=None, transform=ExtractNgrams, window=None, **arguments):
    documents = beam.Pipeline() | beam.Create(values)
    if step is not None:
        documents = documents | "Step" >> step
    if window is not None:
        documents = documents | beam.WindowInto(window)
    return documents | transform(PLAN, **arguments)


ROW = beam.Row(author="a", body="b")
NO_USER = r"user_field must be a field of the documents, got 'user'; they have author, body\.$"
REFUSED = [
    (["plain text"], {}, r"documents must be \(user, text\).* got str \(user_per_document=True"),
    ([b"bytes"], {}, "got bytes"),
    ([5], {}, "got int"),
    ([["a", "b"]], {}, "got List"),
    ([("a", "b", "c")], {}, "got tuples of 3"),
    ([("a",)], {}, "got tuples of 1"),
    ([("a", b"b")], {}, "got bytes as the text"),
    ([("a", 5)], {}, "got int as the text"),
    ([("a", {"x": 1})], {}, "as the text"),
    ([(0.5, "b")], {}, "a user that is a text or a whole number, got float"),
    ([ROW], {}, NO_USER),
    ([Named("a", "b")], {}, NO_USER),
    ([Record("a", "b")], {}, NO_USER),
    ([ROW], {"user_field": "autor"}, r"user_field must be .* got 'autor'; they have author, body\.$"),
    ([ROW], {"user_field": "author"}, r"text_field must be .* got 'text'; they have author, body\.$"),
    ([NumberedText("a", 5)], {}, r"text_field must be a field with a text .* got 'text' of type int"),
    ([beam.Row(user=0.5, text="b")], {}, "user_field must be a field with a text or a whole number, got 'user'"),
    ([("a", "b")], {"user_per_document": True}, "texts or lists of tokens with user_per_document, got Tuple"),
    ([ROW], {"user_per_document": True}, "with user_per_document, got Row"),
    ([{"user": "a"}], {"user_per_document": True}, "with user_per_document, got Dict"),
    (["a", 5], {}, "documents must be"),
]
ACCEPTED = [
    ([("a", "b")], {}),
    ([("a", ["b"])], {}),
    ([(5, "b"), ("a", ("b", "c"))], {}),
    ([("a", None), ("a", "b")], {}),
    ([{"anything": 5}], {}),
    (["a", ("b", "c")], {}),
    ([ROW], {"user_field": "author", "text_field": "body"}),
    ([Named("a", None)], {"user_field": "author", "text_field": "body"}),
    ([Record("a", "b")], {"user_field": "author"}),  # the text is a property
    ([beam.Row(user=5, text=["a"])], {}),
    (["a"], {"user_per_document": True}),
    ([["a", "b"]], {"user_per_document": True}),
    ([], {}),
]


@pytest.mark.parametrize("transform", [ExtractNgrams, ExtractLevels])
@pytest.mark.parametrize(("values", "arguments", "words"), REFUSED)
def test_refused_when_the_graph_is_built(values, arguments, words, transform):
    with pytest.raises(ParameterError, match=words):
        build(values, transform=transform, **arguments)


@pytest.mark.parametrize(("values", "arguments"), ACCEPTED)
def test_accepted(values, arguments):
    build(values, **arguments)


def test_types_come_from_the_graph_also_behind_a_step():
    strings = beam.Map(lambda pair: pair[1])
    with pytest.raises(ParameterError, match="got str"):
        build([("a", "b")], strings)
    build([("a", "b")], beam.Map(lambda pair: pair).with_output_types(typing.Any))
    build(["a"], beam.Map(lambda text: text).with_output_types(dict[str, str]))


@pytest.mark.parametrize("arguments", [{}, {"bound_windows": False}])
def test_windows_are_looked_at_before_they_are_limited(arguments):
    with pytest.raises(ParameterError, match="they have author, body"):
        build([ROW], window=FixedWindows(5), **arguments)
    build([("a", "b")], window=FixedWindows(5), **arguments)


def test_many_fields_are_not_all_listed():
    with pytest.raises(ParameterError, match=r"they have field0, .*field19, \.\.\.\.$"):
        build([beam.Row(**{f"field{i}": "x" for i in range(50)})])

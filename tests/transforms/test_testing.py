"""The plain loop is the graph."""

from helpers.graphs import corpus

from dpngram.transforms import ExtractNgrams
from dpngram.transforms.document_form import DocumentForm, collect_documents
from dpngram.transforms.testing import extract_in_memory, key_source
from dpngram.transforms.tokenizers import make_tokenizer


def test_it_equals_the_plain_loop(collect):
    documents = corpus()
    source = key_source(collect.key.read_bytes(), ExtractNgrams(collect.plan).settings())
    blocks, _ = collect_documents(documents, DocumentForm())
    tables = extract_in_memory(blocks, collect.plan, source, make_tokenizer("words"))
    expected = sorted(repr(tuple(row)) for table in tables.values() for row in table.rows())
    assert collect(documents) == expected
    assert len(expected) > 100

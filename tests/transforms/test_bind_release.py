"""A release is bound to its content, and a key to one release."""

import pytest
from helpers.graphs import corpus


def test_a_key_used_for_other_data_is_refused(collect):
    documents = corpus()
    first = collect(documents)
    assert collect(documents) == first
    with pytest.raises(Exception, match="already used for this release label with other data"):
        collect(documents[1:])
    with pytest.raises(Exception, match="already used for this release label with other data"):
        collect(documents, tokenizer="whitespace")
    assert collect(documents[1:], release="another")

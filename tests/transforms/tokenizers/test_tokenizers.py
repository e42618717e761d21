"""The list of tokenizers."""

import pytest

from dpngram.accounting import ParameterError
from dpngram.transforms.tokenizers import make_tokenizer


def test_unknown_names_are_refused():
    with pytest.raises(ParameterError, match="tokenizer must be one of words"):
        make_tokenizer("werds")

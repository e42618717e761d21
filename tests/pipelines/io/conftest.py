"""Fixtures of the tests of reading and writing."""

import pytest
from helpers.runs import small_corpus


@pytest.fixture(scope="module")
def corpus():
    return small_corpus(150, [*(f"w{i}" for i in range(9)), 'quo"ted', "comma,", "caf\u00e9"])

"""Fixtures of the tests of security."""

import pytest

from dpngram.pipelines.launch.startup import allow_long_chains


@pytest.fixture(autouse=True, scope="session")
def _long_chains():
    """Every program allows them when it starts. Hypothesis warns if that happens in the middle of a test."""
    allow_long_chains()

"""Fixtures of the graph's tests."""

import pytest
from helpers.graphs import Collect


@pytest.fixture(params=["paper", "plus"])
def collect(tmp_path, request):
    return Collect(tmp_path, request.param)


@pytest.fixture
def collect_paper(tmp_path):
    """For what comes before the levels, and is the same for all policies."""
    return Collect(tmp_path, "paper")

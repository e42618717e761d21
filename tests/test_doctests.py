"""The examples in docstrings are true."""

import doctest
import importlib
import pkgutil

import pytest

import dpngram.accounting
import dpngram.transforms

HARD = {
    "dpngram.transforms.blocks.candidates.make_postings",
    "dpngram.transforms.blocks.posts.split_posts",
    "dpngram.transforms.group_users.group_users",
    "dpngram.transforms.policies.budgets.spend",
    "dpngram.transforms.policies.strata.Strata.unrank",
    "dpngram.transforms.validity_filter.filter_valid",
}


def examples():
    found = {}
    for package in (dpngram.accounting, dpngram.transforms):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            tests = doctest.DocTestFinder().find(importlib.import_module(module.name))
            found |= {test.name: test for test in tests if test.examples}
    return found


EXAMPLES = examples()


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_example(name):
    report = []
    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(EXAMPLES[name], out=report.append)
    assert result.attempted > 0
    assert result.failed == 0, "".join(report)


def test_the_hardest_functions_have_one():
    assert HARD - set(EXAMPLES) == set()

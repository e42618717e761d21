"""What `conftest.py` does to make the tests quick changes none of them."""

import inspect

import apache_beam as beam
from apache_beam.transforms import core
from helpers.faults import METHODS, all_steps

from dpngram.pipelines.launch import beam_internals


def test_the_long_files_are_there(pytestconfig):
    (conftest,) = [
        plugin
        for plugin in pytestconfig.pluginmanager.get_plugins()
        if getattr(plugin, "__file__", "").endswith("tests/conftest.py") and hasattr(plugin, "LONG")
    ]
    assert len(set(conftest.LONG)) == len(conftest.LONG)
    named = [*(f"tests/{name}" for name in conftest.LONG), *conftest.TOGETHER, *conftest.TOGETHER.values()]
    assert [name for name in named if not (conftest.ROOT / name).is_file()] == []


def test_remembered_signatures_are_those_of_the_methods():
    """Asked twice, of every method of every step; what is done with an answer does not change the next one."""
    assert core.get_function_args_defaults is beam_internals._signature
    methods = [getattr(kind, name) for kind in all_steps() for name in METHODS if hasattr(kind, name)]
    assert len(methods) > 100
    for method in methods:
        bound = method.__get__(object())
        parameters = inspect.signature(bound).parameters.values()
        known = [each for each in parameters if each.kind == each.POSITIONAL_OR_KEYWORD]
        expected = [each.name for each in known], [each.default for each in known if each.default is not each.empty]
        for _ in range(2):
            names, defaults = core.get_function_args_defaults(bound)
            assert (names, defaults) == expected
            names.append("more")
            defaults.append("more")


def test_a_method_that_is_replaced_is_asked_again(monkeypatch):
    class Step(beam.DoFn):
        def process(self, element, more=1):
            yield element

    assert core.get_function_args_defaults(Step().process) == (["element", "more"], [1])
    monkeypatch.setattr(Step, "process", lambda self, element, other=2: [element])
    assert core.get_function_args_defaults(Step().process) == (["element", "other"], [2])

"""Faults on order: every DoFn and CombineFn of ours, and every function that is mapped, fails once, and is retried."""

import ast
import collections
import functools
import importlib
import inspect
import itertools
import pkgutil

import apache_beam as beam
from apache_beam.runners.direct import direct_runner, executor

from dpngram import pipelines, transforms

METHODS = (
    "setup",
    "start_bundle",
    "process",
    "finish_bundle",
    "create_accumulator",
    "add_input",
    "merge_accumulators",
    "compact",
    "extract_output",
)
_MAPPING = ("Map", "FlatMap", "MapTuple", "FlatMapTuple", "Filter")


def all_modules():
    """Every module of the packages that build graphs."""
    return [
        importlib.import_module(found.name)
        for package in (transforms, pipelines)
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]


def all_steps():
    """Every DoFn and CombineFn of ours, bases included."""
    return [
        kind
        for module in all_modules()
        for kind in vars(module).values()
        if inspect.isclass(kind)
        and issubclass(kind, (beam.DoFn, beam.CombineFn))
        and kind.__module__ == module.__name__
    ]


def all_mapped():
    """(module, name) of every function of ours that a graph maps; the sources say beam.Map(name, ...)."""
    found = []
    for module in all_modules():
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in [f"beam.{name}" for name in _MAPPING]:
                if not isinstance(node.args[0], ast.Name) or not inspect.isfunction(
                    getattr(module, node.args[0].id, None)
                ):
                    raise ValueError(f"{module.__name__} maps {ast.unparse(node.args[0])}: only functions are wrapped.")
                found.append((module, node.args[0].id))
    return found


def owners():
    """The names under which calls are counted: steps that are no base of others, and mapped functions."""
    steps = all_steps()
    leaves = [kind for kind in steps if not any(other is not kind and issubclass(other, kind) for other in steps)]
    return {_name(kind) for kind in leaves} | {f"{module.__name__}.{name}" for module, name in all_mapped()}


def _name(kind):
    return f"{kind.__module__}.{kind.__name__}"


class InjectedFault(Exception):
    """Says nothing, and stands for anything."""


class Faults:
    """Counts the calls of every method of ours in a run, and makes each place fail once where it is told to."""

    def __init__(self, monkeypatch):
        self._plan = {}
        self.calls, self.failed = collections.Counter(), []
        for kind in all_steps():
            for name in METHODS:
                if name in vars(kind):
                    monkeypatch.setattr(kind, name, self._wrap(vars(kind)[name]))
        for module, name in all_mapped():
            function = getattr(module, name)
            monkeypatch.setattr(module, name, self._wrap(function, f"{module.__name__}.{name}"))

    def order(self, random=None, calls=None):
        """A new run: nothing fails, or each place of `calls` once, at a call that is drawn."""
        self.calls, self.failed, self._plan = collections.Counter(), [], {}
        for place, times in sorted((calls or {}).items()):
            self._plan[place] = (int(random.integers(times)), str(random.choice(["before", "middle", "after"])))

    def _wrap(self, original, function=None):
        faults = self

        @functools.wraps(original)
        def wrapped(*args, **more):
            round_ = None if function else getattr(args[0], "_policy", None)
            owner = function or _name(type(args[0]))
            place = (owner, original.__name__, round_.n if round_ else 0, round_.number if round_ else 0)
            mode = faults._mode(place)
            if mode == "before":
                faults._fail(place)
            result = original(*args, **more)
            if mode is None:
                return result
            if inspect.isgenerator(result):
                return faults._broken(place, mode, result)
            faults._fail(place)

        wrapped.__signature__ = inspect.signature(original)  # Beam looks at it, for windows and side inputs
        return wrapped

    def _mode(self, place):
        number = self.calls[place]
        self.calls[place] += 1
        at, mode = self._plan.get(place, (None, None))
        # Later than planned where another fault, in what this one calls, came first.
        return mode if at is not None and number >= at and place not in self.failed else None

    def _broken(self, place, mode, results):
        """Some of what should come out, then the fault; or all of it."""
        yield from itertools.islice(results, 1) if mode == "middle" else results
        self._fail(place)

    def _fail(self, place):
        self.failed.append(place)
        raise InjectedFault


class RetryingRunner(direct_runner.BundleBasedDirectRunner):
    """Beam's runner that retries a bundle; a pipeline can be run again and again.

    Most of a run's time goes into replacing parts of the graph, which is done once. Beam gives up after four tries; a
    step that sums has more places than that, each of which fails once.
    """

    def run_again(self, pipeline, monkeypatch):
        with monkeypatch.context() as patch:
            if getattr(self, "_replaced", None) is pipeline:
                patch.setattr(direct_runner, "_get_transform_overrides", lambda _options: [])
            patch.setattr(executor.TransformExecutor, "_MAX_RETRY_PER_BUNDLE", 20)
            self._replaced = pipeline
            self.run_pipeline(pipeline, pipeline._options).wait_until_finish()

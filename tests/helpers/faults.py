"""Faults on order: every DoFn and CombineFn of ours fails once, at an element that is drawn, and is tried again."""

import collections
import functools
import inspect
import itertools

import apache_beam as beam
from apache_beam.runners.direct import direct_runner, executor

from dpngram.pipelines import compare, stream
from dpngram.pipelines.io import reading, writing
from dpngram.transforms import (
    add_spurious_grams,
    bind_release,
    checkpoints,
    clip_and_weight,
    decode_grams,
    extract,
    group_users,
    limit_windows,
    noisy_threshold,
    prepare_posts,
    sum_cells,
    validity_filter,
)
from dpngram.transforms.baselines import compare_systems, count_exactly, release_unions

MODULES = (
    compare,
    reading,
    stream,
    writing,
    add_spurious_grams,
    bind_release,
    checkpoints,
    clip_and_weight,
    compare_systems,
    count_exactly,
    decode_grams,
    extract,
    group_users,
    limit_windows,
    noisy_threshold,
    prepare_posts,
    release_unions,
    sum_cells,
    validity_filter,
)
METHODS = ("setup", "start_bundle", "process", "finish_bundle", "add_input", "merge_accumulators", "extract_output")
FUNCTIONS = ((bind_release, "_keyed_fingerprint"), (reading, "_no_records"))


class InjectedFault(Exception):
    """Says nothing, and stands for anything."""


class Faults:
    """Counts the calls of every method of ours in a run, and makes each place fail once where it is told to."""

    def __init__(self, monkeypatch):
        self._plan = {}
        self.calls, self.failed = collections.Counter(), []
        for module in MODULES:
            for kind in vars(module).values():
                if getattr(kind, "__module__", "") == module.__name__ and _is_step(kind):
                    for name in METHODS:
                        if name in vars(kind):
                            monkeypatch.setattr(kind, name, self._wrap(vars(kind)[name]))
        for module, name in FUNCTIONS:
            monkeypatch.setattr(module, name, self._wrap(getattr(module, name), bare=True))

    def order(self, random=None, calls=None):
        """A new run: nothing fails, or each place of `calls` once, at a call that is drawn."""
        self.calls, self.failed, self._plan = collections.Counter(), [], {}
        for place, times in sorted((calls or {}).items()):
            self._plan[place] = (int(random.integers(times)), str(random.choice(["before", "middle", "after"])))

    def _wrap(self, original, *, bare=False):
        faults = self

        @functools.wraps(original)
        def wrapped(*args, **more):
            round_ = None if bare else getattr(args[0], "_round", None)
            owner = "" if bare else f"{type(args[0]).__module__}.{type(args[0]).__name__}"
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


def _is_step(kind):
    return inspect.isclass(kind) and issubclass(kind, (beam.DoFn, beam.CombineFn))


class RetryingRunner(direct_runner.BundleBasedDirectRunner):
    """Beam's runner that retries a bundle; a pipeline can be run again and again.

    Most of a run's time goes into replacing parts of the graph, which is done once. Beam gives up after four tries; a
    step that sums has more places than that, each of which fails once.
    """

    def run_again(self, pipeline, monkeypatch):
        with monkeypatch.context() as patch:
            if getattr(self, "_replaced", None) is pipeline:
                patch.setattr(direct_runner, "_get_transform_overrides", lambda _options: [])
            patch.setattr(executor.TransformExecutor, "_MAX_RETRY_PER_BUNDLE", 10)
            self._replaced = pipeline
            self.run_pipeline(pipeline, pipeline._options).wait_until_finish()

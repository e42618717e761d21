"""Beam's insides: used in one module, and as its head says."""

import ast
import pickle
import re
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, TypeOptions
from apache_beam.runners.portability import fn_api_runner
from apache_beam.runners.worker import sdk_worker

from dpngram.pipelines.launch.beam_flags import beam_options
from dpngram.pipelines.launch.beam_internals import FnApiRunner, remember_views
from dpngram.pipelines.launch.runner import make_pipeline

ROOT = Path(__file__).resolve().parents[3]


def private_uses(tree):
    """Attributes that begin with one underscore, of anything but the object itself; and attributes set from outside."""
    for node in ast.walk(tree):
        own = isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "cls")
        if isinstance(node, ast.Attribute) and re.match(r"_[^_]", node.attr) and not own:
            yield ast.unparse(node)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("object.__setattr__", "setattr"):
            yield ast.unparse(node)


def test_nothing_else_looks_inside():
    found = {}
    for path in sorted((ROOT / "pipelines").rglob("*.py")):
        uses = list(private_uses(ast.parse(path.read_text(encoding="utf-8"))))
        if uses:
            found[path.relative_to(ROOT).as_posix()] = uses
    assert list(found) == ["pipelines/launch/beam_internals.py"]
    assert len(found["pipelines/launch/beam_internals.py"]) == 2


@pytest.mark.parametrize("code", ["a._b", "f()._b = 1", "setattr(a, 'b', 1)", "object.__setattr__(a, 'b', 1)"])
def test_the_check_has_eyes(code):
    assert len(list(private_uses(ast.parse(code)))) == 1


def test_views_are_remembered():
    """Those of the pipeline, which has a copy of the options; values are shared as before."""
    pipeline = make_pipeline(beam_options(["--direct_num_workers=3"]), 0)
    view = pipeline.options.view_as(DirectOptions)
    assert view is pipeline.options.view_as(DirectOptions)
    assert view.direct_num_workers == 3
    view.direct_num_workers = 5
    assert pipeline.options.view_as(DirectOptions).direct_num_workers == 5
    copy = pickle.loads(pickle.dumps(pipeline.options))  # noqa: S301
    assert isinstance(copy, PipelineOptions)
    assert copy.view_as(DirectOptions).direct_num_workers == 5


def test_few_parsers_are_made(monkeypatch):
    """Why the views are remembered: a parser for every look otherwise."""
    made, view_as = [], PipelineOptions.view_as

    def counted(self, kind):
        made.append(kind)
        return view_as(self, kind)

    monkeypatch.setattr(PipelineOptions, "view_as", counted)
    looks = {}
    for remembered in (False, True):
        pipeline = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([]))
        if remembered:
            remember_views(pipeline)
        made.clear()
        _ = pipeline | beam.Create([1]) | beam.Map(str).with_output_types(str) | beam.Map(len)
        looks[remembered] = made.count(TypeOptions)
    assert looks[True] <= 2
    assert looks[False] > 5


def test_the_runner_tells_its_stages():
    """Under the name of Beam's runner, by which the library knows it."""
    assert FnApiRunner.__name__ == fn_api_runner.FnApiRunner.__name__ == "FnApiRunner"
    runner, seen = FnApiRunner(), []
    runner.watch = seen.append
    with beam.Pipeline(runner=runner) as pipeline:
        _ = pipeline | "One" >> beam.Create([(1, 2)]) | "Two" >> beam.GroupByKey() | "Three" >> beam.Map(str)
    assert any("One" in names for names in seen)
    assert any("Three" in names for names in seen)
    assert FnApiRunner().watch is None


def test_what_a_stage_needed_is_freed(monkeypatch):
    """Beam's workers keep the steps of every stage, with their buffers, to the end of a run."""
    left = {}
    for kind in (fn_api_runner.FnApiRunner, FnApiRunner):
        caches, init = [], sdk_worker.BundleProcessorCache.__init__

        def remember(self, *args, init=init, caches=caches, **more):
            init(self, *args, **more)
            caches.append(self)

        with monkeypatch.context() as patch:
            patch.setattr(sdk_worker.BundleProcessorCache, "__init__", remember)
            patch.setattr(sdk_worker.BundleProcessorCache, "shutdown", lambda self: None)  # as it is before the end
            with beam.Pipeline(runner=kind()) as pipeline:
                _ = pipeline | beam.Create([(1, 2)]) | beam.GroupByKey() | beam.Map(str)
        assert caches
        left[kind] = sum(len(kept) for cache in caches for kept in cache.cached_bundle_processors.values())
    assert left[fn_api_runner.FnApiRunner] > 0
    assert left[FnApiRunner] == 0

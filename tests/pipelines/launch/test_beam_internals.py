"""Beam's insides: used in one module, and as its head says."""

import ast
import pickle
import re
import threading
import types
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from apache_beam import pvalue
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, TypeOptions
from apache_beam.runners.portability import fn_api_runner
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.worker import sdk_worker, statecache, statesampler
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import core

from dpngram.pipelines.launch import beam_internals
from dpngram.pipelines.launch.beam_flags import beam_options
from dpngram.pipelines.launch.beam_internals import (
    FnApiRunner,
    keep_no_side_inputs,
    remember_signatures,
    remember_views,
)
from dpngram.pipelines.launch.runner import make_pipeline
from dpngram.transforms.blocks.cells import CellBlock
from dpngram.transforms.blocks.scratch import Scratch, find_scratch
from dpngram.transforms.clip_and_weight import _WeighDoFn

USUAL = beam_internals._usual_signature  # Beam's function
ROOT = Path(__file__).resolve().parents[3]


def private_uses(tree):
    """Attributes that begin with one underscore, of anything but the object itself; and attributes set from outside."""
    for node in ast.walk(tree):
        own = isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "cls")
        # librdkafka's public codes of errors, such as _PARTITION_EOF, begin with an underscore.
        if isinstance(node, ast.Attribute) and re.match(r"_[^_]", node.attr) and not own and not node.attr.isupper():
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


def test_signatures_are_remembered(monkeypatch):
    """What Beam learns of our steps is the same, and it looks once at each method."""
    looks = []
    monkeypatch.setattr(core, "get_function_args_defaults", USUAL)  # put back at the end
    remember_signatures()
    methods = [getattr(kind, name) for kind in (beam.DoFn, _WeighDoFn) for name in dir(kind) if name[0] != "_"]
    methods = [types.MethodType(method, object()) for method in methods if isinstance(method, types.FunctionType)]
    assert len(methods) > 20
    for _ in range(2):  # the lists are the caller's
        for function in (*methods, len, lambda a, b=3: a):
            names, defaults = core.get_function_args_defaults(function)
            assert (names, defaults) == USUAL(function)
            names.append("more")
            defaults.clear()
    monkeypatch.setattr(core, "get_signature", looks.append)
    for method in methods:
        core.get_function_args_defaults(method)
    assert not looks


def test_side_inputs_are_not_measured(monkeypatch):
    """To measure one, Beam goes through all modules; it never finds one again."""
    measured, get_deep_size = [], statecache.get_deep_size
    monkeypatch.setattr(statecache, "get_deep_size", lambda *kept: measured.append(kept) or get_deep_size(*kept))
    monkeypatch.setattr(worker_handlers, "STATE_CACHE_SIZE_MB", 100)  # Beam's; put back at the end
    found = {}
    for ours in (False, True):
        if ours:
            keep_no_side_inputs()
        measured.clear()
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            side = pvalue.AsSingleton(pipeline | "Side" >> beam.Create([3]))
            sums = pipeline | beam.Create([1, 2]) | beam.Map(lambda element, side: element + side, side=side)
            assert_that(sums, equal_to([4, 5]))
        found[ours] = len(measured)
    assert found[False] > 0
    assert found[True] == 0


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


def block(number):
    """Several kilobytes."""
    return CellBlock(keys=np.arange(number, number + 2000, dtype=np.uint64), weight=np.ones(2000, np.int64))


def write_sums(keyed, path, side):
    path.write_text(f"{sum(int(one.keys[0]) for one in keyed[1])} {side.keys[0]}")


def sum_of(keyed):
    return block(sum(int(one.keys[0]) for one in keyed[1]))


def run_with_scratch(directory, look, *, workers=1):
    """A graph of several stages with a side input; what its last step computes from all blocks."""
    path = directory.with_suffix(".out")
    runner = FnApiRunner()
    runner.make_scratch = lambda: Scratch(str(directory))
    runner.watch = lambda _names: look(runner.scratch)
    options = PipelineOptions([f"--direct_num_workers={workers}"])
    pair = tuple[int, CellBlock]
    with beam.Pipeline(runner=runner, options=options) as pipeline:
        once = pipeline | "One" >> beam.Create([7]) | "Side" >> beam.Map(block).with_output_types(CellBlock)
        _ = (
            pipeline
            | "Forty" >> beam.Create(range(40))
            | "Make" >> beam.Map(lambda number: (number % 3, block(number))).with_output_types(pair)
            | "Group" >> beam.GroupByKey()
            | "Sum" >> beam.Map(lambda keyed: (0, sum_of(keyed))).with_output_types(pair)
            | "GroupAgain" >> beam.GroupByKey()
            | "Write" >> beam.Map(write_sums, path, beam.pvalue.AsSingleton(once))
        )
    assert runner.scratch is None
    return path.read_text()


@pytest.mark.parametrize("workers", [1, 2])
def test_blocks_go_to_the_scratch_of_a_run(tmp_path, workers):
    used, scratches = [], []

    def look(scratch):
        used.append((scratch.used, scratch.written))
        scratches.append(scratch)

    assert run_with_scratch(tmp_path, look, workers=workers) == "780 7"
    size = len(block(0).to_bytes()) + 16
    assert used[-1][1] >= 44 * size  # 40 from the first stage, the side input, three sums
    assert max(now for now, _ in used) <= 42 * size
    assert used[-1][0] <= 4 * size  # what was read is deleted before the run ends
    assert scratches[-1].used == 0
    assert list(tmp_path.iterdir()) == []


def test_a_failed_run_leaves_nothing(tmp_path):
    scratches = []

    def look(scratch):
        scratches.append(scratch)
        if scratch.used:
            raise RuntimeError("stop here")

    with pytest.raises(RuntimeError, match="stop here"):
        run_with_scratch(tmp_path, look)
    assert scratches[-1].written > 0
    assert scratches[-1].used == 0
    assert find_scratch(scratches[-1].name) is None


@pytest.mark.parametrize("name", ["_readers", "_is_done"])
def test_other_insides_delete_nothing_early(tmp_path, monkeypatch, name):
    """As a version of Beam that cannot tell who reads what: of any stage, or of one in the middle."""
    calls, real = [], getattr(beam_internals, name)

    def lost(*rest):
        calls.append(rest)
        return {}["nothing"] if len(calls) == 3 else real(*rest)

    monkeypatch.setattr(beam_internals, name, lost)
    used = []
    assert run_with_scratch(tmp_path, lambda scratch: used.append(scratch.used)) == "780 7"
    assert len(calls) >= 3
    assert used == sorted(used)


def test_no_block_is_a_key_where_blocks_are_references(tmp_path):
    """Equal blocks have different references; Beam refuses to group by what is not deterministic."""
    runner = FnApiRunner()
    runner.make_scratch = lambda: Scratch(str(tmp_path))
    pipeline = beam.Pipeline(runner=runner)
    keyed = (
        pipeline | beam.Create([1]) | beam.Map(lambda one: (block(one), one)).with_output_types(tuple[CellBlock, int])
    )
    _ = keyed | beam.GroupByKey()
    with pytest.raises(ValueError, match="deterministic"):
        pipeline.run()


def test_a_stopped_run_leaves_no_thread(monkeypatch):
    """Ctrl-C while the thread that measures a stage is starting: Beam forgets it, and the process would never end."""
    begin = statesampler.statesampler_impl.StateSampler.start

    def interrupted(self):
        self.tracked_thread = threading.current_thread()
        statesampler.set_current_tracker(self)
        begin(self)
        raise KeyboardInterrupt

    before = set(threading.enumerate())
    pipeline = make_pipeline(PipelineOptions([]), 0)
    pipeline | beam.Create([1])
    monkeypatch.setattr(statesampler.StateSampler, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pipeline.run()
    assert [thread for thread in threading.enumerate() if thread not in before and thread.is_alive()] == []

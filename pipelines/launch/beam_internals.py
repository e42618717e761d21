"""Where this room relies on Beam's insides, which may change with any version. Nothing else in it does.

- `remember_views` sets an attribute of the options: a run of nine levels on a tiny input takes 1.3 s of CPU, not 1.9 s.
- `remember_signatures` replaces a function: Beam looks at the signatures of all methods of a DoFn eight times, and the
  same run would take 0.2 s more.
- `keep_no_side_inputs` sets a constant: what local workers keep of side inputs is never found again, and a run of
  English posts under `plus` would take 0.3 s more to measure it.
- `FnApiRunner` overrides a private method, to show progress: the runner tells nobody which stage it is at.
- It also frees what workers keep of a stage that is done: English posts under `plus` take 0.71 GB, not 0.89 GB.
- In a run with a scratch it deletes what no later stage reads: 10 million tokens take 0.15 GB of disk, not 0.38 GB.
- It stops the thread that measures a stage if the run is stopped: Beam leaves it running where Ctrl-C comes while the
  thread starts, and then the process never ends.
- `as_outside_notebooks` takes from Beam what it does only in notebooks: it imports its data frames, which do not know
  pandas 3, and prints two warnings.
- `FLINK_FLAGS` repeats the names of Flink's flags: Python's Beam asks a job server for them, once it has reached one.

There is no public way to any of them in Beam 2.77.
"""

import contextlib
import functools
import gc
import itertools
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability import fn_api_runner
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.worker import statesampler
from apache_beam.transforms import core
from apache_beam.utils import interactive_utils
from apache_beam.utils.timestamp import MAX_TIMESTAMP

from dpngram.transforms.blocks.scratch import Scratch

__all__ = [
    "FLINK_FLAGS",
    "FnApiRunner",
    "as_outside_notebooks",
    "keep_no_side_inputs",
    "remember_signatures",
    "remember_views",
]

# Flags that only Flink's job server knows. Without this list a misspelt flag could not be told from one of Flink's.
FLINK_FLAGS = (
    "checkpointing_interval",
    "checkpointing_mode",
    "checkpoint_timeout_millis",
    "externalized_checkpoints_enabled",
    "retain_externalized_checkpoints_on_cancellation",
    "number_of_execution_retries",
    "execution_retry_delay",
    "execution_mode_for_batch",
    "savepoint_path",
    "state_backend",
    "state_backend_storage_path",
    "max_bundle_size",
    "max_bundle_time_mills",
    "object_reuse",
    "latency_tracking_interval",
    "auto_watermark_interval",
    "finish_bundle_before_checkpointing",
    "shutdown_sources_after_idle_ms",
)


def remember_views(pipeline: beam.Pipeline) -> None:
    """Lets the options of a pipeline give the same view again.

    Beam asks its options for every transform and every comparison of two types (about 2,000 times for nine levels),
    and makes an argument parser each time. Views share the values that they show, so one view of each kind is enough.
    The options must be the pipeline's: it has a copy of those that it was made with.
    """
    object.__setattr__(pipeline.options, "view_as", _Views(pipeline.options))


_usual_signature: Callable[[Any], tuple[list[str], list[Any]]] = core.get_function_args_defaults
_signatures: weakref.WeakKeyDictionary[Any, tuple[list[str], list[Any]]] = weakref.WeakKeyDictionary()


def remember_signatures() -> None:
    """Lets Beam look at the signature of a method once in this process: it is that of its function, which stays."""
    core.get_function_args_defaults = _signature


def _signature(function: Any) -> tuple[list[str], list[Any]]:
    """The names of the arguments, and the defaults: new lists for each caller."""
    if type(function) is not types.MethodType or not isinstance(function.__func__, types.FunctionType):
        return _usual_signature(function)
    if function.__func__ not in _signatures:
        _signatures[function.__func__] = _usual_signature(function)
    names, defaults = _signatures[function.__func__]
    return list(names), list(defaults)


def keep_no_side_inputs() -> None:
    """Lets workers of local runs, in this process from now on, forget side inputs when a bundle is over.

    Beam keeps them for later bundles, up to 100 MB as it measures them, under the name of the bundle that read them.
    No other bundle has this name in a local run. To measure one, Beam goes through all modules of the process.
    """
    worker_handlers.STATE_CACHE_SIZE_MB = 0


@contextlib.contextmanager
def as_outside_notebooks() -> Iterator[None]:
    """While the body runs, graphs are built and run in IPython as anywhere else: Beam renames no step after its cell.

    For graphs that the user does not see. Several threads may be in the body at once.
    """
    with _no_notebook_lock:
        _no_notebook.append(None)
        if len(_no_notebook) == 1:
            beam.pipeline.alter_label_if_ipython = lambda *_: None
            beam.pipeline.is_in_ipython = lambda: False
    try:
        yield
    finally:
        with _no_notebook_lock:
            _no_notebook.pop()
            if not _no_notebook:
                beam.pipeline.alter_label_if_ipython = interactive_utils.alter_label_if_ipython
                beam.pipeline.is_in_ipython = interactive_utils.is_in_ipython


_no_notebook_lock = threading.Lock()
_no_notebook: list[None] = []  # one for each thread in the body


class _Views:
    """`view_as` with a memory. Transforms that keep the options (Pub/Sub, BigQuery) are pickled without it."""

    def __init__(self, options: PipelineOptions) -> None:
        self._options, self._view = options, functools.cache(options.view_as)

    def __call__(self, kind: Any) -> Any:
        return self._view(kind)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._options, "view_as")


class FnApiRunner(fn_api_runner.FnApiRunner):
    """Beam's local runner, which tells `watch` the names of the steps that it is about to run, and frees what is done.

    It has the name of its parent: the library knows local runners by the names of their classes.
    """

    watch: Callable[[str], None] | None = None
    make_scratch: Callable[[], Scratch] | None = None  # where blocks go, for a run in one process; None: memory
    scratch: Scratch | None = None  # of the run that is under way
    _segments: "_Segments | None" = None

    def run_pipeline(self, pipeline: beam.Pipeline, options: PipelineOptions) -> Any:
        try:
            return self._run_with_scratch(pipeline, options)
        except BaseException:
            _stop_measuring()
            raise

    def _run_with_scratch(self, pipeline: beam.Pipeline, options: PipelineOptions) -> Any:
        if self.make_scratch is None:
            return super().run_pipeline(pipeline, options)
        try:
            with self.make_scratch().in_use() as self.scratch:
                self._segments = _Segments(self.scratch)
                return super().run_pipeline(pipeline, options)
        finally:
            self.scratch = self._segments = None

    def _execute_bundle(self, context: Any, bundle: Any, *rest: Any, **more: Any) -> Any:
        if self.watch is not None:
            stage = getattr(bundle, "stage", None)
            self.watch(" ".join(transform.unique_name for transform in getattr(stage, "transforms", ())))
        if self._segments is not None:
            self._segments.begin(context, bundle)
        result = super()._execute_bundle(context, bundle, *rest, **more)
        _free_processors(context)
        if self._segments is not None:
            self._segments.end(context, bundle)
        return result


class _Segments:
    """What each stage writes to a scratch is one segment, and is deleted when all stages that read it are done.

    Where a version of Beam has other insides, nothing more is deleted before the end.
    """

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._readers: dict[int, set[str]] = {}  # of each segment: the names of the stages
        self._run: set[str] = set()  # names of stages
        self._known = True  # whether it is clear who reads what

    def begin(self, context: Any, bundle: Any) -> None:
        try:
            readers = _readers(context, bundle)
        except (AttributeError, LookupError, TypeError):
            self._known = False
        if self._known:
            self._readers[self._scratch.next_segment()] = readers

    def end(self, context: Any, bundle: Any) -> None:
        self._run.add(bundle.stage.name)
        try:
            done = {name for name in self._run if _is_done(context, name)}
        except (AttributeError, LookupError, TypeError):
            self._known = False
        if self._known:
            over = [segment for segment, readers in self._readers.items() if readers <= done]
            self._scratch.drop(over)
            for segment in over:
                del self._readers[segment]


def _readers(context: Any, bundle: Any) -> set[str]:
    """The stages that may read what this stage writes; with the stage itself, which may run in several parts."""
    buffers = bundle.stage_data_outputs.values()
    names = {name for buffer in buffers for name, _ in context.buffer_id_to_consumer_pairs.get(buffer, ())}
    sides = {transform for transform, _ in context.side_input_descriptors_by_stage[bundle.stage.name]}
    for stage in context.stages.values():
        if any(transform.unique_name in sides for transform in stage.transforms):
            names.add(stage.name)
    return names | {bundle.stage.name}


def _is_done(context: Any, stage: str) -> bool:
    """Whether a stage that has run is over: a source may put off a part of its work, and is then run again."""
    return bool(context.watermark_manager.get_stage_node(stage).output_watermark() >= MAX_TIMESTAMP)


def _stop_measuring() -> None:
    """Stops the threads that measure stages of this thread, wherever they are: Beam forgets one that is just starting.

    Nothing is stopped where a version of Beam has other insides.
    """
    for thing in gc.get_objects():
        if type(thing) is statesampler.StateSampler and thing.tracked_thread is threading.current_thread():
            with contextlib.suppress(AttributeError):  # it has no thread yet
                if not thing.finished:
                    thing.stop()


def _free_processors(context: Any) -> None:
    """Drops what workers in this process keep to run a stage again: buffers of up to 20 MB for each of its outputs.

    A batch run has each stage once. If a stage runs again, its steps are set up again. Where a version of Beam has
    other insides, nothing is dropped.
    """
    handlers = getattr(getattr(context, "worker_handler_manager", None), "_cached_handlers", {})
    for handler in itertools.chain.from_iterable(handlers.values()):
        cache = getattr(getattr(handler, "worker", None), "bundle_processor_cache", None)
        for processors in getattr(cache, "cached_bundle_processors", {}).values():
            while processors:
                processors.pop().shutdown()

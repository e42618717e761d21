"""BindRelease: ties the noise of a release to its content, and a key to one release."""

import atexit
import itertools
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows

from dpngram.accounting import ExtractionPlan, ParameterError
from dpngram.transforms.beam_workarounds import applied_label, as_side
from dpngram.transforms.blocks.users import UserBlock
from dpngram.transforms.decide_release import DecideRelease, Gate
from dpngram.transforms.keyed_dofn import KeyedDoFn
from dpngram.transforms.randomness.noise_key import KeyReference, Randomness, settings_digest
from dpngram.transforms.windowing import check_windowing

__all__ = [
    "BindContent",
    "BindRelease",
    "FingerprintUsers",
    "check_key",
    "choose_key",
    "make_randomness",
    "unrecorded_key",
]

_LOG = logging.getLogger(__name__)
_NOBODY = bytes(40)  # the content of no users: a fingerprint of 16 bytes, and three counts
_LOCAL_RUNNERS = ("DirectRunner", "FnApiRunner", "BundleBasedDirectRunner", "SwitchingDirectRunner", "PrismRunner")


class BindRelease(beam.PTransform):
    """UserBlock -> bytes: the binding of this release, one element for each window that has users.

    The binding is the fingerprint of the content: the sum over all posts of a PRF of (user, tokens), taken from the
    very blocks that level 1 reads. It is the same for any order, split or format of the same data, and other data have
    other noise. A key that was already used for other data under the same label is refused here. The binding has no
    default: without it nothing can draw noise.

    Privacy: the binding is private, and only key derivation reads it. With a `gate` there is a binding only if the gate
    lets the run go on. Whatever draws noise needs the binding, so before the verdict nothing of a release exists.
    Windowing: one binding per window; a gate needs the global window, since a failed run would end all windows.

    Args:
        randomness: where the key is, and what else the noise is bound to.
        gate: decides whether there is a release at all, see `make_gate`.
    """

    def __init__(self, randomness: Randomness, gate: Gate | None = None) -> None:
        super().__init__()
        self._randomness, self._gate = randomness, gate

    def expand(self, users: beam.PCollection[UserBlock]) -> beam.PCollection[bytes]:
        check_windowing(users)
        gate = self._gate
        if gate is not None and not isinstance(users.windowing.windowfn, GlobalWindows):
            if not gate.by_default:
                raise ParameterError("max_bad_fraction must be 1 in windows: a run that stops would end all windows.")
            gate = None
        content = users | "Fingerprint" >> FingerprintUsers()  # the sum of all
        if gate is not None:
            content = content | "Decide" >> DecideRelease(self._randomness, gate)  # the same, or the run fails
        return content | "Bind" >> BindContent(self._randomness)


class FingerprintUsers(beam.PTransform):
    """UserBlock -> bytes: the fingerprint of all content, and the counts for the gate, one element. Both are private.

    In the global window there is one element even without any user: that nobody is there must not be seen from what
    the binding starts. Other windows exist only where there are users.
    """

    def expand(self, users: beam.PCollection[UserBlock]) -> beam.PCollection[bytes]:
        total = (
            users
            | "Block" >> beam.Map(_keyed_fingerprint)  # (0, sum of a block)
            | "Sum" >> beam.CombinePerKey(_SumFingerprints())  # (0, sum of all)
            | "Total" >> beam.Values()
        )
        if not isinstance(users.windowing.windowfn, GlobalWindows):
            return total
        side = as_side(total, "ForSides", _NOBODY)
        return users.pipeline | "Start" >> beam.Impulse() | "OrNobody" >> beam.Map(_take, total=side)


class BindContent(beam.PTransform):
    """Content, from `FingerprintUsers` -> bytes: the last part of `BindRelease`, for several releases."""

    def __init__(self, randomness: Randomness) -> None:
        super().__init__()
        self._randomness = randomness

    def expand(self, content: beam.PCollection[bytes]) -> beam.PCollection[bytes]:
        return content | beam.ParDo(_BindDoFn(self._randomness))


def make_randomness(
    pipeline: beam.Pipeline,
    plan: ExtractionPlan,
    settings: Mapping[str, object],
    noise_key: str | None = None,
    *,
    release: str = "",
    key_records: str | None = None,
    offline: bool = False,
    window_delay: int = 0,
) -> Randomness:
    """What the noise of a release comes from. Call it in `expand`: the place in the graph enters the noise.

    Args:
        pipeline: the graph that is being built.
        plan: of the release.
        settings: everything else that determines the result besides the data: tokenizer, pruning, a vocabulary, ... in
            a form that JSON can write.
        noise_key: `file:PATH`, `env:NAME` or `gcp-secret:NAME`; None for a fresh key.
        release: a label; a second release with the same key needs another.
        key_records: a directory that remembers what keys were used for, besides the usual places.
        offline: no file is looked at or created.
        window_delay: milliseconds by which windows are shifted; taken off again in their names.
    """
    key = choose_key(pipeline, noise_key, key_records, offline=offline)
    named = settings_digest({**settings, "plan": plan.settings()})
    return Randomness(key, release, applied_label(pipeline), named, window_delay)


def check_key(noise_key: str | None, key_records: str | None) -> None:
    """Raises NoiseKeyError or ParameterError for a key that cannot be meant, before any graph is built."""
    if noise_key is not None:
        KeyReference.parse(noise_key)
    elif key_records is not None:
        raise ParameterError("key_records must be left out without a noise_key: a fresh key is used once.")


def choose_key(
    pipeline: beam.Pipeline, noise_key: str | None, key_records: str | None = None, *, offline: bool = False
) -> KeyReference:
    """The key of a release: the one named, which is created if it is a file that is not there, or a fresh one.

    A fresh key is for this run only; its directory is removed when the process ends.

    Args:
        pipeline: the graph that is being built.
        noise_key: `file:PATH`, `env:NAME` or `gcp-secret:NAME`; None for a fresh key.
        key_records: a directory that remembers what keys were used for, besides the usual places.
        offline: no file is looked at or created.
    """
    check_key(noise_key, key_records)
    runner = type(pipeline.runner).__name__
    if noise_key is None:
        if runner not in _LOCAL_RUNNERS:
            raise ParameterError(
                f"noise_key must be given on {runner}: a file that every worker can read (file:gs://... is fine), "
                "env:NAME or gcp-secret:NAME."
            )
        directory = tempfile.mkdtemp(prefix="dpngram-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        key = KeyReference("file", os.path.join(directory, secrets.token_hex(8) + ".key"), fresh=True)
    else:
        key = KeyReference.parse(noise_key, key_records, remote=runner not in _LOCAL_RUNNERS)
        warning = unrecorded_key(pipeline, noise_key, key_records)
        if warning is not None:
            _LOG.warning(warning)
    if not offline:
        key.create_if_missing()
    return key


def unrecorded_key(pipeline: beam.Pipeline, noise_key: str | None, key_records: str | None) -> str | None:
    """A sentence if nothing will remember what the key is used for; None if something will.

    Workers on other machines keep no state for the next run. Beside a key file there is a place that all of them share;
    a variable or a secret has none.
    """
    if noise_key is None:
        return None
    remote = type(pipeline.runner).__name__ not in _LOCAL_RUNNERS
    if KeyReference.parse(noise_key, key_records, remote=remote).is_remembered:
        return None
    return (
        f"noise_key: nothing remembers what {noise_key} is used for, because workers may be on other machines: take it "
        "for this release only, or name a directory that all workers can write to with --key_records."
    )


def _keyed_fingerprint(block: UserBlock) -> tuple[int, bytes]:
    return 0, block.fingerprint.tobytes() + block.counts.tobytes()


def _take(_start: bytes, total: bytes) -> bytes:
    return total


@beam.typehints.with_input_types(bytes)
@beam.typehints.with_output_types(bytes)
class _SumFingerprints(beam.CombineFn):
    def create_accumulator(self) -> bytes:
        return _NOBODY

    def add_input(self, accumulator: bytes, value: bytes) -> bytes:
        parts = []
        for start, end in itertools.pairwise((0, 16, 24, 32, 40)):  # the fingerprint and three counts
            total = int.from_bytes(accumulator[start:end], "little") + int.from_bytes(value[start:end], "little")
            parts.append((total % (1 << 8 * (end - start))).to_bytes(end - start, "little"))
        return b"".join(parts)

    def merge_accumulators(self, accumulators: Iterable[bytes]) -> bytes:
        total = _NOBODY
        for accumulator in accumulators:
            total = self.add_input(total, accumulator)
        return total

    def extract_output(self, accumulator: bytes) -> bytes:
        return accumulator


class _BindDoFn(KeyedDoFn):
    def process(self, content: bytes, window: Any = beam.DoFn.WindowParam) -> Iterator[bytes]:
        yield self._source.bind(self.window_name(window), content[:16])

"""The binding: what ties the noise of a release to its content, and a key to one release."""

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam

from dpngram.transforms.blocks.users import UserBlock
from dpngram.transforms.randomness.noise_key import KeySource, Randomness
from dpngram.transforms.windowing import window_name

__all__ = ["BindRelease", "FingerprintUsers"]


class FingerprintUsers(beam.PTransform):
    """UserBlock -> (0, fingerprint of all content), one element. Private, and for key derivation only."""

    def expand(self, users: beam.PCollection[UserBlock]) -> beam.PCollection[tuple[int, bytes]]:
        return (
            users
            | "Block" >> beam.Map(_keyed_fingerprint)  # (0, sum of a block)
            | "Sum" >> beam.CombinePerKey(_SumFingerprints())  # (0, sum of all)
        )


class BindRelease(beam.PTransform):
    """UserBlock -> the binding of this release: the fingerprint of its content, once the key is free for it.

    The sum over all posts of a PRF of (user, tokens), taken from the very blocks that level 1 reads: the same
    for any order, split or format of the same data, and other noise for other data. It has no default: without
    it nothing can draw noise. It is private, and goes nowhere but into key derivation.
    """

    def __init__(self, randomness: Randomness) -> None:
        super().__init__()
        self._randomness = randomness

    def expand(self, users: beam.PCollection[UserBlock]) -> beam.PCollection[bytes]:
        return (
            users
            | "Fingerprint" >> FingerprintUsers()  # (0, sum of all)
            | "Bind" >> beam.ParDo(_BindDoFn(self._randomness))
        )


def _keyed_fingerprint(block: UserBlock) -> tuple[int, bytes]:
    return 0, block.fingerprint.tobytes()


@beam.typehints.with_input_types(bytes)
@beam.typehints.with_output_types(bytes)
class _SumFingerprints(beam.CombineFn):
    def create_accumulator(self) -> bytes:
        return bytes(16)

    def add_input(self, accumulator: bytes, value: bytes) -> bytes:
        total = int.from_bytes(accumulator, "little") + int.from_bytes(value, "little")
        return (total % (1 << 128)).to_bytes(16, "little")

    def merge_accumulators(self, accumulators: Iterable[bytes]) -> bytes:
        total = bytes(16)
        for accumulator in accumulators:
            total = self.add_input(total, accumulator)
        return total

    def extract_output(self, accumulator: bytes) -> bytes:
        return accumulator


class _BindDoFn(beam.DoFn):
    _source: KeySource

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness

    def setup(self) -> None:
        self._source = self._randomness.open()

    def process(self, total: tuple[int, bytes], window: Any = beam.DoFn.WindowParam) -> Iterator[bytes]:
        yield self._source.bind(window_name(window), total[1])

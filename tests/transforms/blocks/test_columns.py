"""Blocks and their bytes: large columns are packed, and come back as they were."""

import dataclasses

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from dpngram.transforms.blocks.candidates import CandidateBlock
from dpngram.transforms.blocks.columns import Block, binary_array, split_binary


def block(size):
    random = np.random.default_rng(size)
    return CandidateBlock(
        user=random.integers(0, 2**64, size, np.uint64),
        user_start=np.arange(size + 1, dtype=np.int32),
        grams=np.sort(random.integers(0, 2**40, size, np.uint64)),
        gram_start=np.arange(size + 1, dtype=np.int32),
        positions=random.permutation(size).astype(np.int32),
        guide_weight=random.integers(0, 2**16, size, np.uint32),
        budget=random.integers(0, 2**64, size, np.uint64),
        digests=random.integers(0, 2**64, (size, 2), np.uint64),
        token_offsets=np.arange(size + 1),
        token_bytes=random.integers(0, 256, size).astype(np.uint8),
    )


@pytest.mark.parametrize("size", [0, 1, 1000, 200_000])
def test_bytes_there_and_back(size):
    ours = block(size)
    data = ours.to_bytes()
    theirs = Block.from_bytes(data)
    for field in dataclasses.fields(ours):
        before, after = getattr(ours, field.name), getattr(theirs, field.name)
        assert before.dtype == after.dtype
        assert before.shape == after.shape
        assert np.array_equal(before, after)
    assert ours.to_bytes() == data
    if size == 200_000:
        assert len(data) < 0.8 * ours.nbytes


def test_a_pickled_block_is_its_own_bytes():
    """Some runners pickle side inputs, whatever coder is registered: no arrays as numpy pickles them, and packed."""
    ours = block(200_000)
    pickled = beam.coders.FastPrimitivesCoder().encode(ours)
    assert ours.to_bytes() in pickled
    assert len(pickled) < len(ours.to_bytes()) + 200
    assert beam.coders.FastPrimitivesCoder().decode(pickled).to_bytes() == ours.to_bytes()


def test_strings_of_any_arrow_form():
    for array in [
        pa.array(["a", "", "ccc"]),
        pa.array(["x", "a", "", "ccc", "y"])[1:4],
        pa.array([b"a", b"", b"ccc"], pa.large_binary()),
        pa.array(["q", "a", "", "ccc"], pa.large_string())[1:],
    ]:
        offsets, data = split_binary(array)
        assert offsets.tolist() == [0, 1, 1, 4]
        assert data.tobytes() == b"accc"
        assert binary_array(offsets, data).to_pylist() == [b"a", b"", b"ccc"]
    assert split_binary(pa.array([], pa.string()))[0].tolist() == [0]

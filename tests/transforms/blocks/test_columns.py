"""Blocks and their bytes: large columns are packed, and come back as they were."""

import dataclasses
import json
import pickle

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from helpers.blocks import candidates

from dpngram.transforms.blocks.candidates import CandidateBlock
from dpngram.transforms.blocks.columns import Block, BlockCoder, binary_array, split_binary
from dpngram.transforms.blocks.levels import Level
from dpngram.transforms.blocks.scratch import Scratch


def block(size):
    random = np.random.default_rng(size)
    return CandidateBlock(
        user=random.integers(0, 2**64, size, np.uint64),
        user_start=np.arange(size + 1, dtype=np.int32),
        grams=np.sort(random.integers(0, 2**40, size, np.uint64)),
        gram_start=np.arange(size + 1, dtype=np.int32),
        positions=random.permutation(size).astype(np.int32),
        guide_weight=random.integers(0, 2**12, size, np.uint16),
        budget=random.integers(0, 2**64, size, np.uint64),
        is_last=random.integers(0, 2, size).astype(bool),
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


@pytest.mark.parametrize("value", [float("inf"), -0.0, 5e-324, 1e308])
def test_plain_numbers_come_back_as_they_were(value):
    level = Block.from_bytes(Level(n=3, grid=value, rho=value).to_bytes())
    assert (level.n, repr(level.grid), repr(level.rho)) == (3, repr(value), repr(value))
    assert repr(Block.from_bytes(Level(rho=float("nan")).to_bytes()).rho) == "nan"


@pytest.mark.parametrize("value", [True, None, "3", [3]])
def test_a_plain_value_is_a_number(value):
    with pytest.raises(TypeError, match="n must be a column or a plain number"):
        Level(n=value).to_bytes()


@pytest.mark.parametrize(
    "header",
    [
        ["Level", [], {"keys": 5}],
        ["Level", [["n", "<i8", [0], -1]], {}],
        ["Level", [], {"n": True}],
        ["Level", [], {"n": "3"}],
        ["Level", [["keys", ",", [0], -1]], {}],
        ["Level", [], [1]],
        ["Level", [], {"other": 1}],
    ],
)
def test_headers_that_claim_something_else_are_damage(header):
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 4) % 8)
    with pytest.raises(ValueError, match="a damaged dpngram block"):
        Block.from_bytes(Level().to_bytes()[:8] + len(text).to_bytes(4, "little") + text)


def test_columns_without_content_cost_nothing():
    """Zero budgets of three users are content; no budgets are not."""
    users = candidates([[1], [2], [3]])
    spent = dataclasses.replace(users, budget=np.zeros(3, np.uint64))
    assert b"budget" not in users.to_bytes()
    assert Block.from_bytes(spent.to_bytes()).budget.tolist() == [0, 0, 0]


def test_the_coder_refers_to_a_scratch(tmp_path):
    """A coder of a run with a scratch, and coders of other graphs and of other processes."""
    ours, before = block(5000), BlockCoder()
    with Scratch(str(tmp_path)).in_use() as scratch:
        coder = BlockCoder()
        encoded = coder.encode(ours)
        assert len(encoded) == 40
        assert coder.decode(encoded).to_bytes() == before.encode(ours) == ours.to_bytes()
        assert before.decode(before.encode(ours)).to_bytes() == ours.to_bytes()
        with pytest.raises(ValueError, match="another run or process"):
            before.decode(encoded)  # nothing of this run gets into another
        with Scratch(str(tmp_path)).in_use():
            other = BlockCoder()
            with pytest.raises(ValueError, match="another run or process"):
                other.decode(encoded)
        copy = pickle.loads(pickle.dumps(coder))  # noqa: S301
        assert copy.decode(copy.encode(ours)).to_bytes() == ours.to_bytes()
        assert copy == coder == BlockCoder()
        assert hash(copy) == hash(coder)
        assert len({coder, copy, before, other}) == 3
        assert before.is_deterministic()
        assert not coder.is_deterministic()
        assert coder.encode(ours) != encoded  # which is why
        assert scratch.used
    assert copy.encode(ours) == ours.to_bytes()  # where its scratch is not open
    with pytest.raises(ValueError, match="another run or process"):
        copy.decode(encoded)

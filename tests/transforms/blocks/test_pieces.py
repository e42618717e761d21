"""A block in pieces, and together again: the same block, or an error."""

import dataclasses
import random

import numpy as np
import pytest
from helpers.levels import chain, first_level

from dpngram.transforms.blocks import pieces
from dpngram.transforms.blocks.columns import Block
from dpngram.transforms.blocks.levels import EMPTY_LEVEL, Level
from dpngram.transforms.blocks.pieces import Piece, cut_block, join_pieces
from dpngram.transforms.blocks.surveys import EMPTY_SURVEY, Survey

SURVEY = Survey(keys=np.arange(900, dtype=np.uint64), noisy=np.arange(900), counted=1, name=5)
PAIRS = [level for level, _ in chain(np.random.default_rng(1), "both", 2, 1.0)][1]
BLOCKS = {"tokens": first_level(500), "pairs": PAIRS, "survey": SURVEY, "empty": EMPTY_LEVEL, "nothing": EMPTY_SURVEY}


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr(pieces, "PIECE_BYTES", 1000)


@pytest.mark.parametrize("name", BLOCKS)
def test_there_and_back_in_any_order(name):
    block = BLOCKS[name]
    found = [Block.from_bytes(piece.to_bytes()) for piece in cut_block(block)]  # as they travel
    assert len(found) == -(-len(block.to_bytes()) // 1000)
    assert {piece.rows for piece in found} == {len(block)}
    assert [piece.is_first for piece in found] == [True] + [False] * (len(found) - 1)
    random.Random(3).shuffle(found)
    again = join_pieces(iter(found))
    assert type(again) is type(block)
    assert again.to_bytes() == block.to_bytes()


def test_an_empty_block_is_one_piece():
    assert len(list(cut_block(EMPTY_LEVEL))) == len(list(cut_block(EMPTY_SURVEY))) == 1


@pytest.mark.parametrize("change", ["first lost", "last lost", "none", "twice", "another", "damaged"])
def test_anything_else_is_an_error(change):
    """Never a smaller level: this worker would prune with another V_k than all others."""
    found = list(cut_block(first_level(500)))
    other = dataclasses.replace(first_level(500), rho=1.5)
    assert len(other.to_bytes()) == len(first_level(500).to_bytes())
    changed = {
        "first lost": found[1:],
        "last lost": found[:-1],
        "none": [],
        "twice": [*found[:-1], found[0]],
        "another": [*found[:-1], list(cut_block(other))[-1]],
        "damaged": [*found[:-1], dataclasses.replace(found[-1], data=found[-1].data[:-1])],
    }[change]
    with pytest.raises(ValueError, match="pieces of a level are missing"):
        join_pieces(changed)


def test_some_columns_only():
    """The others take no memory; numbers are there."""
    level = join_pieces(cut_block(first_level(500)), ("keys", "digests"))
    assert isinstance(level, Level)
    assert (len(level), level.n, level.vocabulary_size) == (500, 1, 500)
    assert level.digests.tolist() == first_level(500).digests.tolist()
    assert (len(level.weight), len(level.token_bytes), len(level.suffix)) == (0, 0, 0)


def test_pieces_show_nothing():
    assert repr(next(cut_block(SURVEY))) == "<Piece>"
    assert isinstance(next(cut_block(SURVEY)), Piece)

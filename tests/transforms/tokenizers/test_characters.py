"""Long runs of marks are put in order, and change nothing else."""

import unicodedata

import numpy as np
import pyarrow as pa
import pytest

from dpngram.transforms.tokenizers import make_tokenizer
from dpngram.transforms.tokenizers.base import MAX_TOKEN_BYTES

WORDS = make_tokenizer("words")


@pytest.mark.parametrize("seed", range(20))
def test_long_runs_of_marks_have_the_same_normal_form(seed):
    """Ordering marks beforehand changes nothing: the tokens are those of Python's own normal forms."""
    random = np.random.default_rng(seed)
    marks = "\u0301\u0327\u0345\u0344\u0f73\u0f71\u0f72\u0315\u05b0\u3099\u0300\u0308"
    others = "a\u1ebf\u0130\ufdfa\u00e9\u212b'\u2019 \uac00\u1100\u1161"
    pieces = []
    for _ in range(6):
        pieces += random.choice(list(others), random.integers(1, 4)).tolist()
        pieces += random.choice(list(marks), random.choice([0, 3, 300, 900])).tolist()
    text = "".join(pieces)
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).replace("\u2019", "'")
    column = WORDS.tokenize(pa.array([text.encode()], pa.large_binary()))
    expected = [token for token in words_of(folded) if token]
    if any(len(token.encode()) > MAX_TOKEN_BYTES for token in expected):
        assert column.over == 1
    else:
        found = [column.vocabulary[token].as_py().decode() for token in column.ids.tolist()]
        assert found == expected


def words_of(folded):
    """Runs of letters, digits and marks, and apostrophes between two of them."""
    inside = [c.isalnum() or unicodedata.category(c).startswith("M") for c in folded]
    kept = [
        is_in or (c == "'" and 0 < i < len(folded) - 1 and inside[i - 1] and inside[i + 1])
        for i, (c, is_in) in enumerate(zip(folded, inside, strict=True))
    ]
    return "".join(c if keep else "\0" for c, keep in zip(folded, kept, strict=True)).split("\0")

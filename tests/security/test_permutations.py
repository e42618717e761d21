"""The order of the input, and how it is cut into files, changes no byte of the output and no size of a file."""

import json

import numpy as np
import pytest
from helpers.keys import write_key
from helpers.runs import extract, files, small_corpus

from dpngram.accounting import plan_extraction
from dpngram.pipelines.io.encoding import OUTPUT_FORMATS
from dpngram.pipelines.io.parsing import Fields, parse_jsonl
from dpngram.transforms.testing import extract_in_memory, key_source
from dpngram.transforms.tokenizers import make_tokenizer

CORPUS = [json.dumps(row) for row in small_corpus(60)]


def shuffled(random):
    """All lines, in some order, in some number of parts of any size; a part may be empty."""
    lines = [CORPUS[i] for i in random.permutation(len(CORPUS))]
    cuts = np.sort(random.integers(0, len(lines) + 1, random.integers(0, 6)))
    parts = np.split(np.arange(len(lines)), cuts)
    return ["".join(lines[i] + "\n" for i in part).encode() for part in parts]


@pytest.mark.parametrize("policy", ["paper", "plus"])
def test_a_hundred_permutations(policy):
    """Parsed, grouped into any number of blocks, released and encoded in every format: one result."""
    plan = plan_extraction(epsilon=20, delta=0.1, max_n=3, max_contributions=12, eta=0.1, policy=policy)
    random = np.random.default_rng(11)
    source, tokenizer = key_source(b"p" * 32), make_tokenizer("words")
    results = set()
    for _ in range(100):
        blocks = [block for part in shuffled(random) for block in parse_jsonl(part, Fields()).blocks]
        shards, histogram_shards = (int(random.integers(1, 6)) for _ in range(2))
        tables = extract_in_memory(
            blocks, plan, source, tokenizer, shards=shards, histogram_shards=histogram_shards
        ).values()
        results.add(tuple(encoding.encode(table) for encoding in OUTPUT_FORMATS.values() for table in tables))
    assert len(results) == 1
    assert min(map(len, results.pop())) > 20


@pytest.mark.parametrize("policy", ["paper", "plus"])
def test_permutations_of_files(tmp_path, policy):
    """Through the whole program: files, manifest and report, byte for byte; so their sizes, too."""
    write_key(tmp_path / "noise.key", b"p" * 32)
    random = np.random.default_rng(13)
    results = []
    for number in range(4):
        directory = tmp_path / f"in{number}"
        directory.mkdir()
        for part, data in enumerate(shuffled(random)):
            (directory / f"{random.integers(1 << 30)}-{part}.jsonl").write_bytes(data)
        flags = ["--input", directory / "*", "--noise_key", tmp_path / "noise.key", "--policy", policy]
        assert extract(tmp_path / f"out{number}", *flags, "--max_n", 2, "--shards", random.integers(1, 9)) == 0
        results.append(files(tmp_path / f"out{number}"))
    assert all(result == results[0] for result in results)
    assert min(map(len, results[0].values())) > 100

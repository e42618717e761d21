"""Keyed blocks never repeat across keys, releases, places in the graph, settings, contents, windows, levels, rounds or
purposes; and they are the same on every worker.
"""

import itertools
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
from apache_beam.transforms.window import GlobalWindow, IntervalWindow

from dpngram import transforms
from dpngram.transforms.randomness.prf import derive_key
from dpngram.transforms.testing import key_source
from dpngram.transforms.windowing import window_name

# Every purpose that a draw is made for; a test below reads them out of the sources.
PURPOSES = ["clip", "gate", "noise", "zero cells", "zero weights", "zero cells below", "count"]
DIGESTS = ["user", "token", "post", "group", "bad", "unnamed"]
WINDOWS = [
    window_name(GlobalWindow()),
    *(window_name(IntervalWindow(start, start + 10)) for start in (0, 1, 10, 11, 100)),
    window_name(IntervalWindow(1, 1)),
    window_name(IntervalWindow(-10, 0)),
]
# Names that a careless joining of names would mix up: each differs from the others in where a part ends.
RELEASES = ["", "a", "a/b", "1", "ExtractNgrams"]
APPLICATIONS = ["ExtractNgrams", "ExtractNgrams/a", "", "1"]
SETTINGS = [None, {}, {"a": 1}]
CONTENTS = [bytes(16), b"f" * 16, bytes(15) + b"\1"]


def test_purposes_are_all_known():
    source = Path(transforms.__file__).parent
    text = "".join(path.read_text() for path in sorted(source.rglob("*.py")))
    assert set(re.findall(r'\bdraw\("([^"]+)"\)', text)) | set(
        re.findall(r'\.prf\(\s*(?:number, )?"([^"]+)"', text)
    ) == set(PURPOSES)
    assert set(re.findall(r'\.digest\("([^"]+)"\)', text)) == set(DIGESTS)


def test_no_two_draws_share_a_block():
    """The first blocks of 180,000 draws and more, under every combination of names: all different.

    128-bit blocks of independent functions would meet by chance with probability 2^-90.
    """
    blocks, made = set(), 0
    first = np.zeros((1, 2), np.uint64)
    everywhere = itertools.product([b"a" * 32, b"b" * 32], RELEASES, APPLICATIONS, SETTINGS)
    for key, release, application, settings in everywhere:
        source = key_source(key, settings, release, application)
        blocks.update(source.digest(purpose).encrypt(first).tobytes() for purpose in DIGESTS)
        made += len(DIGESTS)
        for content, window in itertools.product(CONTENTS, WINDOWS):
            binding = source.binding(content)
            for purpose, level, number in itertools.product(PURPOSES, (1, 2, 3, 11, 64), (0, 1, 2)):
                blocks.add(source.prf(purpose, level, number, window, binding).encrypt(first).tobytes())
                made += 1
    assert made > 180_000
    assert len(blocks) == made


def test_streams_do_not_overlap():
    """1,000 draws of 1,000 blocks each, for names of cells that lie in a row: a million blocks, all different."""
    source = key_source(b"a" * 32)
    binding = source.binding(bytes(16))
    cells = np.arange(1000, dtype=np.uint64)
    words = np.concatenate(
        [
            source.prf(purpose, level, number, window, binding).blocks(cells, 0)
            for purpose, level, number, window in itertools.product(PURPOSES, range(1, 11), range(4), WINDOWS[:5])
        ]
    )
    assert len(words) == 200_000 * len(PURPOSES)
    assert len(np.unique(words.view("V16"))) == 200_000 * len(PURPOSES)


def test_names_are_told_apart_by_their_place():
    """A key is derived from a fixed number of names, each with its length, the first saying what for. Numbers and
    strings are written alike, which is harmless where a place holds one kind only: moved to another place they differ.
    """
    key = b"a" * 32
    assert derive_key(key, 1) == derive_key(key, "1") == derive_key(key, b"1")
    lists = [("run", "a", "bc"), ("run", "ab", "c"), ("run", "a", "b", "c"), ("run", "", "abc"), ("run", "abc", "")]
    lists += [("run", "a", "bc", ""), ("runa", "bc"), ("run", b"a\x02\0\0\0\0\0\0\0bc"), (1, 2, 1), (1, 1, 2), (1, 12)]
    assert len({derive_key(key, *names) for names in lists}) == len(lists)
    # A release named like a place in the graph, and the reverse.
    swapped = [key_source(key, None, "x", "y"), key_source(key, None, "y", "x"), key_source(key, None, "xy", "")]
    assert len({source.check for source in swapped}) == 3


WORKER = """
import sys
import numpy as np
from dpngram.transforms.randomness.noise import Noise
from dpngram.transforms.testing import key_source
source = key_source(b"a" * 32, {"b": 1, "a": 2}, "r", "A")
prf = source.prf("noise", 2, 1, b"0:10", source.binding(b"f" * 16))
words = prf.blocks(np.arange(int(sys.argv[1]), int(sys.argv[2]), dtype=np.uint64), 0)
noisy = Noise(3.3).noisy(np.zeros(len(words), np.int64), words, prf)
sys.stdout.write(words.tobytes().hex() + " " + noisy.tobytes().hex())
"""


def test_workers_agree():
    """Two processes of their own, one of which sees half of the cells, and this one: the same words, the same noise."""
    from dpngram.transforms.randomness.noise import Noise

    source = key_source(b"a" * 32, {"a": 2, "b": 1}, "r", "A")
    prf = source.prf("noise", 2, 1, b"0:10", source.binding(b"f" * 16))
    words = prf.blocks(np.arange(4000, dtype=np.uint64), 0)
    noisy = Noise(3.3).noisy(np.zeros(4000, np.int64), words, prf)
    for start, end in ((0, 4000), (2000, 4000)):
        command = [sys.executable, "-c", WORKER, str(start), str(end)]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert out == f"{words[start:end].tobytes().hex()} {noisy[start:end].tobytes().hex()}"

"""Scratch storage: what was written comes back or fails, tells nothing, and is gone afterwards."""

import concurrent.futures
import contextvars
import errno
import os
import subprocess
import sys

import pytest

from dpngram.transforms.blocks import scratch as module
from dpngram.transforms.blocks.scratch import LEAST, REFERENCE, Scratch, current_scratch, find_scratch
from dpngram.transforms.messages import Message

CANARY = b"the quick brown canary "
TEXT = CANARY * 1000


@pytest.fixture
def scratch(tmp_path):
    with Scratch(str(tmp_path)).in_use() as opened:
        yield opened


def files_of(scratch):
    """The numbers of its files."""
    return [file.number for file in scratch._files.values()]


def on_disk(scratch):
    return b"".join(os.pread(number, os.fstat(number).st_size, 0) for number in files_of(scratch))


@pytest.mark.parametrize("size", [LEAST, 4999, 5000, 5001, 15_000, 123_456])
def test_there_and_back(scratch, monkeypatch, size):
    monkeypatch.setattr(module, "_PIECE", 5000)
    blocks = [os.urandom(size) for _ in range(3)]
    references = [scratch.store(block) for block in blocks]
    assert all(len(reference) == 40 and reference.startswith(REFERENCE) for reference in references)
    assert [scratch.load(reference) for reference in references] == blocks
    assert scratch.used == scratch.written == len(on_disk(scratch)) == 3 * (size + -(-size // 5000) * 16)


def test_small_blocks_stay(scratch):
    for size in (0, 1, LEAST - 1):
        assert scratch.store(b"x" * size) == b"x" * size
    assert scratch.used == 0
    assert files_of(scratch) == []


def test_as_much_is_in_memory_as_may(tmp_path):
    """At a time: where a segment is dropped, there is room again. A run that turns out to be large goes to disk."""
    scratch = Scratch(str(tmp_path), keep=2 * len(TEXT))
    blocks = [TEXT, TEXT[::-1], TEXT[1:], TEXT[2:]]
    references = [scratch.store(block) for block in blocks[:3]]
    assert all(len(reference) == 40 and reference.startswith(REFERENCE) for reference in references)
    assert [scratch.load(reference) for reference in references] == blocks[:3]
    assert scratch.used == scratch.written == len(TEXT) - 1 + 16  # the third
    first = module._FORM.unpack(references[0])
    scratch.drop([first[2]])
    last = scratch.store(blocks[3])
    assert scratch.load(last) == blocks[3]
    assert scratch.written == len(TEXT) - 1 + 16
    gone = [*references, module._FORM.pack(*module._FORM.unpack(last)[:3], first[3] + 1, len(TEXT))]
    for reference in gone:
        with pytest.raises(ValueError, match=Message.SCRATCH_DAMAGED.format()[:20]):
            scratch.load(reference)
    scratch.close()
    with pytest.raises(ValueError, match=Message.SCRATCH_DAMAGED.format()[:20]):
        scratch.load(last)


def test_nothing_can_be_read_or_found(scratch, tmp_path):
    scratch.store(TEXT)
    (number,) = files_of(scratch)
    assert list(tmp_path.iterdir()) == []  # while it is in use
    assert os.fstat(number).st_nlink == 0
    assert os.fstat(number).st_mode & 0o777 == 0o600
    assert not os.get_inheritable(number)
    assert len(on_disk(scratch)) > len(TEXT)
    assert not any(CANARY[start : start + 8] in on_disk(scratch) for start in range(len(CANARY) - 8))
    assert on_disk(scratch) != on_disk_of_another(tmp_path)


def on_disk_of_another(directory):
    with Scratch(str(directory)).in_use() as other:
        other.store(TEXT)
        return on_disk(other)


def test_no_nonce_is_used_twice(scratch, monkeypatch):
    """By threads, in pieces, over segments, after what was deleted, and after a write that failed."""
    used, cipher = [], scratch._cipher

    class Spy:
        def encrypt(self, nonce, data, more):
            used.append(nonce)
            return cipher.encrypt(nonce, data, more)

    scratch._cipher = Spy()
    monkeypatch.setattr(module, "_PIECE", 3000)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for round_ in range(4):
            list(pool.map(scratch.store, [TEXT] * 10))
            scratch.drop([scratch.next_segment() - 1] if round_ % 2 else [scratch._segment])
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="full"):
            scratch.store(TEXT)
    scratch.store(TEXT)
    scratch.close()
    scratch.store(TEXT)
    assert len(used) == 42 * 8 + 1
    assert len(set(used)) == len(used)


FORK = """
import os, sys
from dpngram.transforms.blocks.scratch import Scratch, find_scratch
with Scratch(sys.argv[1]).in_use() as scratch:
    child = os.fork()
    found = find_scratch(scratch.name)
if child:
    os.waitpid(child, 0)
os.write(1, f"{bool(child)} {found is None}\\n".encode())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_process_has_none(tmp_path):
    """It would have the same key, and write its next block to the same place: one nonce for two texts."""
    done = subprocess.run([sys.executable, "-c", FORK, str(tmp_path)], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.splitlines()) == ["False True", "True False"]


def test_threads(scratch, monkeypatch):
    monkeypatch.setattr(module, "_PIECE", 7000)
    blocks = [os.urandom(LEAST + 997 * place) for place in range(60)]

    def there_and_back(block):
        reference = scratch.store(block)
        return [scratch.load(reference) for _ in range(3)] == [block] * 3

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(there_and_back, blocks))


@pytest.mark.parametrize("place", [0, 1234, 5000, 5016, 22_999, -1])
def test_damage_is_noticed(scratch, monkeypatch, place):
    """A bit anywhere, in the bytes or in a tag."""
    monkeypatch.setattr(module, "_PIECE", 5000)
    reference = scratch.store(TEXT)
    (number,) = files_of(scratch)
    place %= os.fstat(number).st_size
    (byte,) = os.pread(number, 1, place)
    os.pwrite(number, bytes([byte ^ 1]), place)
    with pytest.raises(ValueError, match="not what was written"):
        scratch.load(reference)


def test_bytes_of_another_place_are_noticed(scratch):
    first, second = scratch.store(TEXT), scratch.store(TEXT[::-1])
    (number,) = files_of(scratch)
    size = os.fstat(number).st_size // 2
    os.pwrite(number, os.pread(number, size, 0), size)
    assert scratch.load(first) == TEXT
    with pytest.raises(ValueError, match="not what was written"):
        scratch.load(second)


def test_a_file_cut_short_is_noticed(scratch):
    reference = scratch.store(TEXT)
    (number,) = files_of(scratch)
    os.ftruncate(number, len(TEXT))
    with pytest.raises(ValueError, match="not what was written"):
        scratch.load(reference)


def test_segments_are_deleted(scratch):
    first = scratch.store(TEXT)
    (number,) = files_of(scratch)
    segment = scratch.next_segment()
    second = scratch.store(TEXT)
    scratch.drop([segment - 1, 99])
    assert scratch.load(second) == TEXT
    assert scratch.used == scratch.written / 2
    assert number not in files_of(scratch)
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(number)
    with pytest.raises(ValueError, match="not what was written"):
        scratch.load(first)


def test_a_file_stays_open_for_who_works_with_it(scratch, monkeypatch):
    """The number of a closed file may become that of another, which a late thread would write into."""
    seen, pwrite = [], os.pwrite

    def late(number, data, offset):
        scratch.close()
        seen.append(os.fstat(number).st_nlink)
        return pwrite(number, data, offset)

    monkeypatch.setattr(os, "pwrite", late)
    scratch.store(TEXT)
    assert seen == [0]


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_writes_in_parts_and_a_full_disk(scratch, monkeypatch):
    pwrite = os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda number, data, offset: pwrite(number, data[:1000], offset))
        reference = scratch.store(TEXT)
    assert scratch.load(reference) == TEXT
    pread = os.pread
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", lambda number, length, offset: pread(number, min(length, 1000), offset))
        assert scratch.load(reference) == TEXT
    for number, message in {
        errno.ENOSPC: Message.SCRATCH_FULL,
        errno.EDQUOT: Message.SCRATCH_FULL,
        errno.EFBIG: Message.SCRATCH_FULL,
        errno.EIO: Message.SCRATCH_UNUSABLE,
    }.items():
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", lambda *_, number=number: full_of(number))
            with pytest.raises(OSError, match="scratch") as caught:
                scratch.store(TEXT)
        assert message.find(str(caught.value))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", lambda *_: full_of(errno.EIO))
        with pytest.raises(OSError, match="cannot be written to disk or read") as caught:
            scratch.load(reference)


def full_of(number):
    raise OSError(number, "as the system says it")


def test_a_directory_that_is_gone(tmp_path):
    with pytest.raises(OSError, match="FileNotFoundError"):
        Scratch(str(tmp_path / "none")).store(TEXT)


def test_it_is_there_for_one_run(tmp_path):
    """For graphs that this thread translates in the body, and for nobody else."""
    assert current_scratch() == b""
    with Scratch(str(tmp_path)).in_use() as ours:
        assert current_scratch() == ours.name
        assert find_scratch(ours.name) is ours
        assert contextvars.Context().run(current_scratch) == b""
        ours.store(TEXT)
        (number,) = files_of(ours)
    assert current_scratch() == b""
    assert find_scratch(ours.name) is None
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(number)

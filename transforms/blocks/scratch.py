"""Scratch storage: what local runs keep between two steps travels as references, and in large runs lies on disk.

Beam's local runner keeps what crosses from one stage to the next in memory, and copies it several times on the way. In
a run with a `Scratch`, the coder of blocks keeps their bytes here and hands the runner a reference of 40 bytes instead.
What does not fit the memory of the run goes to a file, encrypted.

Privacy: bytes in memory are where they would be without a scratch. The bytes on disk are private data. Their files have
no name, so nobody can open them by one, and they are gone when the process ends in any way. The bytes are encrypted by
AES-256-GCM under a key that is drawn for the run and is in its memory only: what a disk keeps of a deleted file tells
sizes and nothing else. The nonce is a place in the files. Every place is written once, so no nonce is used twice under
a key; in a forked process no scratch is open. The tag of each piece covers its place and the length of its block, so
bytes that changed, or that were written elsewhere, fail the run and never enter a release.
"""

import contextlib
import contextvars
import errno
import os
import secrets
import struct
import tempfile
import threading
from collections.abc import Iterable, Iterator
from typing import NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dpngram.transforms.messages import Message

__all__ = ["LEAST", "REFERENCE", "Scratch", "current_scratch", "find_scratch"]

REFERENCE = b"DPNGREF\x01"  # how a reference begins; a block begins with other bytes
LEAST = 1 << 10  # smaller blocks stay as they are: a reference would save little
_FORM = struct.Struct("<8s8sQQQ")  # the word above, the run, segment, offset, length
_NONCE = struct.Struct("<IQ")  # segment, offset
_PIECE = 1 << 22  # bytes that are encrypted at once: some copies of a piece are in memory, not of a block
_TAG = 16
_IN_MEMORY = 1 << 63  # instead of an offset: a place in memory
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# All that are open in this process, by their names. A reference names its scratch, and a coder the one of its run.
_OPEN: dict[bytes, "Scratch"] = {}
if hasattr(os, "register_at_fork"):  # a child has the same key and the same next place: it would use a nonce again
    os.register_at_fork(after_in_child=_OPEN.clear)
_CURRENT: contextvars.ContextVar[bytes] = contextvars.ContextVar("scratch", default=b"")


def current_scratch() -> bytes:
    """The name of the scratch of the run whose graph this thread is translating; empty outside of such runs."""
    return _CURRENT.get()


def find_scratch(name: bytes) -> "Scratch | None":
    """The scratch of that name, if it is open in this process."""
    return _OPEN.get(name)


class Scratch:
    """The files of one run, in one process. All methods may be called by several threads.

    Args:
        directory: where the files are; they have no names there.
        keep: so many bytes may be in memory; what does not fit goes to disk.
    """

    def __init__(self, directory: str, keep: int = 0) -> None:
        self.name = secrets.token_bytes(8)
        self._directory, self._keep = directory, keep
        self._cipher = AESGCM(AESGCM.generate_key(256))
        self._lock = threading.Lock()
        self._kept = 0
        self._segment = 0
        self._files: dict[int, _File] = {}
        self._memory: dict[int, list[bytes]] = {}  # what each segment has in memory
        self._ends: dict[int, int] = {}  # of every segment with a file
        self._written = 0

    @property
    def used(self) -> int:
        """Bytes on disk now."""
        with self._lock:
            return sum(self._ends.values())

    @property
    def written(self) -> int:
        """Bytes written to disk since the run began."""
        return self._written

    @contextlib.contextmanager
    def in_use(self) -> Iterator["Scratch"]:
        """A graph that this thread translates in the body uses this scratch. Afterwards all its files are gone."""
        _OPEN[self.name] = self
        token = _CURRENT.set(self.name)
        try:
            yield self
        finally:
            _CURRENT.reset(token)
            _OPEN.pop(self.name, None)
            self.close()

    def close(self) -> None:
        """Deletes everything."""
        with self._lock:
            self._drop([*self._files, *self._memory])

    def next_segment(self) -> int:
        """From now on blocks are written to another file; returns its number."""
        with self._lock:
            self._segment += 1
            return self._segment

    def drop(self, segments: Iterable[int]) -> None:
        """Deletes what was written in these segments. Nothing may read it any more."""
        with self._lock:
            self._drop(segments)

    def _drop(self, segments: Iterable[int]) -> None:
        for segment in segments:
            if segment == self._segment:
                self._segment += 1  # a number has one file: a second one would use nonces again
            self._kept -= sum(map(len, self._memory.pop(segment, ())))
            if segment in self._files:
                del self._files[segment], self._ends[segment]

    def store(self, data: bytes) -> bytes:
        """A reference to the bytes, which are in memory or on disk now; or the bytes themselves, if they are few."""
        if len(data) < LEAST:
            return data
        pieces = -(-len(data) // _PIECE)
        with self._lock:
            segment = self._segment
            if self._kept + len(data) <= self._keep:
                self._kept += len(data)
                self._memory.setdefault(segment, []).append(data)
                place = _IN_MEMORY | (len(self._memory[segment]) - 1)
                return _FORM.pack(REFERENCE, self.name, segment, place, len(data))
            file = self._open(segment)
            offset = self._ends[segment]
            self._ends[segment] += len(data) + pieces * _TAG
            self._written += len(data) + pieces * _TAG
        reference = _FORM.pack(REFERENCE, self.name, segment, offset, len(data))
        view = memoryview(data)
        for start in range(0, len(data), _PIECE):
            sealed = self._cipher.encrypt(_NONCE.pack(segment, offset), view[start : start + _PIECE], reference)
            _write(file.number, sealed, offset)
            offset += len(sealed)
        return reference

    def load(self, reference: bytes) -> bytes:
        """The bytes of a reference of this scratch."""
        _, _, segment, offset, length = _FORM.unpack(reference)
        with self._lock:
            kept: list[bytes] = self._memory.get(segment, [])
            if offset & _IN_MEMORY and offset ^ _IN_MEMORY < len(kept):
                data: bytes = kept[offset ^ _IN_MEMORY]
                return data
            file = self._files.get(segment)
        if file is None or offset & _IN_MEMORY:
            raise ValueError(Message.SCRATCH_DAMAGED.format())
        pieces = []
        try:
            for start in range(0, length, _PIECE):
                sealed = _read(file.number, min(_PIECE, length - start) + _TAG, offset)
                pieces.append(self._cipher.decrypt(_NONCE.pack(segment, offset), sealed, reference))
                offset += len(sealed)
        except InvalidTag:
            raise ValueError(Message.SCRATCH_DAMAGED.format()) from None
        except OSError as error:
            _fail(error)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _open(self, segment: int) -> "_File":
        if segment not in self._files:
            try:
                self._files[segment], self._ends[segment] = _File(self._directory), 0
            except OSError as error:
                _fail(error)
        return self._files[segment]


class _File:
    """A file without a name, of mode 0600. It is gone when the last thread that works with it lets go of it.

    It is not closed earlier: its number could then be that of another file while a thread still writes.
    """

    def __init__(self, directory: str) -> None:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            self.number = os.dup(file.fileno())

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)


def _write(file: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    try:
        while view:
            done = os.pwrite(file, view, offset)
            view, offset = view[done:], offset + done
    except OSError as error:
        _fail(error)


def _read(file: int, length: int, offset: int) -> bytes:
    """So many bytes, or fewer where the file ends: those have no tag that is right."""
    data = os.pread(file, length, offset)
    while len(data) < length:
        more = os.pread(file, length - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data


def _fail(error: OSError) -> NoReturn:
    if error.errno in _FULL:
        raise OSError(Message.SCRATCH_FULL.format()) from None
    raise OSError(Message.SCRATCH_UNUSABLE.format(kind=type(error).__name__)) from None

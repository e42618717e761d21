"""Files that are there whole or not at all, on any filesystem that Beam knows; some of them for their owner only."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from typing import IO, Any

from apache_beam.io.filesystems import FileSystems

__all__ = ["make_private_directory", "open_whole", "read_whole", "write_whole"]


def write_whole(path: str, data: bytes, *, private: bool = False) -> None:
    """Writes all of a file at once, see `open_whole`."""
    with open_whole(path, private=private) as file:
        file.write(data)


@contextlib.contextmanager
def open_whole(path: str, *, private: bool = False) -> Iterator[IO[Any]]:
    """A file to write to, under another name first: the final name appears only with all of its bytes.

    Args:
        path: on any filesystem that Beam knows.
        private: on a local filesystem only the owner can read the file (mode 0600), from its first byte on, and a
            directory that is made for it (0700). Object stores have no modes: who can read the bucket can read it.
    """
    temporary = f"{path}.{secrets.token_hex(8)}.tmp"
    try:
        with _create(temporary, private=private) as file:
            yield file
        FileSystems.rename([temporary], [path])
    except Exception:
        with contextlib.suppress(Exception):  # it may not be there; the first error is the one to tell
            FileSystems.delete([temporary])
        raise


def _create(path: str, *, private: bool) -> IO[Any]:
    if not private or FileSystems.get_scheme(path) is not None:
        created: IO[Any] = FileSystems.create(path, compression_type="uncompressed")
        return created
    make_private_directory(os.path.dirname(os.path.abspath(path)))
    return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")


def make_private_directory(path: str) -> None:
    """Makes a directory unless it exists; on a local filesystem only its owner can list it (mode 0700).

    A directory that exists keeps its mode.
    """
    if FileSystems.get_scheme(path) is None:
        os.makedirs(path, mode=0o700, exist_ok=True)
    elif not FileSystems.exists(path):
        FileSystems.mkdirs(path)


def read_whole(path: str) -> bytes:
    with FileSystems.open(path, compression_type="uncompressed") as file:
        return bytes(file.read())

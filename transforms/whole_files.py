"""Files that are there whole or not at all, on any filesystem that Beam knows."""

import contextlib
import secrets

from apache_beam.io.filesystems import FileSystems

__all__ = ["read_whole", "write_whole"]


def write_whole(path: str, data: bytes) -> None:
    """Writes under another name first: the final name appears only with all of its bytes."""
    temporary = f"{path}.{secrets.token_hex(8)}.tmp"
    try:
        with FileSystems.create(temporary, compression_type="uncompressed") as file:
            file.write(data)
        FileSystems.rename([temporary], [path])
    except Exception:
        with contextlib.suppress(Exception):  # it may not be there; the first error is the one to tell
            FileSystems.delete([temporary])
        raise


def read_whole(path: str) -> bytes:
    with FileSystems.open(path, compression_type="uncompressed") as file:
        return bytes(file.read())

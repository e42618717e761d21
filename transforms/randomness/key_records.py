"""What a noise key was used for, remembered under a name that follows the key, not the path of its file.

Privacy: two releases under one key and label are equal if and only if the data are (docs/privacy.md, Randomness). So a
use is remembered, and another use under the same label is refused. A key has many names: symbolic and hard links,
copies, a variable with the same bytes, a secret mount that moves at each rotation. A record is therefore named by the
key's id and by the use, which are both PRFs of the key, and its content is a MAC. Without the key a record tells that a
key was used, when, and in how many windows, and nothing else. It is kept in every place where a second use would look:

- the state directory of this user on this machine, whatever the key is called (`state_directory`);
- a directory that the operator names, on any filesystem that Beam knows;
- for a key file: its directory, that of the file behind all links and that of the name given.

A use is accepted only if no record in any of these places is of another use. Records of earlier versions, which were
named by the path of the key, are beside the key and count like the others.
"""

import contextlib
import dataclasses
import glob
import hmac
import os
import secrets
import stat
from collections.abc import Iterator, Sequence

from apache_beam.io.filesystems import FileSystems

from dpngram.accounting import ParameterError

__all__ = [
    "OtherUseError",
    "Place",
    "RecordUnreadableError",
    "create_once",
    "places",
    "recall",
    "remember",
    "state_directory",
]

STATE_VARIABLE = "DPNGRAM_STATE"
_PREFIX, _SUFFIX = "dpngram-", ".used"


class OtherUseError(Exception):
    """The key was used before, for something else."""


class RecordUnreadableError(Exception):
    """There is a record, and it cannot be read; what it says may forbid this use. The text is the kind of error."""


@dataclasses.dataclass(frozen=True)
class Place:
    """A directory with records, `dpngram-KEY_ID.USE.used`.

    Args:
        directory: on any filesystem that Beam knows.
        lasts: whether later runs find it. The state directory of a worker on another machine may be gone by then.
        named: the operator asked for it by name, so a record must be made there.
        create: whether to make the directory.
        key_file: the path of the key, for records of earlier versions beside it.
    """

    directory: str
    lasts: bool = True
    named: bool = False
    create: bool = False
    key_file: str | None = None

    def path(self, name: str) -> str:
        return str(FileSystems.join(self.directory, _PREFIX + name + _SUFFIX))


def state_directory() -> str | None:
    """The records of this user on this machine: $DPNGRAM_STATE/keys, else $XDG_STATE_HOME/dpngram/keys.

    XDG_STATE_HOME is ~/.local/state where it is not set. None if there is no home.
    """
    base = os.environ.get(STATE_VARIABLE)
    if base and not os.path.isabs(base):  # it would be another directory from every working directory
        raise ParameterError(f"{STATE_VARIABLE} must be an absolute path, got {base!r}.")
    if not base:
        base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
        if not os.path.isabs(base):  # XDG: such a value is to be ignored; ~ stays where there is no home
            base = os.path.expanduser("~/.local/state")
        if not os.path.isabs(base):
            return None
        base = os.path.join(base, "dpngram")
    return os.path.join(base, "keys")


def places(key_file: str | None, directory: str | None, *, fresh: bool, remote: bool) -> list[Place]:
    """Where uses of a key are remembered, the same order for everybody.

    Args:
        key_file: the path of the key, if it is in a file.
        directory: the place that the operator named.
        fresh: the key is for this run only; it and its record are deleted together.
        remote: workers may be on other machines, whose state directories do not last.
    """
    found: list[Place] = []
    state = None if fresh else state_directory()
    if state is not None:
        found.append(Place(state, lasts=not remote, create=True))
    if directory is not None:
        found.append(Place(directory, named=True, create=True))
    if key_file is not None:
        names = [key_file] if FileSystems.get_scheme(key_file) is not None else [os.path.realpath(key_file), key_file]
        for name in dict.fromkeys(names):
            beside = FileSystems.split(name)[0] if FileSystems.get_scheme(name) is not None else os.path.dirname(name)
            found.append(Place(str(beside), key_file=name))
    return found


def recall(where: Sequence[Place], key_id: str, use: str) -> Iterator[bytes]:
    """All records of this use that can be found."""
    for place in where:
        for path in _candidates(place, key_id, use):
            stored = _read(path)
            if stored is not None:
                yield stored


def remember(where: Sequence[Place], key_id: str, use: str, content: bytes) -> bool:
    """Writes down what a key is used for; returns whether later runs will find it.

    Looks in all places before anything is written, and writes in the order of the places: of two first uses in the same
    moment, one is stopped by what the other wrote. A use with the same content is accepted any number of times.

    Raises:
        OtherUseError: if there is a record of another use.
        RecordUnreadableError: if there is a record that cannot be read, or none can be made in a place that the
            operator named.
    """
    for stored in recall(where, key_id, use):
        _compare(stored, content)
    lasts = False
    for place in where:
        path = place.path(f"{key_id}.{use}")
        try:
            _write_once(place, path, content)
        except Exception as error:
            if place.named:
                raise RecordUnreadableError(type(error).__name__) from None
            continue
        kept = _read(path)
        if kept is not None:
            _compare(kept, content)
            lasts = lasts or place.lasts
    return lasts


def create_once(path: str, data: bytes) -> None:
    """Writes a file for its owner only, whole or not at all, unless there is one; atomic between processes."""
    temporary = f"{path}.{secrets.token_hex(8)}.tmp"
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, stat.S_IRUSR | stat.S_IWUSR)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        os.unlink(temporary)


def _compare(stored: bytes, content: bytes) -> None:
    if not hmac.compare_digest(stored, content):
        raise OtherUseError


def _candidates(place: Place, key_id: str, use: str) -> list[str]:
    """Paths that may hold a record of this use. Earlier versions named records by the key file; it may have moved."""
    paths = [place.path(f"{key_id}.{use}")]
    if place.key_file is not None:
        paths.append(f"{place.key_file}.{use}{_SUFFIX}")
        if FileSystems.get_scheme(place.directory) is None:
            paths += glob.glob(os.path.join(glob.escape(place.directory), f"*.{use}{_SUFFIX}"))
    return list(dict.fromkeys(paths))


def _read(path: str) -> bytes | None:
    """The bytes of a record; None if there is none."""
    try:
        if FileSystems.get_scheme(path) is None:
            with open(path, "rb") as file:
                return file.read()
        if not FileSystems.exists(path):
            return None
        with FileSystems.open(path, compression_type="uncompressed") as file:
            return bytes(file.read())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except Exception as error:
        if FileSystems.get_scheme(path) is None and not os.path.lexists(path):
            return None  # nor can anybody tell whether there is one: the place is closed to us
        raise RecordUnreadableError(type(error).__name__) from None


def _write_once(place: Place, path: str, content: bytes) -> None:
    if FileSystems.get_scheme(path) is None:
        if place.create:
            os.makedirs(place.directory, stat.S_IRWXU, exist_ok=True)
        if not os.path.exists(path):
            create_once(path, content)
    elif not FileSystems.exists(path):  # object stores: two first uses in the same moment are not told apart
        with FileSystems.create(path, compression_type="uncompressed") as file:
            file.write(content)

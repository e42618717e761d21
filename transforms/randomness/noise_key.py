"""The key that all noise comes from: by reference, never in the job graph, and one key for one release.

Privacy: the release is private because the noise is unknown. Whoever holds the key can subtract the noise. A key used
for two data sets is an equality test between them (same bytes if and only if same data), which composition does not
cover. So every run has a fresh key unless one is given. What a key was used for is remembered under an id of the key
(`key_records`). Noise is bound to the content: the run key is derived from the master key, the release label, the place
in the graph, the window, every setting, and a fingerprint of the data. Other data get other noise.
"""

import dataclasses
import functools
import hashlib
import json
import os
import secrets
import shlex
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from apache_beam.io.filesystems import FileSystems

from dpngram.transforms.messages import Message
from dpngram.transforms.randomness import key_records
from dpngram.transforms.randomness.prf import Prf, derive_key

__all__ = ["ALGORITHM_VERSION", "Draw", "KeyReference", "KeySource", "NoiseKeyError", "Randomness", "settings_digest"]

# From a purpose ("noise", "clip", ...) to the keyed function of one round for it.
Draw = Callable[[str], Prf]

# Goes into every derivation. Raise it with any change that alters which noise a cell gets.
ALGORITHM_VERSION = 2
KEY_BYTES = 32
_SCHEMES = ("file", "env", "gcp-secret")


class NoiseKeyError(ValueError):
    """A noise key that is missing, malformed or already used. One line, fit to show to a user."""


@dataclasses.dataclass(frozen=True)
class KeyReference:
    """Where the master key is: `file:PATH` (any Beam filesystem) or a bare path, `env:NAME`, `gcp-secret:NAME`.

    Args:
        scheme: file, env or gcp-secret.
        location: the path or the name.
        records: a directory that remembers what keys were used for, besides the places of `key_records.places`.
        fresh: the key is for one run of this process only.
        remote: workers may be on other machines.
    """

    scheme: str
    location: str
    records: str | None = None
    fresh: bool = False
    remote: bool = False

    @classmethod
    def parse(cls, text: str, records: str | None = None, *, remote: bool = False) -> "KeyReference":
        scheme, _, location = text.partition(":")
        if scheme not in _SCHEMES:
            scheme, location = "file", text
        if not location:
            raise NoiseKeyError("noise_key must be file:PATH, a path, env:NAME or gcp-secret:NAME, got an empty name.")
        if scheme == "file":
            location = _absolute(location)
        return cls(scheme, location, None if records is None else _absolute(records), remote=remote)

    def __str__(self) -> str:
        return f"{self.scheme}:{self.location}"

    def load(self) -> bytes:
        """The 32 key bytes, stored raw or as 64 hexadecimal digits."""
        if self.scheme == "env":
            stored = os.environ.get(self.location, "").encode()
            if not stored:
                raise NoiseKeyError(Message.KEY_NOT_SET.format(key=self.location))
        elif self.scheme == "gcp-secret":
            stored = _read_secret(self.location)
        else:
            stored = self._read_file()
        return _decode(stored, str(self))

    def create_if_missing(self) -> None:
        """Writes a fresh key from the operating system, readable by its owner only, unless there is one.

        One that is there must be closed to others, as ssh asks of its keys.
        """
        if self.scheme != "file":
            return
        if FileSystems.get_scheme(self.location) is None:
            try:
                if not os.path.exists(self.location):
                    key_records.create_once(self.location, secrets.token_bytes(KEY_BYTES))
                status = os.stat(self.location)
            except OSError as error:
                raise NoiseKeyError(f"noise_key: {self.location} cannot be created ({error.strerror}).") from None
            if _is_open_to_others(status):
                raise NoiseKeyError(
                    f"noise_key: {self.location} can be read or changed by others than its owner (mode "
                    f"{stat.S_IMODE(status.st_mode):04o}): chmod 600 {shlex.quote(self.location)}"
                )
        elif not FileSystems.exists(self.location):
            with FileSystems.create(self.location, compression_type="uncompressed") as file:
                file.write(secrets.token_bytes(KEY_BYTES))

    @property
    def is_remembered(self) -> bool:
        """Whether a later run will find what the key is used for, wherever its workers are."""
        return self.scheme == "file" or self.records is not None or not self.remote

    def places(self) -> list[key_records.Place]:
        """Where this worker looks for records, and makes them."""
        file = self.location if self.scheme == "file" else None
        return key_records.places(file, self.records, fresh=self.fresh, remote=self.remote)

    def shared_places(self) -> list[key_records.Place]:
        """Those of the places that all workers have, and later runs, too."""
        return [place for place in self.places() if place.lasts]

    def remember(self, key_id: str, use: str, content: str) -> bool:
        """Remembers a use of the key; False, and nothing is written, if another content is remembered under it."""
        try:
            lasts = key_records.remember(self.places(), key_id, use, content.encode())
        except key_records.OtherUseError:
            return False
        except key_records.RecordUnreadableError as error:
            raise NoiseKeyError(Message.KEY_RECORD_UNREADABLE.format(key=self.location, kind=error)) from None
        if not lasts and self.is_remembered:
            raise NoiseKeyError(Message.KEY_RECORD_NOWHERE.format(key=self.location))
        return True

    def _read_file(self) -> bytes:
        try:
            if FileSystems.get_scheme(self.location) is not None:
                with FileSystems.open(self.location, compression_type="uncompressed") as file:
                    return bytes(file.read())
            with open(self.location, "rb") as local:
                exposed, stored = _is_open_to_others(os.fstat(local.fileno())), local.read()
        except Exception as error:
            raise NoiseKeyError(Message.KEY_UNREADABLE.format(key=self.location, kind=type(error).__name__)) from None
        if exposed:
            raise NoiseKeyError(Message.KEY_OPEN_TO_OTHERS.format(key=self.location))
        return stored


@dataclasses.dataclass(frozen=True)
class Randomness:
    """What a DoFn carries to draw noise: the key's *name* and the settings, never the key."""

    key: KeyReference
    release: str
    application: str
    settings: str
    window_delay: int = 0  # milliseconds by which windows are shifted; their names in key derivation are without it

    def open(self) -> "KeySource":
        """Reads the key; called in `DoFn.setup`, on the worker."""
        return KeySource(self, self.key.load())


def settings_digest(settings: object) -> str:
    """Everything that determines the histogram besides the data, as one name; goes into every derivation."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


class KeySource:
    """An opened `Randomness`: keyed functions for each purpose, level, round and window."""

    def __init__(self, randomness: Randomness, master: bytes) -> None:
        self.randomness = randomness
        self._reference = randomness.key
        self._master = master
        self._names = (ALGORITHM_VERSION, randomness.release, randomness.application, randomness.settings)
        self._prf = functools.lru_cache(maxsize=256)(self._derive)
        # A checksum of the key that travels with the data. Workers with different keys would give one user several
        # names, so they refuse each other's blocks.
        self.check = int.from_bytes(derive_key(master, "check", *self._names)[:8], "little")
        # The name of the key in records of its uses. A PRF: without the key it says whether two keys are the same.
        self.id = derive_key(master, "id")[:16].hex()

    def digest(self, purpose: str) -> Prf:
        """For digests taken before the content is known: user ids, tokens, posts."""
        return Prf(derive_key(self._master, "digest", purpose, *self._names))

    def name(self, purpose: str, data: bytes) -> bytes:
        """A name of 16 bytes that tells nothing without the key, and is the same for all releases with this key."""
        return derive_key(self._master, "name", purpose, data)[:16]

    def names(self, purpose: str) -> Prf:
        """The same for whole columns, by another function."""
        return Prf(derive_key(self._master, "name", purpose))

    def verify(self, check: int) -> None:
        """Refuses data that a worker with another key, or with other settings, has prepared."""
        if int(check) != self.check:
            raise NoiseKeyError(Message.KEYS_DIFFER.format())

    def verify_binding(self, binding: bytes) -> None:
        """Refuses a binding that another key, or other settings, made."""
        self.verify(int.from_bytes(binding[16:], "little"))

    def prf(self, purpose: str, level: int, round_number: int, window: bytes, binding: bytes, past: int = 0) -> Prf:
        """For draws: independent for each purpose, level, round, window and content."""
        self.verify_binding(binding)
        return self._prf(purpose, level, round_number, window, binding[:16], past)

    def draws(self, level: int, round_number: int, window: bytes, binding: bytes, past: int = 0) -> Draw:
        """`prf` for one round in one window: a keyed function for each purpose."""
        return lambda purpose: self.prf(purpose, level, round_number, window, binding, past)

    def bind(self, window: bytes, fingerprint: bytes) -> bytes:
        """Refuses this key if it made another release under the same label; otherwise remembers this one.

        Gives the binding that all draws of this release need: the fingerprint, and the check of the key.
        """
        content = derive_key(self._master, "content", *self._names, window, fingerprint).hex()
        if not self._reference.remember(self.id, self._use(window), content):
            raise NoiseKeyError(Message.KEY_REUSED.format(key=self._reference.location))
        return self.binding(fingerprint)

    def start_stream(self, start: str, *, known: bool = False, shards: int = 1, counts: str = "") -> None:
        """Refuses a second start of the stream with this key and label; otherwise remembers this one.

        Privacy: how many windows a user was in is known to the state of the job alone. A start without it counts anew.
        So does one that looks for a user in another part of the state, or counts other windows or other users in it.
        With other settings the windows to come would cost something else than those that the state has counted: a user
        in W windows of either plan has spent neither of the two.

        Args:
            start: names this start. Workers that set up the same graph give the same name.
            known: an earlier start is known to the operator, and no reason to stop.
            shards: into how many parts the users of the state are cut; all starts must have the same.
            counts: what the state counts, and of whom; all starts must have the same, and the same settings.
        """
        content = derive_key(self._master, "start", start).hex()
        if not self._reference.remember(self.id, self._stream_use(), content) and not known:
            raise NoiseKeyError(Message.STREAM_STARTED.format(key=self._reference.location))
        parts = derive_key(self._master, "parts", str(shards)).hex()
        if not self._reference.remember(self.id, self._stream_use("parts"), parts):
            raise NoiseKeyError(Message.STREAM_SHARDS.format(key=self._reference.location))
        settings = derive_key(self._master, "stream settings", *self._names, counts).hex()
        if not self._reference.remember(self.id, self._stream_use("settings"), settings):
            raise NoiseKeyError(Message.STREAM_SETTINGS.format(key=self._reference.location))

    def begin_stream(self, source: str, *, again: str = "", replayed: bool = False) -> None:
        """Refuses to read a stream without its state if it is not the one that was read before; remembers what it is.

        Privacy: the same messages under the same key and settings are the same release, however often they are read.
        Other messages are not: users would be counted anew, in windows of which some were released before. The record
        is made before a message passes. A stream that was started, and whose beginning nobody wrote down, could be any.

        Args:
            source: everything that decides which messages come first, and what is in a window.
            again: names a start that is another release than those before; "": the first.
            replayed: the stream may have been started before.
        """
        self.check_stream(source, again=again, replayed=replayed)
        if not self._reference.remember(self.id, self._begin_use(again), self._source_content(source)):
            raise NoiseKeyError(Message.STREAM_DIFFERS.format(key=self._reference.location))

    def check_stream(self, source: str, *, again: str = "", replayed: bool = False) -> None:
        """As `begin_stream`, but nothing is written."""
        stored = list(key_records.recall(self._reference.places(), self.id, self._begin_use(again)))
        content = self._source_content(source).encode()
        unknown = replayed and not stored and self.was_stream_started()
        if unknown or any(one != content for one in stored):
            raise NoiseKeyError(Message.STREAM_DIFFERS.format(key=self._reference.location))

    def was_stream_started(self) -> bool:
        """Whether a start of the stream with this key and label is remembered; writes nothing."""
        return self._is_recalled(self._reference.places(), self._stream_use())

    def refuses_others(self, window: bytes | None) -> bool:
        """Whether every worker would find a record of this key and label, and so refuse other data; writes nothing.

        Args:
            window: of the release; None for the start of a stream.
        """
        use = self._stream_use() if window is None else self._use(window)
        return self._is_recalled(self._reference.shared_places(), use)

    def _is_recalled(self, places: Sequence[key_records.Place], use: str) -> bool:
        return next(key_records.recall(places, self.id, use), None) is not None

    def _use(self, window: bytes) -> str:
        _, release, application, _ = self._names
        return derive_key(self._master, "use", release, application, window)[:16].hex()

    def _stream_use(self, kind: str = "stream") -> str:
        _, release, application, _ = self._names
        return derive_key(self._master, kind, release, application)[:16].hex()

    def _begin_use(self, again: str) -> str:
        return derive_key(self._master, "begin", self._stream_use(), again)[:16].hex()

    def _source_content(self, source: str) -> str:
        return derive_key(self._master, "source", source).hex()

    def seal(self, name: str, binding: bytes, data: bytes) -> bytes:
        """A MAC of these bytes, for this key, these settings, this content and this name."""
        self.verify_binding(binding)
        return derive_key(self._master, "seal", *self._names, name, binding[:16], hashlib.sha256(data).digest())

    def binding(self, fingerprint: bytes) -> bytes:
        return fingerprint + self.check.to_bytes(8, "little")

    def _derive(self, purpose: str, level: int, round_number: int, window: bytes, fingerprint: bytes, past: int) -> Prf:
        run = derive_key(self._master, "run", *self._names, window, fingerprint)
        names = (purpose, level, round_number) if not past else (purpose, level, round_number, past)
        return Prf(derive_key(run, "draw", *names))


def _absolute(path: str) -> str:
    """Workers may have another working directory."""
    return str(Path(path).absolute()) if FileSystems.get_scheme(path) is None else path


def _is_open_to_others(status: os.stat_result) -> bool:
    """Whether others than the owner may read or change a file.

    A secret mount belongs to root, and its reader may be one of a group: a file of another owner may be readable by its
    group.
    """
    allowed = stat.S_IRWXU if status.st_uid == os.geteuid() else stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP
    return bool(stat.S_IMODE(status.st_mode) & 0o777 & ~allowed)


def _decode(stored: bytes, name: str) -> bytes:
    if len(stored) == KEY_BYTES:
        return stored
    try:
        decoded = bytes.fromhex(stored.decode("ascii"))
    except ValueError:
        decoded = b""
    if len(decoded) != KEY_BYTES:
        raise NoiseKeyError(Message.KEY_MALFORMED.format(key=name, size=len(stored)))
    return decoded


@functools.lru_cache(maxsize=8)
def _read_secret(name: str) -> bytes:
    try:
        from google.cloud import secretmanager
    except ImportError:
        raise NoiseKeyError(Message.SECRETS_NEED_PACKAGE.format()) from None
    version = name if "/versions/" in name else f"{name}/versions/latest"
    try:
        return bytes(secretmanager.SecretManagerServiceClient().access_secret_version(name=version).payload.data)
    except Exception as error:
        raise NoiseKeyError(Message.SECRET_UNREADABLE.format(key=name, kind=type(error).__name__)) from None

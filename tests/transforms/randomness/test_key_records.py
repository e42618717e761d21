"""One key, one release: whatever the key is called, and wherever it is read from."""

import os
import shutil
import stat
import threading

import pytest
from helpers.keys import write_key

from dpngram.accounting import ParameterError
from dpngram.transforms.randomness import key_records
from dpngram.transforms.randomness.key_records import Place, places, recall, remember, state_directory
from dpngram.transforms.randomness.noise_key import ALGORITHM_VERSION, KeyReference, NoiseKeyError, Randomness
from dpngram.transforms.randomness.prf import derive_key

KEY = bytes(range(32))
FIRST, OTHER = b"f" * 16, b"g" * 16


def bind(reference, fingerprint=FIRST, release=""):
    """What a worker does in `BindRelease`, with the key read from where the reference says."""
    if isinstance(reference, str):
        reference = KeyReference.parse(reference)
    return Randomness(reference, release, "ExtractNgrams", "{}").open().bind(b"global", fingerprint)


def forget_state(monkeypatch, tmp_path, name="elsewhere"):
    """As on another machine: only what is beside the key is known."""
    monkeypatch.setenv("DPNGRAM_STATE", str(tmp_path / name))


def symlink(tmp_path, monkeypatch):
    (tmp_path / "b" / "link").symlink_to(tmp_path / "a" / "k")
    return str(tmp_path / "b" / "link")


def symlink_elsewhere(tmp_path, monkeypatch):
    """Found beside the file behind the link, also from another machine."""
    forget_state(monkeypatch, tmp_path)
    return symlink(tmp_path, monkeypatch)


def hard_link(tmp_path, monkeypatch):
    os.link(tmp_path / "a" / "k", tmp_path / "b" / "hard")
    return str(tmp_path / "b" / "hard")


def copy(tmp_path, monkeypatch):
    shutil.copy(tmp_path / "a" / "k", tmp_path / "b" / "copy")
    return str(tmp_path / "b" / "copy")


def copy_beside(tmp_path, monkeypatch):
    """In the same directory a copy is known on every machine."""
    forget_state(monkeypatch, tmp_path)
    shutil.copy(tmp_path / "a" / "k", tmp_path / "a" / "copy")
    return str(tmp_path / "a" / "copy")


def renamed(tmp_path, monkeypatch):
    forget_state(monkeypatch, tmp_path)
    (tmp_path / "a" / "k").rename(tmp_path / "a" / "other name")
    return str(tmp_path / "a" / "other name")


def hexadecimal(tmp_path, monkeypatch):
    return str(write_key(tmp_path / "b" / "hex", KEY.hex().encode()))


def variable(tmp_path, monkeypatch):
    monkeypatch.setenv("KEY_OF_TESTS", KEY.hex())
    return "env:KEY_OF_TESTS"


def secret(tmp_path, monkeypatch):
    monkeypatch.setattr("dpngram.transforms.randomness.noise_key._read_secret", lambda _name: KEY)
    return "gcp-secret:projects/p/secrets/s/versions/1"


NAMES = (
    symlink, symlink_elsewhere, hard_link, copy, copy_beside, renamed, hexadecimal, variable, secret
)  # fmt: skip


@pytest.fixture
def key(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    return str(write_key(tmp_path / "a" / "k", KEY))


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name.__name__)
def test_the_record_follows_the_key(tmp_path, monkeypatch, key, name):
    """Under another name another use is refused, the same use is accepted, and another label is another use.

    What is refused comes first: an accepted use would itself be remembered under the other name.
    """
    binding = bind(key)
    other = name(tmp_path, monkeypatch)
    with pytest.raises(NoiseKeyError, match="already used"):
        bind(other, OTHER)
    assert bind(other) == binding
    assert bind(other, OTHER, release="next")


@pytest.mark.parametrize("name", [variable, secret], ids=lambda name: name.__name__)
def test_a_use_without_a_file_counts_for_the_file(tmp_path, monkeypatch, key, name):
    bind(name(tmp_path, monkeypatch))
    with pytest.raises(NoiseKeyError, match="already used"):
        bind(key, OTHER)
    bind(key)


def test_a_secret_mount_that_moves(tmp_path, monkeypatch):
    """Rotation: the file's directory is replaced, and the name stays. The first key comes back after the second."""
    mount = tmp_path / "mount"
    mount.mkdir()

    def rotate(version, key):
        (mount / version).mkdir()
        write_key(mount / version / "key", key)
        (mount / version / "key").chmod(0o400)
        (mount / "next").symlink_to(version)
        os.replace(mount / "next", mount / "..data")
        return str(mount / "key")

    (mount / "key").symlink_to("..data/key")
    name = rotate("..1", KEY)
    bind(name)
    rotate("..2", KEY[::-1])
    bind(name, OTHER)  # another key
    shutil.rmtree(mount / "..1")
    rotate("..3", KEY)
    forget_state(monkeypatch, tmp_path)  # what is beside the name is enough
    with pytest.raises(NoiseKeyError, match="already used"):
        bind(name, OTHER)
    bind(name)


def test_a_mount_that_cannot_be_written(tmp_path, monkeypatch, key):
    """A key is read from a directory without write permission; its record is in the state directory."""
    monkeypatch.setattr(key_records, "_write_once", _closed(tmp_path / "a"))
    bind(key)
    assert not list((tmp_path / "a").glob("*.used"))
    with pytest.raises(NoiseKeyError, match="already used"):
        bind(key, OTHER)
    bind(key)
    remote = KeyReference.parse(key, remote=True)  # state of a worker elsewhere does not last
    with pytest.raises(NoiseKeyError, match="must be remembered"):
        bind(remote, release="next")
    bind(KeyReference.parse(key, str(tmp_path / "kept"), remote=True), release="next")
    forget_state(monkeypatch, tmp_path)
    with pytest.raises(NoiseKeyError, match="already used"):
        bind(KeyReference.parse(key, str(tmp_path / "kept"), remote=True), OTHER, release="next")


def _closed(*directories):
    """Tests may run as root, for whom no directory is closed."""
    write = key_records._write_once

    def refuse(place, path, content):
        if place.directory in map(str, directories):
            raise PermissionError(13, "Permission denied")
        write(place, path, content)

    return refuse


def test_no_place_for_a_record(tmp_path, monkeypatch, key):
    """A key file is refused, and a variable of a local run; not a variable on other machines, which launch warns of."""
    (tmp_path / "file").write_text("")
    forget_state(monkeypatch, tmp_path, "file")
    monkeypatch.setattr(key_records, "_write_once", _closed(tmp_path / "a"))
    for name in (key, variable(tmp_path, monkeypatch)):
        with pytest.raises(NoiseKeyError, match=r"neither beside the key nor .* --key_records"):
            bind(name)
    bind(KeyReference.parse("env:KEY_OF_TESTS", remote=True))
    assert not KeyReference.parse("env:KEY_OF_TESTS", remote=True).is_remembered


def test_a_named_directory_must_be_usable(tmp_path, key):
    (tmp_path / "file").write_text("")
    with pytest.raises(NoiseKeyError, match="cannot be read or kept"):
        bind(KeyReference.parse(key, str(tmp_path / "file")))


def test_a_record_that_cannot_be_read_stops_a_use(tmp_path, monkeypatch, key):
    """It may be of another use."""
    bind(key)
    forget_state(monkeypatch, tmp_path)
    (record,) = (tmp_path / "a").glob("*.used")
    record.unlink()
    record.mkdir()
    with pytest.raises(NoiseKeyError, match=r"cannot be read or kept on this worker \(IsADirectoryError\)"):
        bind(key)


@pytest.mark.parametrize("moved", [False, True])
def test_records_of_earlier_versions_count(tmp_path, key, moved):
    """They were named by the path of the key: PATH.USE.used."""
    use = derive_key(KEY, "use", "", "ExtractNgrams", b"global")[:16].hex()
    content = derive_key(KEY, "content", ALGORITHM_VERSION, "", "ExtractNgrams", "{}", b"global", FIRST).hex()
    (tmp_path / "a" / f"k.{use}.used").write_text(content)
    if moved:
        (tmp_path / "a" / "k").rename(tmp_path / "a" / "now[1]*")
        key = str(tmp_path / "a" / "now[1]*")
    with pytest.raises(NoiseKeyError, match="already used"):
        bind(key, OTHER)
    bind(key)


def test_what_a_record_shows(tmp_path, key):
    """Names and contents are PRFs of the key: neither the key nor the fingerprint, and other keys have other ids."""
    bind(key)
    (record,) = (tmp_path / "a").glob("*.used")
    key_id, use, _ = record.name.split(".")
    assert key_id == "dpngram-" + derive_key(KEY, "id")[:16].hex()
    assert len(use) == 32
    said = record.name.encode() + record.read_bytes()
    for private in (KEY, KEY.hex().encode(), FIRST, FIRST.hex().encode()):
        assert private not in said
    state = state_directory()
    assert os.listdir(state) == [record.name]
    assert stat.S_IMODE(os.stat(state).st_mode) == 0o700
    for path in (record, os.path.join(state, record.name)):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_a_fresh_key_leaves_no_state(tmp_path, key):
    bind(KeyReference("file", key, fresh=True))
    assert not os.path.exists(state_directory())
    assert len(list((tmp_path / "a").glob("*.used"))) == 1


def test_the_state_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("DPNGRAM_STATE", str(tmp_path / "mine"))
    assert state_directory() == str(tmp_path / "mine" / "keys")
    monkeypatch.setenv("DPNGRAM_STATE", "mine")
    with pytest.raises(ParameterError, match="DPNGRAM_STATE must be an absolute path"):
        state_directory()
    monkeypatch.delenv("DPNGRAM_STATE")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert state_directory() == str(tmp_path / "xdg" / "dpngram" / "keys")
    for ignored in ("", "relative"):
        monkeypatch.setenv("XDG_STATE_HOME", ignored)
        assert state_directory() == str(tmp_path / ".local" / "state" / "dpngram" / "keys")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # nobody's home
    assert state_directory() is None
    assert places(None, None, fresh=False, remote=False) == []


def test_places_of_a_key_in_a_bucket():
    found = places("gs://bucket/keys/k", "gs://bucket/kept", fresh=False, remote=True)
    assert [place.directory for place in found[1:]] == ["gs://bucket/kept", "gs://bucket/keys"]
    assert [place.lasts for place in found] == [False, True, True]
    assert found[2].path("id.use") == "gs://bucket/keys/dpngram-id.use.used"


def test_a_refused_use_leaves_nothing(tmp_path):
    """Not even in places that did not know of the first use."""
    first, second = Place(str(tmp_path / "1"), create=True), Place(str(tmp_path / "2"), create=True)
    assert remember([second], "id", "use", b"a")
    with pytest.raises(key_records.OtherUseError):
        remember([first, second], "id", "use", b"b")
    assert not (tmp_path / "1").exists()
    assert list(recall([first, second], "id", "use")) == [b"a"]


def test_two_first_uses_in_many_places_do_not_both_pass(tmp_path):
    for attempt in range(30):
        where = [Place(str(tmp_path / f"{attempt}-{number}"), create=True) for number in range(3)]
        passed, gate = [], threading.Barrier(2)

        def use(content, where=where, passed=passed, gate=gate):
            gate.wait()
            try:
                remember(where, "id", "use", content)
                passed.append(content)
            except key_records.OtherUseError:
                pass

        threads = [threading.Thread(target=use, args=(content,)) for content in (b"a", b"b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(passed) == 1
        assert set(recall(where, "id", "use")) == set(passed)

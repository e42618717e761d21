"""Keys by reference: where they come from, who may read them, and that one is for one release."""

import os
import stat
import threading

import numpy as np
import pytest
from helpers.keys import write_key

from dpngram.transforms.randomness import key_records
from dpngram.transforms.randomness.noise_key import KeyReference, KeySource, NoiseKeyError, Randomness


def test_references(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert KeyReference.parse("env:KEY") == KeyReference("env", "KEY")
    assert KeyReference.parse("gcp-secret:projects/p/secrets/s") == KeyReference("gcp-secret", "projects/p/secrets/s")
    assert (
        KeyReference.parse("a.key") == KeyReference.parse("file:a.key") == KeyReference("file", str(tmp_path / "a.key"))
    )
    assert KeyReference.parse("file:gs://bucket/a.key").location == "gs://bucket/a.key"
    assert KeyReference.parse("gs://bucket/a.key").location == "gs://bucket/a.key"
    for empty in ("", "file:", "env:"):
        with pytest.raises(NoiseKeyError, match="noise_key must be"):
            KeyReference.parse(empty)


def test_a_fresh_key_is_for_its_owner_only_and_made_once(tmp_path):
    reference = KeyReference.parse(str(tmp_path / "new.key"))
    reference.create_if_missing()
    key = reference.load()
    assert len(key) == 32
    assert stat.S_IMODE(os.stat(reference.location).st_mode) == 0o600
    reference.create_if_missing()
    assert reference.load() == key
    other = KeyReference.parse(str(tmp_path / "other.key"))
    other.create_if_missing()
    assert other.load() != key


def test_raw_bytes_and_hexadecimal_digits(monkeypatch, tmp_path):
    key = bytes(range(32))
    write_key(tmp_path / "hex", key.hex().encode() + b"\n")
    assert KeyReference.parse(str(tmp_path / "hex")).load() == key
    monkeypatch.setenv("DPNGRAM_TEST_KEY", key.hex())
    assert KeyReference.parse("env:DPNGRAM_TEST_KEY").load() == key


@pytest.mark.parametrize("stored", [b"", b"short", b"g" * 64, b"0" * 63, bytes(33)])
def test_malformed_keys_are_refused_without_being_shown(tmp_path, stored):
    write_key(tmp_path / "bad", stored)
    with pytest.raises(NoiseKeyError, match="must hold 32 bytes or 64") as caught:
        KeyReference.parse(str(tmp_path / "bad")).load()
    assert not stored or stored.decode() not in str(caught.value)


def test_missing_keys_say_so(tmp_path):
    with pytest.raises(NoiseKeyError, match="DPNGRAM_NO_SUCH is not set"):
        KeyReference.parse("env:DPNGRAM_NO_SUCH").load()
    with pytest.raises(NoiseKeyError, match="cannot be read on this worker"):
        KeyReference.parse(str(tmp_path / "none")).load()
    with pytest.raises(NoiseKeyError, match="cannot be created"):
        KeyReference.parse(str(tmp_path / "no" / "dir.key")).create_if_missing()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o604, 0o602, 0o601, 0o666, 0o700 | 0o040])
def test_a_key_that_is_open_to_others_is_refused(tmp_path, mode):
    """At launch, with the command that helps, and on a worker."""
    path = write_key(tmp_path / "my key", b"k" * 32)
    reference = KeyReference.parse(str(path))
    path.chmod(mode)
    with pytest.raises(NoiseKeyError, match=rf"mode {mode:04o}\): chmod 600 '{path}'$"):
        reference.create_if_missing()
    with pytest.raises(NoiseKeyError, match="can be read or changed by others than its owner on this worker"):
        reference.load()
    for closed in (0o600, 0o400, 0o700):
        path.chmod(closed)
        reference.create_if_missing()
        assert reference.load() == b"k" * 32


@pytest.mark.parametrize(
    ("mode", "accepted"), [(0o440, True), (0o400, True), (0o640, True), (0o444, False), (0o644, False), (0o460, False)]
)
def test_a_secret_mount_of_another_owner(tmp_path, monkeypatch, mode, accepted):
    """It belongs to root, and its reader is one of a group: the group may read it, and nobody else."""
    path = write_key(tmp_path / "k", b"k" * 32)
    path.chmod(mode)
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(path).st_uid + 1)
    if accepted:
        assert KeyReference.parse(str(path)).load() == b"k" * 32
    else:
        with pytest.raises(NoiseKeyError, match="can be read or changed by others"):
            KeyReference.parse(str(path)).load()


def test_a_key_in_a_directory_that_cannot_be_written(tmp_path, monkeypatch):
    """A key that is there is read; nothing is written to make sure."""
    path = write_key(tmp_path / "k", b"k" * 32)
    monkeypatch.setattr(key_records, "create_once", lambda *_: pytest.fail("must not write"))
    KeyReference.parse(str(path)).create_if_missing()


def test_a_stream_is_started_once(tmp_path):
    keys = source(tmp_path / "k")
    assert not keys.was_stream_started()
    keys.start_stream("first")
    keys.start_stream("first")  # another worker, or the same one again
    assert keys.was_stream_started()
    with pytest.raises(NoiseKeyError, match=r"a stream was started with .* before"):
        source(tmp_path / "k").start_stream("second")
    with pytest.raises(NoiseKeyError, match=r"a stream was started with .* before"):
        source(tmp_path / "k", settings="[]").start_stream("second")
    source(tmp_path / "k").start_stream("second", known=True)
    with pytest.raises(NoiseKeyError, match="another number of --shards"):  # it would find no user in its state
        source(tmp_path / "k").start_stream("second", known=True, shards=2)
    for changed in (source(tmp_path / "k", settings="[]"), source(tmp_path / "k")):  # another plan; other windows
        with pytest.raises(NoiseKeyError, match="with other settings, other windows or another user field"):
            changed.start_stream("second", known=True, counts="" if changed.randomness.settings == "[]" else "hours")
    source(tmp_path / "k", release="next").start_stream("second")
    source(tmp_path / "k", application="B").start_stream("second")
    source(tmp_path / "k").bind(b"0:10", b"f" * 16)
    source(tmp_path / "k").bind(b"global", b"g" * 16)  # a record of a start is none of a window


def source(path, release="", settings="{}", application="A"):
    return KeySource(Randomness(KeyReference.parse(str(path)), release, application, settings), b"k" * 32)


def test_one_key_one_release(tmp_path):
    path = tmp_path / "k"
    source(path).bind(b"global", b"f" * 16)
    source(path).bind(b"global", b"f" * 16)
    for changed in ({"settings": "{1}"},):
        with pytest.raises(NoiseKeyError, match="already used"):
            source(path, **changed).bind(b"global", b"f" * 16)
    with pytest.raises(NoiseKeyError, match="already used"):
        source(path).bind(b"global", b"g" * 16)
    source(path, release="next").bind(b"global", b"g" * 16)
    source(path, application="B").bind(b"global", b"g" * 16)
    source(path).bind(b"0:10", b"g" * 16)
    records = [file.read_bytes() for file in tmp_path.iterdir()]
    assert len(records) == 4
    assert all(b"f" * 16 not in record and b"g" * 16 not in record for record in records)


def test_draws_differ_in_every_name(tmp_path):
    base = {"purpose": "noise", "level": 2, "round_number": 0, "window": b"global"}
    changes = [
        {},
        {"purpose": "clip"},
        {"level": 3},
        {"round_number": 1},
        {"window": b"0:1"},
    ]
    ids = np.arange(4, dtype=np.uint64)

    def draw(keys, fingerprint=b"f" * 16, **change):
        return keys.prf(**{**base, **change}, binding=keys.binding(fingerprint)).blocks(ids, 0).tobytes()

    draws = [draw(source(tmp_path / "k"), **change) for change in changes]
    draws.append(draw(source(tmp_path / "k"), fingerprint=b"g" * 16))
    for change in ({"release": "x"}, {"settings": "[]"}, {"application": "B"}):
        draws.append(draw(source(tmp_path / "k", **change)))
    assert len(set(draws)) == len(draws)


def test_a_stream_read_once_more(tmp_path):
    """Only if it was written down what it was, and it is the same."""
    source(tmp_path / "k").begin_stream("these")
    source(tmp_path / "k").start_stream("first")
    source(tmp_path / "k").begin_stream("these")  # the engine starts it again
    source(tmp_path / "k").begin_stream("these", replayed=True)
    for replayed in (False, True):
        with pytest.raises(NoiseKeyError, match="cannot be read once more as the same release"):
            source(tmp_path / "k").begin_stream("those", replayed=replayed)
    source(tmp_path / "k").begin_stream("those", again="name")
    source(tmp_path / "k", release="next").start_stream("first")
    with pytest.raises(NoiseKeyError, match="cannot be read once more as the same release"):
        source(tmp_path / "k", release="next").begin_stream("these", replayed=True)
    source(tmp_path / "k", release="third").begin_stream("these", replayed=True)  # the first start


def test_two_first_uses_at_once_do_not_both_pass(tmp_path):
    for attempt in range(40):
        path, passed, gate = tmp_path / f"k{attempt}", [], threading.Barrier(2)

        def use(fingerprint, path=path, passed=passed, gate=gate):
            keys = source(path)
            gate.wait()
            try:
                keys.bind(b"global", fingerprint)
                passed.append(fingerprint)
            except NoiseKeyError:
                pass

        threads = [threading.Thread(target=use, args=(letter * 16,)) for letter in (b"f", b"g")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(passed) == 1


def test_a_worker_with_another_key_is_found_out():
    from dpngram.transforms.document_form import DocumentForm, collect_documents
    from dpngram.transforms.group_users import group_users
    from dpngram.transforms.prepare_posts import PostDigests, block_posts
    from dpngram.transforms.testing import key_source
    from dpngram.transforms.tokenizers import make_tokenizer

    blocks, _ = collect_documents([("u", "a b")], DocumentForm())
    ours, theirs = key_source(b"a" * 32), key_source(b"b" * 32)
    pieces = [block_posts(blocks[0], make_tokenizer("words"), PostDigests.of(keys))[0] for keys in (ours, theirs)]
    with pytest.raises(NoiseKeyError, match="workers hold different keys"):
        group_users(pieces, user_per_document=False, source=ours)
    with pytest.raises(NoiseKeyError, match="workers hold different keys"):
        ours.prf("noise", 1, 0, b"global", theirs.binding(bytes(16)))
    with pytest.raises(ValueError, match="documents must have users"):
        group_users(pieces[:1], user_per_document=True, source=ours)

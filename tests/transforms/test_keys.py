"""Keys by reference: where they come from, who may read them, and that one is for one release."""

import os
import stat

import pytest

from dpngram.transforms.keys import KeyProblem, KeyReference, KeySource, Randomness


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
        with pytest.raises(KeyProblem, match="noise_key must be"):
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
    (tmp_path / "hex").write_text(key.hex() + "\n")
    assert KeyReference.parse(str(tmp_path / "hex")).load() == key
    monkeypatch.setenv("DPNGRAM_TEST_KEY", key.hex())
    assert KeyReference.parse("env:DPNGRAM_TEST_KEY").load() == key


@pytest.mark.parametrize("stored", [b"", b"short", b"g" * 64, b"0" * 63, bytes(33)])
def test_malformed_keys_are_refused_without_being_shown(tmp_path, stored):
    (tmp_path / "bad").write_bytes(stored)
    with pytest.raises(KeyProblem, match="must hold 32 bytes or 64") as caught:
        KeyReference.parse(str(tmp_path / "bad")).load()
    assert not stored or stored.decode() not in str(caught.value)


def test_missing_keys_say_so(tmp_path):
    with pytest.raises(KeyProblem, match="DPNGRAM_NO_SUCH is not set"):
        KeyReference.parse("env:DPNGRAM_NO_SUCH").load()
    with pytest.raises(KeyProblem, match="cannot be read on this worker"):
        KeyReference.parse(str(tmp_path / "none")).load()
    with pytest.raises(KeyProblem, match="cannot be created"):
        KeyReference.parse(str(tmp_path / "no" / "dir.key")).create_if_missing()


def source(path, release="", settings="{}", application="A"):
    return KeySource(Randomness(KeyReference.parse(str(path)), release, application, settings), b"k" * 32)


def test_one_key_one_release(tmp_path):
    path = tmp_path / "k"
    source(path).bind(b"global", b"f" * 16)
    source(path).bind(b"global", b"f" * 16)
    for changed in ({"settings": "{1}"},):
        with pytest.raises(KeyProblem, match="already used"):
            source(path, **changed).bind(b"global", b"f" * 16)
    with pytest.raises(KeyProblem, match="already used"):
        source(path).bind(b"global", b"g" * 16)
    source(path, release="next").bind(b"global", b"g" * 16)
    source(path, application="B").bind(b"global", b"g" * 16)
    source(path).bind(b"0:10", b"g" * 16)
    records = [file.read_bytes() for file in tmp_path.iterdir()]
    assert len(records) == 4
    assert all(b"f" * 16 not in record and b"g" * 16 not in record for record in records)


def test_draws_differ_in_every_name(tmp_path):
    base = {"purpose": "noise", "level": 2, "round_number": 0, "window": b"global", "fingerprint": b"f" * 16}
    changes = [
        {},
        {"purpose": "clip"},
        {"level": 3},
        {"round_number": 1},
        {"window": b"0:1"},
        {"fingerprint": b"g" * 16},
    ]
    import numpy as np

    ids = np.arange(4, dtype=np.uint64)
    draws = [source(tmp_path / "k").prf(**{**base, **change}).words(ids, 0).tobytes() for change in changes]
    draws += [
        source(tmp_path / "k", **change).prf(**base).words(ids, 0).tobytes()
        for change in ({"release": "x"}, {"settings": "[]"}, {"application": "B"})
    ]
    assert len(set(draws)) == len(draws)

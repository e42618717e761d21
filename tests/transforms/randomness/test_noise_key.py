"""Keys by reference: where they come from, who may read them, and that one is for one release."""

import os
import stat
import threading

import numpy as np
import pytest

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
    (tmp_path / "hex").write_text(key.hex() + "\n")
    assert KeyReference.parse(str(tmp_path / "hex")).load() == key
    monkeypatch.setenv("DPNGRAM_TEST_KEY", key.hex())
    assert KeyReference.parse("env:DPNGRAM_TEST_KEY").load() == key


@pytest.mark.parametrize("stored", [b"", b"short", b"g" * 64, b"0" * 63, bytes(33)])
def test_malformed_keys_are_refused_without_being_shown(tmp_path, stored):
    (tmp_path / "bad").write_bytes(stored)
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

"""Which runs are one release, for a ledger."""

import pytest
from helpers.keys import write_key

from dpngram.pipelines.launch.ledger_flags import release_id

SETTINGS = {"plan": {"epsilon": 1}, "tokenizer": "words"}


@pytest.fixture
def key(tmp_path):
    write_key(tmp_path / "key", b"k" * 32)
    return str(tmp_path / "key")


def test_the_same_key_label_and_settings_are_one_release(key, tmp_path, monkeypatch):
    def named(key=key, release="", settings=SETTINGS, records=None, remote=False):
        return release_id(key, records, release, settings, remote=remote)

    same = named()
    assert same is not None
    write_key(tmp_path / "copy", b"k" * 32)
    monkeypatch.setenv("A_KEY", (b"k" * 32).hex())
    write_key(tmp_path / "other", b"x" * 32)
    assert {named(), named(f"file:{key}"), named(tmp_path.joinpath("copy").as_posix()), named("env:A_KEY")} == {same}
    assert named(remote=True) == same  # the record is beside the key
    others = [named(str(tmp_path / "other")), named(release="b"), named(settings={**SETTINGS, "tokenizer": "x"})]
    others.append(release_id(key, None, "", SETTINGS, remote=False, windows=True))  # records are kept for each window
    assert len({same, *others}) == 5


def test_what_nothing_remembers_is_a_new_release_each_time(key, tmp_path, monkeypatch):
    monkeypatch.setenv("A_KEY", (b"k" * 32).hex())
    assert release_id(None, None, "", SETTINGS, remote=False) is None  # a fresh key
    assert release_id("env:A_KEY", None, "", SETTINGS, remote=True) is None  # workers keep nothing
    assert release_id("env:A_KEY", str(tmp_path), "", SETTINGS, remote=True) is not None
    assert release_id("gcp-secret:projects/p/secrets/s/versions/1", None, "", SETTINGS, remote=False) is None
    assert release_id("env:NO_SUCH_KEY", None, "", SETTINGS, remote=False) is None
    assert release_id(str(tmp_path / "missing"), None, "", SETTINGS, remote=False) is None
    assert not (tmp_path / "missing").exists()

"""Which runs are one release, for a ledger."""

import pytest
from helpers.keys import write_key

from dpngram.pipelines.launch.ledger_flags import EXTRACT_LABEL, name_release
from dpngram.transforms.randomness.noise_key import KeyReference, NoiseKeyError, Randomness

SETTINGS = {"plan": {"epsilon": 1}, "tokenizer": "words"}


@pytest.fixture
def key(tmp_path):
    write_key(tmp_path / "key", b"k" * 32)
    return str(tmp_path / "key")


def test_the_same_key_label_and_settings_are_one_release(key, tmp_path, monkeypatch):
    def named(key=key, release="", settings=SETTINGS, records=None, remote=False):
        return name_release(key, records, release, settings, remote=remote).id

    same = named()
    assert same is not None
    write_key(tmp_path / "copy", b"k" * 32)
    monkeypatch.setenv("A_KEY", (b"k" * 32).hex())
    write_key(tmp_path / "other", b"x" * 32)
    assert {named(), named(f"file:{key}"), named(tmp_path.joinpath("copy").as_posix()), named("env:A_KEY")} == {same}
    assert named(remote=True) == same  # the record is beside the key
    others = [named(str(tmp_path / "other")), named(release="b"), named(settings={**SETTINGS, "tokenizer": "x"})]
    others.append(name_release(key, None, "", SETTINGS, remote=False, windows=True).id)  # one record for each window
    assert len({same, *others}) == 5


def test_what_nothing_remembers_is_a_new_release_each_time(key, tmp_path, monkeypatch):
    monkeypatch.setenv("A_KEY", (b"k" * 32).hex())
    assert name_release(None, None, "", SETTINGS, remote=False) is None  # a fresh key
    assert name_release("env:A_KEY", None, "", SETTINGS, remote=True) is None  # workers keep nothing
    assert name_release("env:A_KEY", str(tmp_path), "", SETTINGS, remote=True) is not None
    assert name_release("gcp-secret:projects/p/secrets/s/versions/1", None, "", SETTINGS, remote=False) is None
    assert name_release("env:NO_SUCH_KEY", None, "", SETTINGS, remote=False) is None
    assert name_release(str(tmp_path / "missing"), None, "", SETTINGS, remote=False) is None
    assert not (tmp_path / "missing").exists()


def use(reference, fingerprint=b"0" * 16):
    """What a run leaves behind: the record of its key."""
    Randomness(reference, "", EXTRACT_LABEL, "any settings").open().bind(b"global", fingerprint)


def test_only_a_record_that_is_there_now_makes_a_repetition(key, tmp_path, monkeypatch):
    """A container has the key, and no record of what it was used for: its run may be of other data."""
    monkeypatch.setenv("A_KEY", (b"k" * 32).hex())
    monkeypatch.setenv("DPNGRAM_STATE", str(tmp_path / "monday"))
    name = name_release("env:A_KEY", None, "", SETTINGS, remote=False)
    assert not name.repeats
    use(KeyReference.parse("env:A_KEY"))
    assert name_release("env:A_KEY", None, "", SETTINGS, remote=False) == (name.id, True)
    assert not name_release("env:A_KEY", None, "b", SETTINGS, remote=False).repeats
    assert not name_release("env:A_KEY", None, "", SETTINGS, remote=False, windows=True).repeats
    with pytest.raises(NoiseKeyError, match="already used"):
        use(KeyReference.parse("env:A_KEY"), b"1" * 16)
    monkeypatch.setenv("DPNGRAM_STATE", str(tmp_path / "tuesday"))
    assert name_release("env:A_KEY", None, "", SETTINGS, remote=False) == (name.id, False)
    use(KeyReference.parse("env:A_KEY"), b"1" * 16)  # nothing refuses it there


def test_workers_elsewhere_do_not_see_the_state_of_this_machine(key, tmp_path, monkeypatch):
    monkeypatch.setenv("DPNGRAM_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("A_KEY", (b"k" * 32).hex())
    use(KeyReference.parse("env:A_KEY"))
    assert name_release("env:A_KEY", None, "", SETTINGS, remote=False).repeats
    shared, empty = str(tmp_path / "shared"), str(tmp_path / "empty")
    use(KeyReference.parse("env:A_KEY", shared, remote=True))
    assert name_release("env:A_KEY", shared, "", SETTINGS, remote=True).repeats
    assert not name_release("env:A_KEY", empty, "", SETTINGS, remote=True).repeats
    assert not name_release(key, None, "", SETTINGS, remote=True).repeats  # beside the key there is none yet

"""A file is there with all of its bytes, or not at all; a private one is its owner's only."""

import os
import stat

import pytest

from dpngram.transforms import whole_files
from dpngram.transforms.whole_files import make_private_directory, read_whole, write_whole


@pytest.fixture
def _open_to_all():
    """Nothing is hidden by the umask."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("_open_to_all")
def test_private_from_the_first_byte_on(tmp_path, monkeypatch):
    """Also under its other name, while it is written; and if it replaces a file that all could read."""
    path, seen = tmp_path / "new" / "file", []
    rename = whole_files.FileSystems.rename

    def watched(sources, targets):
        seen.append(mode(path.parent / os.path.basename(sources[0])))
        rename(sources, targets)

    monkeypatch.setattr(whole_files.FileSystems, "rename", watched)
    write_whole(str(path), b"secret", private=True)
    path.chmod(0o644)
    write_whole(str(path), b"another", private=True)
    assert seen == [0o600, 0o600]
    assert mode(path) == 0o600
    assert mode(path.parent) == 0o700
    assert read_whole(str(path)) == b"another"
    write_whole(str(path.with_name("open")), b"for all")
    assert mode(path.with_name("open")) == 0o666


@pytest.mark.usefixtures("_open_to_all")
def test_a_directory_of_somebody_elses_keeps_its_mode(tmp_path):
    (tmp_path / "there").mkdir()
    make_private_directory(str(tmp_path / "there"))
    assert mode(tmp_path / "there") == 0o777
    make_private_directory(str(tmp_path / "a" / "b"))
    assert mode(tmp_path / "a" / "b") == 0o700


def test_there_and_back(tmp_path):
    path = str(tmp_path / "file")
    write_whole(path, b"first")
    write_whole(path, b"second, longer")
    assert read_whole(path) == b"second, longer"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def broken(_sources, _targets):
        raise OSError("full")

    write_whole(str(tmp_path / "file"), b"old")
    monkeypatch.setattr(whole_files.FileSystems, "rename", broken)
    with pytest.raises(OSError, match="full"):
        write_whole(str(tmp_path / "file"), b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"old"}

"""A file is there with all of its bytes, or not at all."""

import pytest

from dpngram.transforms import whole_files
from dpngram.transforms.whole_files import read_whole, write_whole


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

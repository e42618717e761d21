"""Releases on disk: whole, or not there."""

from helpers.runs import extract, write

from dpngram.pipelines.io import writing


def test_the_manifest_is_written_last(corpus, tmp_path, monkeypatch):
    """It says that the others are whole: a run that dies before it has released nothing that looks finished."""
    written, rename = [], writing.FileSystems.rename

    def watched(sources, targets):
        written.extend(path.rpartition("/")[2] for path in targets)
        rename(sources, targets)

    monkeypatch.setattr(writing.FileSystems, "rename", watched)
    assert extract(tmp_path / "out", "--input", write(tmp_path / "in.jsonl", corpus)) == 0
    assert written[:4] == ["ngrams-01.jsonl", "ngrams-02.jsonl", "ngrams-03.jsonl", "manifest.json"]
    assert "manifest.json" not in written[4:]

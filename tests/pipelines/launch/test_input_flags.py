"""Flags that say what is read."""

import pytest
from helpers.runs import GOOD, extract, jsonl


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--input_format", "csv", "--tokens_field", "x"], "--tokens_field is not supported with csv"),
        (["--input_format", "parquet", "--skip_header_lines", "1"], "skip_header_lines must be 0 with parquet"),
        (["--output_format", "xml"], "output_format must be one of"),
        (["--max_bad_fraction", "2"], "max_bad_fraction must be a number"),
        (["--resume"], "--resume needs --noise_key"),
        (["--input_format", "text", "--sentences"], "sentences must be off"),
        (["--tokenizer", "regex:("], "tokenizer regex must be"),
        (["--tokenizer", "no.such:thing"], "importable module:function"),
        (["--tokenizer", "huggingface:/no/such/file"], "tokenizer huggingface"),
    ],
)
def test_flags_that_cannot_be(tmp_path, capsys, flags, message):
    (tmp_path / "in.jsonl").write_bytes(jsonl(GOOD[:5]))
    assert extract(tmp_path / "out", "--input", tmp_path / "in.jsonl", *flags) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()

"""BigQuery, with stand-ins for Beam's two transforms."""

import dataclasses
import json
import sys

import apache_beam as beam
from helpers.runs import extract, files, jsonl, notes_of

from dpngram.pipelines import extract as extract_module
from dpngram.pipelines.io.input_formats import INPUT_FORMATS


def test_bigquery_with_stand_ins(corpus, key, tmp_path, monkeypatch):
    """The same release from a table's rows, and the same rows into a table; rows without a user are counted."""
    written = tmp_path / "table"

    class Read(beam.PTransform):
        class Method:
            DIRECT_READ = "direct"

        def __init__(self, table, method):
            super().__init__()
            assert (table, method) == ("project-x:dataset.posts", "direct")

        def expand(self, pbegin):
            return pbegin | beam.Create([*corpus, {"user": None, "text": "x"}])

    class Write(beam.PTransform):
        def __init__(self, table, schema, **more):
            super().__init__()
            assert table == "project-x:dataset.grams"
            assert [field["name"] for field in schema["fields"]] == ["n", "tokens", "weight"]

        def expand(self, rows):
            return rows | beam.Map(json.dumps) | beam.io.WriteToText(str(written), shard_name_template="")

    monkeypatch.setattr(beam.io, "ReadFromBigQuery", Read, raising=False)
    monkeypatch.setattr(beam.io, "WriteToBigQuery", Write, raising=False)
    (tmp_path / "in.jsonl").write_bytes(jsonl(corpus) + b"null\n")
    assert extract(tmp_path / "files", "--input", tmp_path / "in.jsonl", "--noise_key", key) == 0
    flags = ["--input_format", "bigquery", "--input", "project-x:dataset.posts", "--noise_key", key]
    flags += ["--output_bigquery", "project-x:dataset.grams"]
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "apache_beam.io.gcp.bigquery_tools", None)  # as if Beam's gcp extra were not here
        assert extract(tmp_path / "refused", *flags) == 2
    monkeypatch.setattr(extract_module, "check_table", lambda flag, table: table)  # the output's
    reader = dataclasses.replace(INPUT_FORMATS["bigquery"], check=lambda flag, table: table)
    monkeypatch.setitem(INPUT_FORMATS, "bigquery", reader)  # the input's
    assert extract(tmp_path / "out", *flags) == 0
    assert files(tmp_path / "out") == files(tmp_path / "files")
    assert notes_of(tmp_path / "out")["bad_records"] == {"missing_user": 1}
    rows = [json.loads(line) for line in written.read_text().splitlines()]
    assert len(rows) == json.loads((tmp_path / "out" / "manifest.json").read_text())["released"]

"""A release is bound to its content, and a key to one release."""

import logging

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.runner import PipelineRunner
from helpers.graphs import PLANS, corpus
from helpers.keys import write_key

from dpngram.accounting import ParameterError
from dpngram.transforms import ExtractNgrams
from dpngram.transforms.bind_release import choose_key, unrecorded_key


@pytest.mark.parametrize("collect", ["paper", pytest.param("plus", marks=pytest.mark.campaign)], indirect=True)
def test_a_key_used_for_other_data_is_refused(collect):
    documents = corpus()
    first = collect(documents)
    assert collect(documents) == first
    with pytest.raises(Exception, match="already used for this release label with other data"):
        collect(documents[1:])
    with pytest.raises(Exception, match="already used for this release label with other data"):
        collect(documents, tokenizer="whitespace")
    assert collect(documents[1:], release="another")


def test_nobody_uses_a_key_up(collect_paper):
    """An input without users is a release like any other."""
    assert collect_paper([]) == []
    assert collect_paper([]) == []
    with pytest.raises(Exception, match="already used for this release label with other data"):
        collect_paper(corpus())


def test_another_name_of_a_used_key_is_refused(collect_paper, tmp_path, monkeypatch):
    """In a whole graph: through a link, a copy and a variable."""
    documents = corpus(50)
    collect_paper(documents)
    (tmp_path / "names").mkdir()
    (tmp_path / "names" / "link").symlink_to(collect_paper.key)
    write_key(tmp_path / "names" / "copy", collect_paper.key.read_bytes())
    monkeypatch.setenv("KEY_OF_TESTS", collect_paper.key.read_bytes().hex())
    for name in (str(tmp_path / "names" / "link"), str(tmp_path / "names" / "copy"), "env:KEY_OF_TESTS"):
        with pytest.raises(Exception, match="already used for this release label with other data"):
            collect_paper(documents[1:], noise_key=name)


def test_where_nothing_remembers_a_key(caplog):
    """Once, when the graph is built: workers elsewhere keep nothing for a variable or a secret."""
    caplog.set_level(logging.WARNING)  # a program that ran before may have silenced the root logger

    class SomeClusterRunner(PipelineRunner):
        pass

    def warned(runner, key, records=None):
        caplog.clear()
        choose_key(beam.Pipeline(runner=runner), key, records, offline=True)
        assert [unrecorded_key(beam.Pipeline(runner=runner), key, records)] == (caplog.messages or [None])
        return bool(caplog.messages)

    assert warned(SomeClusterRunner(), "env:KEY")
    assert warned(SomeClusterRunner(), "gcp-secret:projects/p/secrets/s")
    assert not warned(SomeClusterRunner(), "gcp-secret:projects/p/secrets/s", "gs://bucket/records")
    assert not warned(SomeClusterRunner(), "gs://bucket/key")
    assert not warned(FnApiRunner(), "env:KEY")
    assert not warned(FnApiRunner(), None)


def test_records_of_a_fresh_key_are_not_asked_for():
    with pytest.raises(ParameterError, match="key_records must be left out without a noise_key"):
        ExtractNgrams(PLANS["paper"], key_records="somewhere")

"""BigQuery as input and output, through Beam's transforms; needs the extra `gcp`.

Our tests never talk to BigQuery: they use stand-ins for Beam's two transforms.
"""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics

from dpngram.accounting import ParameterError
from dpngram.pipelines.io.deny_list import NOTHING_DENIED, DenyList
from dpngram.pipelines.io.parsing import Fields
from dpngram.pipelines.io.tables import parse_records
from dpngram.transforms import GramTable
from dpngram.transforms.beam_workarounds import with_element_type
from dpngram.transforms.blocks.documents import DocumentBlock

__all__ = ["TABLE_PATTERN", "ReadBigQuery", "WriteBigQuery", "check_table"]

TABLE_PATTERN = r"[-a-z0-9:.]+:[A-Za-z0-9_]+\.[-\w]+"  # PROJECT:DATASET.TABLE
SCHEMA = {
    "fields": [
        {"name": "n", "type": "INTEGER", "mode": "REQUIRED"},
        {"name": "tokens", "type": "STRING", "mode": "REPEATED"},
        {"name": "weight", "type": "FLOAT", "mode": "REQUIRED"},
    ]
}


def check_table(flag: str, table: str) -> str:
    """The table, if it is PROJECT:DATASET.TABLE and Beam's extra for BigQuery is installed; else a ParameterError."""
    try:
        from apache_beam.io.gcp.bigquery_tools import parse_table_reference
        from google.cloud import bigquery  # noqa: F401
    except ImportError:
        raise ParameterError(f"{flag} needs Beam's gcp extra for BigQuery: pip install 'dpngram[gcp]'.") from None
    try:
        parse_table_reference(table)
    except ValueError:
        raise ParameterError(f"{flag} must be PROJECT:DATASET.TABLE for BigQuery, got {table!r:.80}.") from None
    return table


class ReadBigQuery(beam.PTransform):
    """Root: tables -> DocumentBlock, like `ReadDocuments`.

    Privacy: the blocks are the private data; counters are for the operator.

    Args:
        tables: PROJECT:DATASET.TABLE of each.
        fields: the columns with the user and the text.
    """

    def __init__(self, tables: list[str], fields: Fields) -> None:
        super().__init__()
        self._tables, self._fields = tables, fields

    def expand(self, pbegin: Any) -> beam.PCollection[DocumentBlock]:
        rows = [
            pbegin
            | f"Table{number}"
            >> beam.io.ReadFromBigQuery(table=table, method=beam.io.ReadFromBigQuery.Method.DIRECT_READ)
            for number, table in enumerate(self._tables)
        ]
        read = (
            rows
            | "Rows" >> beam.Flatten(pipeline=pbegin.pipeline)
            | "Batch" >> beam.BatchElements(min_batch_size=1000, max_batch_size=20_000)
            | "Parse" >> beam.ParDo(_ParseDoFn(self._fields))
        )
        return with_element_type(read, DocumentBlock)


class _ParseDoFn(beam.DoFn):
    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._records = Metrics.counter("dpngram", "records")

    def process(self, rows: list[Any]) -> Iterator[DocumentBlock]:
        parsed = parse_records(rows, self._fields, 0)
        self._records.inc(parsed.records)
        for record in parsed.bad:
            Metrics.counter("dpngram", f"bad_{record.reason}").inc()
        yield from parsed.all_blocks()


class WriteBigQuery(beam.PTransform):
    """{n: PCollection[GramTable]} -> rows (n, tokens, weight) of a new or empty table.

    Args:
        table: PROJECT:DATASET.TABLE.
        deny: what is left out.
    """

    def __init__(self, table: str, deny: DenyList = NOTHING_DENIED) -> None:
        super().__init__()
        self._table, self._deny = table, deny

    def expand(self, tables: dict[int, beam.PCollection[GramTable]]) -> Any:
        return (
            tuple(tables.values())
            | "Levels" >> beam.Flatten()
            | "Rows" >> beam.FlatMap(_table_rows, self._deny)
            | "Load"
            >> beam.io.WriteToBigQuery(
                self._table,
                schema=SCHEMA,
                method="FILE_LOADS",
                create_disposition="CREATE_IF_NEEDED",
                write_disposition="WRITE_EMPTY",
            )
        )


def _table_rows(table: GramTable, deny: DenyList) -> Iterator[dict[str, Any]]:
    for gram in deny.filter(table).rows():
        yield {"n": gram.n, "tokens": gram.tokens, "weight": gram.weight}

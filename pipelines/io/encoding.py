"""One level of a release as a file, and back. Every format has the same columns in the same order.

A level is written table by table and read row by row, so that neither needs the memory of a whole level. The bytes do
not depend on where one table ends and the next begins.
"""

import csv
import dataclasses
import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from dpngram.transforms import GramTable
from dpngram.transforms.blocks.columns import binary_array, split_binary

__all__ = ["OUTPUT_FORMATS", "Encoding", "Row", "arrow_columns", "json_lines", "output_format_help"]

Row = tuple[list[str], float]  # tokens, weight

_FEW = 1 << 14  # rows that are Python objects at a time

# Escapes for tokens in a vocabulary file, where a blank joins tokens and a line end ends the gram.
_ESCAPES = {"\\": "\\\\", " ": "\\s", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Encoding:
    """How a level becomes a file, and how its rows are read back.

    Args:
        help: a few words that say what the format is.
        suffix: of the file's name, without the dot.
        write: writes the tables of a level into a file, at least one of them, in the order of their rows.
        read: (file, length of the n-grams) -> its rows; nothing if there are no weights.
    """

    help: str
    suffix: str
    write: Callable[[Iterator[GramTable], IO[bytes]], None]
    read: Callable[[IO[bytes], int], Iterator[Row]]

    def encode(self, *tables: GramTable) -> bytes:
        """The file as bytes."""
        file = io.BytesIO()
        self.write(iter(tables), file)
        return file.getvalue()

    def decode(self, data: bytes, n: int) -> list[Row]:
        """The rows of a file of n-grams."""
        return list(self.read(io.BytesIO(data), n))


def json_lines(table: GramTable) -> bytes:
    """{"n": ..., "tokens": [...], "weight": ...} on each line, built in columns."""
    if not len(table):
        return b""
    words = pa.array([json.dumps(word, ensure_ascii=False) for word in table.vocabulary.to_pylist()], pa.large_string())
    lines = pc.binary_join_element_wise(
        pa.scalar(f'{{"n": {int(table.n)}, "tokens": [', pa.large_string()),
        _joined(table, words, ", "),
        pa.scalar('], "weight": ', pa.large_string()),
        pa.array(table.weight).cast(pa.large_string()),
        pa.scalar("}\n", pa.large_string()),
        pa.scalar("", pa.large_string()),
    )
    return bytes(lines.buffers()[2])


def _write_json(tables: Iterator[GramTable], file: IO[bytes]) -> None:
    for table in tables:
        file.write(json_lines(table))


def _joined(table: GramTable, words: pa.Array, separator: str) -> pa.Array:
    columns = [words.take(pa.array(column)) for column in table.tokens.T]
    if len(columns) == 1:
        return columns[0]
    return pc.binary_join_element_wise(*columns, pa.scalar(separator, pa.large_string()))


def _read_json(file: IO[bytes], _n: int) -> Iterator[Row]:
    for line in file:
        if line.strip(b"\n"):
            row = json.loads(line.decode())
            yield row["tokens"], row["weight"]


def _write_csv(tables: Iterator[GramTable], file: IO[bytes]) -> None:
    """A column for each token, then the weight. So no separator can be mistaken for a part of a token."""
    for number, table in enumerate(tables):
        words = table.vocabulary
        n = table.tokens.shape[1]
        columns = {f"token_{place + 1}": words.take(pa.array(table.tokens[:, place])) for place in range(n)}
        sink = pa.BufferOutputStream()
        options = pyarrow.csv.WriteOptions(include_header=number == 0)
        pyarrow.csv.write_csv(pa.table({**columns, "weight": table.weight}), sink, options)
        file.write(sink.getvalue())


def _read_csv(file: IO[bytes], n: int) -> Iterator[Row]:
    rows = csv.reader(line.decode() for line in file)
    for row in itertools.islice(rows, 1, None):
        yield row[:n], float(row[n])


def arrow_columns(table: GramTable) -> pa.Table:
    """The rows with their columns n, tokens and weight."""
    n = table.tokens.shape[1]
    tokens = table.vocabulary.take(pa.array(table.tokens.reshape(-1))).cast(pa.string())
    offsets = pa.array(np.arange(len(table) + 1, dtype=np.int32) * n)
    return pa.table(
        {
            "n": pa.array(np.full(len(table), int(table.n), np.int64)),
            "tokens": pa.ListArray.from_arrays(offsets, tokens),
            "weight": pa.array(table.weight),
        }
    )


_GROUP = 1 << 20  # rows of a row group of Parquet


def _write_parquet(tables: Iterator[GramTable], file: IO[bytes]) -> None:
    columns = map(arrow_columns, tables)
    rest = next(columns)
    with pyarrow.parquet.ParquetWriter(file, rest.schema, compression="snappy") as writer:
        for more in columns:
            rest = pa.concat_tables([rest, more])
            while len(rest) > _GROUP:
                writer.write_table(rest.slice(0, _GROUP).combine_chunks(), _GROUP)
                rest = rest.slice(_GROUP)
        writer.write_table(rest.combine_chunks(), _GROUP)


def _read_parquet(file: IO[bytes], _n: int) -> Iterator[Row]:
    for rows in pyarrow.parquet.ParquetFile(file).iter_batches(_FEW, columns=["tokens", "weight"]):
        yield from zip(rows.column("tokens").to_pylist(), rows.column("weight").to_pylist(), strict=True)


_AVRO_SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Ngram",
        "fields": [
            {"name": "n", "type": "long"},
            {"name": "tokens", "type": {"type": "array", "items": "string"}},
            {"name": "weight", "type": "double"},
        ],
    }
)


def _write_avro(tables: Iterator[GramTable], file: IO[bytes]) -> None:
    marker = b"dpngram release."  # fixed, so that the same release has the same bytes
    batches = (batch for table in tables for batch in arrow_columns(table).to_batches(max_chunksize=_FEW))
    rows = (row for batch in batches for row in batch.to_pylist())
    fastavro.writer(file, _AVRO_SCHEMA, rows, codec="deflate", sync_marker=marker)


def _read_avro(file: IO[bytes], _n: int) -> Iterator[Row]:
    records: Any = fastavro.reader(file)
    for record in records:
        yield record["tokens"], record["weight"]


def _write_vocab(tables: Iterator[GramTable], file: IO[bytes]) -> None:
    """One n-gram on each line, the heaviest first. Blanks join its tokens; white space inside a token is escaped.

    The order needs all of the level: its tokens as numbers, and its weights.
    """
    table = _join_tables(tables)
    words = [word.translate(str.maketrans(_ESCAPES)) for word in table.vocabulary.to_pylist()]
    escaped = pa.array(words, pa.large_string())
    order = np.argsort(-table.weight, kind="stable")
    for start in range(0, len(order), _FEW):
        grams = _joined(_take(table, order[start : start + _FEW]), escaped, " ")
        file.write(("\n".join(grams.to_pylist()) + "\n").encode())


def _take(table: GramTable, rows: np.ndarray[Any, Any]) -> GramTable:
    return dataclasses.replace(table, tokens=table.tokens[rows], weight=table.weight[rows])


def _join_tables(tables: Iterable[GramTable]) -> GramTable:
    """One table of all, with one vocabulary."""
    every = list(tables)
    if len(every) == 1:
        return every[0]
    words = pa.chunked_array([binary_array(table.token_offsets, table.token_bytes) for table in every])
    named = words.combine_chunks().dictionary_encode()
    offsets, data = split_binary(named.dictionary)
    starts = np.cumsum([0, *(len(table.token_offsets) - 1 for table in every)])
    rows = named.indices.to_numpy(zero_copy_only=False).astype(np.int32)
    tokens = np.empty((sum(map(len, every)), every[0].tokens.shape[1]), np.int32)
    done = 0
    for table, start in zip(every, starts, strict=False):
        tokens[done : done + len(table)] = rows[start + table.tokens]
        done += len(table)
    weight = np.concatenate([table.weight for table in every])
    return dataclasses.replace(every[0], tokens=tokens, weight=weight, token_offsets=offsets, token_bytes=data)


def _no_rows(_file: IO[bytes], _n: int) -> Iterator[Row]:
    return iter(())


# The one list of output formats: files' names, flags, help and templates are made from it.
OUTPUT_FORMATS = {
    "jsonl": Encoding(help="a JSON object on each line", suffix="jsonl", write=_write_json, read=_read_json),
    "csv": Encoding(help="a column for each token", suffix="csv", write=_write_csv, read=_read_csv),
    "parquet": Encoding(help="Apache Parquet", suffix="parquet", write=_write_parquet, read=_read_parquet),
    "avro": Encoding(help="Apache Avro", suffix="avro", write=_write_avro, read=_read_avro),
    "vocab": Encoding(help="text, the heaviest first, no weights", suffix="txt", write=_write_vocab, read=_no_rows),
}


def output_format_help() -> str:
    """All formats in one line, each with a few words."""
    return ", ".join(f"{name} ({encoding.help})" for name, encoding in OUTPUT_FORMATS.items())

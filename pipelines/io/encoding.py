"""One level of a release as the bytes of a file, and back. Every format has the same columns in the same order."""

import csv
import dataclasses
import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from dpngram.transforms import GramTable

__all__ = ["OUTPUT_FORMATS", "Encoding", "arrow_columns", "json_lines", "output_format_help"]

# Escapes for tokens in a vocabulary file, where a blank joins tokens and a line end ends the gram.
_ESCAPES = {"\\": "\\\\", " ": "\\s", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Encoding:
    """How a level becomes a file, and how its rows are read back.

    Args:
        help: a few words that say what the format is.
        suffix: of the file's name, without the dot.
        encode: a level -> the bytes of its file.
        decode: (bytes, length of the n-grams) -> (tokens, weight) of each row; nothing if there are no weights.
    """

    help: str
    suffix: str
    encode: Callable[[GramTable], bytes]
    decode: Callable[[bytes, int], list[tuple[list[str], float]]]


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


def _joined(table: GramTable, words: pa.Array, separator: str) -> pa.Array:
    columns = [words.take(pa.array(column)) for column in table.tokens.T]
    if len(columns) == 1:
        return columns[0]
    return pc.binary_join_element_wise(*columns, pa.scalar(separator, pa.large_string()))


def _decode_json(data: bytes, _n: int) -> list[tuple[list[str], float]]:
    return [(row["tokens"], row["weight"]) for row in map(json.loads, filter(None, data.decode().split("\n")))]


def _csv(table: GramTable) -> bytes:
    """A column for each token, then the weight. So no separator can be mistaken for a part of a token."""
    words = table.vocabulary
    n = table.tokens.shape[1]
    columns = {f"token_{place + 1}": words.take(pa.array(table.tokens[:, place])) for place in range(n)}
    sink = pa.BufferOutputStream()
    pyarrow.csv.write_csv(pa.table({**columns, "weight": table.weight}), sink)
    return bytes(sink.getvalue())


def _decode_csv(data: bytes, n: int) -> list[tuple[list[str], float]]:
    rows = list(csv.reader(io.StringIO(data.decode(), newline="")))[1:]
    return [(row[:n], float(row[n])) for row in rows]


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


def _parquet(table: GramTable) -> bytes:
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(arrow_columns(table), sink, compression="snappy")
    return bytes(sink.getvalue())


def _decode_parquet(data: bytes, _n: int) -> list[tuple[list[str], float]]:
    rows = pyarrow.parquet.read_table(pa.BufferReader(data))
    return list(zip(rows["tokens"].to_pylist(), rows["weight"].to_pylist(), strict=True))


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


def _avro(table: GramTable) -> bytes:
    sink = io.BytesIO()
    marker = b"dpngram release."  # fixed, so that the same release has the same bytes
    fastavro.writer(sink, _AVRO_SCHEMA, arrow_columns(table).to_pylist(), codec="deflate", sync_marker=marker)
    return sink.getvalue()


def _decode_avro(data: bytes, _n: int) -> list[tuple[list[str], float]]:
    records: Any = fastavro.reader(io.BytesIO(data))
    return [(record["tokens"], record["weight"]) for record in records]


def _vocab(table: GramTable) -> bytes:
    """One n-gram on each line, the heaviest first. Blanks join its tokens; white space inside a token is escaped."""
    if not len(table):
        return b""
    words = [word.translate(str.maketrans(_ESCAPES)) for word in table.vocabulary.to_pylist()]
    grams = _joined(table, pa.array(words, pa.large_string()), " ")
    order = np.argsort(-table.weight, kind="stable")
    return ("\n".join(grams.take(pa.array(order)).to_pylist()) + "\n").encode()


def _no_rows(_data: bytes, _n: int) -> list[tuple[list[str], float]]:
    return []


# The one list of output formats: files' names, flags, help and templates are made from it.
OUTPUT_FORMATS = {
    "jsonl": Encoding(help="a JSON object on each line", suffix="jsonl", encode=json_lines, decode=_decode_json),
    "csv": Encoding(help="a column for each token", suffix="csv", encode=_csv, decode=_decode_csv),
    "parquet": Encoding(help="Apache Parquet", suffix="parquet", encode=_parquet, decode=_decode_parquet),
    "avro": Encoding(help="Apache Avro", suffix="avro", encode=_avro, decode=_decode_avro),
    "vocab": Encoding(help="text, the heaviest first, no weights", suffix="txt", encode=_vocab, decode=_no_rows),
}


def output_format_help() -> str:
    """All formats in one line, each with a few words."""
    return ", ".join(f"{name} ({encoding.help})" for name, encoding in OUTPUT_FORMATS.items())

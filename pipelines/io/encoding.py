"""One level of a release as a file, and back. Formats with columns have the same: n, phrase, tokens and weight.

The phrase is the tokens joined by blanks (`join_tokens`), for people and for programs that take texts. Two n-grams may
have the same phrase, if a token has a blank in it; no two have the same tokens.

A level is written table by table and read row by row, so that neither needs the memory of a whole level. The bytes do
not depend on where one table ends and the next begins.
"""

import dataclasses
import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from dpngram.transforms import GramTable
from dpngram.transforms.blocks.columns import binary_array, split_binary

__all__ = [
    "OUTPUT_FORMATS",
    "Encoding",
    "PhraseError",
    "Row",
    "arrow_columns",
    "join_tokens",
    "output_format_help",
    "with_phrases",
]

Row = tuple[list[str], float]  # tokens, weight

_BETWEEN = " "  # what joins the tokens of a phrase
_COLUMNS = pa.schema({"tokens": pa.list_(pa.string()), "weight": pa.float64()})
_BLOCK = 1 << 24  # bytes of a text file that are parsed at a time; a row has less
_MANY = 1 << 16  # rows that are text at a time
_FEW = 1 << 14  # rows that are Python objects at a time

# Escapes for tokens in a vocabulary file, where a blank joins tokens and a line end ends the gram.
_ESCAPES = {"\\": "\\\\", " ": "\\s", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class PhraseError(ValueError):
    """A file has a phrase that is not its tokens, joined."""


def join_tokens(tokens: Sequence[str]) -> str:
    """The phrase of one n-gram."""
    return _BETWEEN.join(tokens)


def _row(tokens: list[str], weight: float, phrase: str | None) -> Row:
    """A row of a file. Releases of version 0.1 have no phrase."""
    if phrase is not None and phrase != join_tokens(tokens):
        raise PhraseError("a phrase must be its tokens, joined by blanks")
    return tokens, weight


@dataclasses.dataclass(frozen=True, kw_only=True)
class Encoding:
    """How a level becomes a file, and how its rows are read back.

    Args:
        help: a few words that say what the format is.
        suffix: of the file's name, without the dot.
        write: writes the tables of a level into a file, at least one of them, in the order of their rows.
        read: (file, length of the n-grams) -> its rows; nothing if there are no weights. Raises PhraseError if a phrase
            is not that of its tokens.
        load: (a file of one row or more, length of the n-grams) -> a table with the columns tokens and weight. Without
            it, rows are read one by one.
    """

    help: str
    suffix: str
    write: Callable[[Iterator[GramTable], IO[bytes]], None]
    read: Callable[[IO[bytes], int], Iterator[Row]]
    load: Callable[[bytes, int], pa.Table] | None = None

    def encode(self, *tables: GramTable) -> bytes:
        """The file as bytes."""
        file = io.BytesIO()
        self.write(iter(tables), file)
        return file.getvalue()

    def decode(self, data: bytes, n: int) -> list[Row]:
        """The rows of a file of n-grams."""
        return list(self.read(io.BytesIO(data), n))

    def decode_columns(self, data: bytes, n: int) -> pa.Table:
        """The rows of a file of n-grams, with the columns n, phrase, tokens and weight."""
        if self.load is not None and data:
            table = self.load(data, n)
        else:
            rows = [{"tokens": tokens, "weight": weight} for tokens, weight in self.decode(data, n)]
            table = pa.Table.from_pylist(rows, _COLUMNS)
        return with_phrases(n, table["tokens"], table["weight"])


def _write_json(tables: Iterator[GramTable], file: IO[bytes]) -> None:
    """{"n": ..., "phrase": ..., "tokens": [...], "weight": ...} on each line, built in columns."""
    for table in tables:
        # JSON escapes each character by itself, so words can be joined after they are escaped, in one pair of quotes.
        escaped = [json.dumps(word, ensure_ascii=False)[1:-1] for word in table.vocabulary.to_pylist()]
        words = pa.array(escaped, pa.large_string())
        for part in _parts(table):
            columns = _token_columns(part, words)
            lines = pc.binary_join_element_wise(
                _text(f'{{"n": {int(table.n)}, "phrase": "'),
                _joined(columns, _BETWEEN),
                _text('", "tokens": ["'),
                _joined(columns, '", "'),
                _text('"], "weight": '),
                pa.array(part.weight).cast(pa.large_string()),
                _text("}\n"),
                _text(""),
            )
            file.write(lines.buffers()[2])


def _parts(table: GramTable) -> Iterator[GramTable]:
    """The table, some rows at a time: their text is larger than they are."""
    for start in range(0, len(table), _MANY):
        yield _take(table, np.s_[start : start + _MANY])


def _text(text: str) -> pa.Scalar:
    return pa.scalar(text, pa.large_string())


def _token_columns(table: GramTable, words: pa.Array) -> list[pa.Array]:
    """The tokens of each place, with these words for the rows of the vocabulary."""
    return [words.take(pa.array(column)) for column in table.tokens.T]


def _joined(columns: list[pa.Array], separator: str) -> pa.Array:
    return columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, _text(separator))


def _read_json(file: IO[bytes], _n: int) -> Iterator[Row]:
    for line in file:
        if line.strip(b"\n"):
            row = json.loads(line.decode())
            yield _row(row["tokens"], row["weight"], row.get("phrase"))


def _load_json(data: bytes, _n: int) -> pa.Table:
    parse = pyarrow.json.ParseOptions(explicit_schema=_COLUMNS, unexpected_field_behavior="ignore")
    return pyarrow.json.read_json(pa.BufferReader(data), pyarrow.json.ReadOptions(block_size=_BLOCK), parse)


def _write_csv(tables: Iterator[GramTable], file: IO[bytes]) -> None:
    """A column for each token, so that no separator can be mistaken for a part of a token; the weight; the phrase."""
    is_first = True
    for table in tables:
        words = table.vocabulary
        for part in _parts(table) if len(table) else [table]:
            columns = _token_columns(part, words)
            named = {f"token_{place + 1}": column for place, column in enumerate(columns)}
            sink = pa.BufferOutputStream()
            rows = pa.table({**named, "weight": part.weight, "phrase": _joined(columns, _BETWEEN)})
            pyarrow.csv.write_csv(rows, sink, pyarrow.csv.WriteOptions(include_header=is_first))
            file.write(sink.getvalue())
            is_first = False


def _read_csv(file: IO[bytes], n: int) -> Iterator[Row]:
    for batch in _csv_batches(file, n):
        phrases = batch["phrase"] if "phrase" in batch.schema.names else pa.nulls(len(batch))
        columns = (_listed(batch, n), batch["weight"], phrases)
        yield from itertools.starmap(_row, zip(*(column.to_pylist() for column in columns), strict=True))


def _load_csv(data: bytes, n: int) -> pa.Table:
    parts = [pa.table({"tokens": _listed(batch, n), "weight": batch["weight"]}) for batch in _csv_batches(data, n)]
    return pa.concat_tables([_COLUMNS.empty_table(), *parts])


def _csv_batches(source: Any, n: int) -> Iterator[pa.RecordBatch]:
    """The rows of a file, some at a time."""
    types = {**{f"token_{place + 1}": pa.string() for place in range(n)}, "weight": pa.float64(), "phrase": pa.string()}
    file = pa.BufferReader(source) if isinstance(source, bytes) else source
    yield from pyarrow.csv.open_csv(
        file,
        pyarrow.csv.ReadOptions(block_size=_BLOCK),
        pyarrow.csv.ParseOptions(newlines_in_values=True),
        pyarrow.csv.ConvertOptions(column_types=types),
    )


def _listed(batch: pa.RecordBatch, n: int) -> pa.Array:
    """The tokens of each row as a list."""
    places = pa.concat_arrays([batch[f"token_{place + 1}"] for place in range(n)])
    rows = len(batch)
    by_row = np.arange(rows * n).reshape(n, rows).T.reshape(-1)
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32) * n), places.take(pa.array(by_row)))


def arrow_columns(table: GramTable) -> pa.Table:
    """The rows with their columns n, phrase, tokens and weight."""
    n = table.tokens.shape[1]
    tokens = table.vocabulary.take(pa.array(table.tokens.reshape(-1))).cast(pa.string())
    offsets = pa.array(np.arange(len(table) + 1, dtype=np.int32) * n)
    return with_phrases(int(table.n), pa.ListArray.from_arrays(offsets, tokens), pa.array(table.weight))


def with_phrases(n: int, tokens: pa.Array, weight: pa.Array) -> pa.Table:
    """The columns of n-grams of one length: n, phrase, tokens and weight."""
    phrases = pc.binary_join(tokens, _BETWEEN)
    length = pa.array(np.full(len(tokens), n, np.int64))
    return pa.table({"n": length, "phrase": phrases, "tokens": tokens, "weight": weight})


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
    for rows in pyarrow.parquet.ParquetFile(file).iter_batches(_FEW):
        for row in rows.to_pylist():
            yield _row(row["tokens"], row["weight"], row.get("phrase"))


def _load_parquet(data: bytes, _n: int) -> pa.Table:
    return pyarrow.parquet.read_table(pa.BufferReader(data), columns=["tokens", "weight"])


_AVRO_SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Ngram",
        "fields": [
            {"name": "n", "type": "long"},
            {"name": "phrase", "type": "string"},
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
        yield _row(record["tokens"], record["weight"], record.get("phrase"))


def _write_vocab(tables: Iterator[GramTable], file: IO[bytes]) -> None:
    """One n-gram on each line, the heaviest first. Blanks join its tokens; white space inside a token is escaped.

    The order needs all of the level: its tokens as numbers, and its weights.
    """
    table = _join_tables(tables)
    words = [word.translate(str.maketrans(_ESCAPES)) for word in table.vocabulary.to_pylist()]
    escaped = pa.array(words, pa.large_string())
    order = np.argsort(-table.weight, kind="stable")
    for start in range(0, len(order), _FEW):
        grams = _joined(_token_columns(_take(table, order[start : start + _FEW]), escaped), " ")
        file.write(("\n".join(grams.to_pylist()) + "\n").encode())


def _take(table: GramTable, rows: np.ndarray[Any, Any] | slice) -> GramTable:
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
    "jsonl": Encoding(
        help="a JSON object on each line", suffix="jsonl", write=_write_json, read=_read_json, load=_load_json
    ),
    "csv": Encoding(help="a column for each token", suffix="csv", write=_write_csv, read=_read_csv, load=_load_csv),
    "parquet": Encoding(
        help="Apache Parquet", suffix="parquet", write=_write_parquet, read=_read_parquet, load=_load_parquet
    ),
    "avro": Encoding(help="Apache Avro", suffix="avro", write=_write_avro, read=_read_avro),
    "vocab": Encoding(help="text, the heaviest first, no weights", suffix="txt", write=_write_vocab, read=_no_rows),
}


def output_format_help() -> str:
    """All formats in one line, each with a few words."""
    return ", ".join(f"{name} ({encoding.help})" for name, encoding in OUTPUT_FORMATS.items())

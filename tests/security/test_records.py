"""One record, whatever is in it, changes nothing of what is read of others: the guarantee is about users, not files."""

import collections
import io

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from dpngram.pipelines.io import lines as lines_module
from dpngram.pipelines.io import tables as tables_module
from dpngram.pipelines.io.reading import InputFormat
from dpngram.transforms.blocks.columns import binary_array

HEADER = {"csv": b"user,text\n", "tsv": b"user\ttext\n", "jsonl": b"", "text": b""}
RECORD = {"csv": b"%s,%s", "tsv": b"%s\t%s", "jsonl": b'{"user": "%s", "text": "%s"}', "text": b"%s %s"}
PIECES = [
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b"\t",
    b"\r",
    b"\0",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\\",
    b"a",
    b" ",
]
PIECES += [
    b"\\ud800",
    b"\x0b",
    b"\x0c",
    b"\x1c",
    b"\xc2\x85",
    b"\xe2\x80\xa8",
    b"1e999",
    b"null",
    b":",
    b"\\u0000",
    b"\x1a",
]
PIECES += [b'{"user": "m", "text": "', b'"}', b'"user": 5', b'"', b"x" * 3000]


def good(name, tag):
    return b"".join(RECORD[name] % (b"%s%d" % (tag, i), b"hello") + b"\n" for i in range(20))


def read(path, name, data):
    """({(user, text): number}, records, bad records)."""
    path.write_bytes(data)
    input_format = InputFormat(name=name)
    parts = [part for extent in input_format.ranges(str(path), len(data)) for part in input_format.read(extent)]
    documents = collections.Counter()
    for block in (block for part in parts for block in part.blocks):
        texts = binary_array(block.offsets, block.data).to_pylist()
        users = [b""] * len(texts) if block.users is None else block.users.to_pylist()
        documents.update(zip(users, (text.strip() for text in texts), strict=True))
    return documents, sum(part.records for part in parts), [bad for part in parts for bad in part.bad]


@pytest.mark.parametrize("name", HEADER)
def test_a_thousand_records_of_anything(tmp_path, name, monkeypatch):
    """Between forty good ones, with pieces and caps so small that all borders are met."""
    random = np.random.default_rng(7)
    for module in (lines_module, tables_module):
        monkeypatch.setattr(module, "MAX_RECORD_BYTES", 5000)
        monkeypatch.setattr(module, "RANGE_BYTES", 700)
    path = tmp_path / f"in.{name}"
    alone, records, bad = read(path, name, HEADER[name] + good(name, b"a") + good(name, b"b"))
    assert sum(alone.values()) == records == 40
    assert bad == []
    used = left_out = 0
    for _ in range(250):
        pieces = [PIECES[i] for i in random.integers(0, len(PIECES), random.integers(1, 9))]
        if name == "csv":  # where quotes do not balance the file is refused: a writer that does not quote is no writer
            pieces = [piece.replace(b'"', b"") for piece in pieces]
        record = b"".join(pieces)
        if random.random() < 0.5 and b'"' not in record:
            record = RECORD[name] % (b"mallory", record)
        around, records, bad = read(path, name, HEADER[name] + good(name, b"a") + record + b"\n" + good(name, b"b"))
        assert alone - around == collections.Counter(), record
        others = sum((around - alone).values())
        blank = not record.strip(b" \t\r\x0b\x0c\xef\xbb\xbf")
        assert others + len(bad) == records - 40 == 1 or (blank and others + len(bad) <= 1), record
        used, left_out = used + others, left_out + len(bad)
    assert used >= 8
    assert left_out >= 20


@pytest.mark.parametrize(
    "row",
    [b"mallory\xff,a,b", b"mallory\xff", b"mallory,a,\xed\xa0\x80", b"m,a\rvictim,b", b'm,"a\rb"', b"m," + b"x" * 9000],
)
def test_a_row_of_csv_does_not_take_others_with_it(tmp_path, row, monkeypatch):
    """Arrow gives up a file for a row of too many values that is no UTF-8, and for one longer than a block."""
    monkeypatch.setattr(tables_module, "MAX_RECORD_BYTES", 5000)
    monkeypatch.setattr(tables_module, "RANGE_BYTES", 1000)
    around, records, _ = read(
        tmp_path / "in.csv", "csv", HEADER["csv"] + good("csv", b"a") + row + b"\n" + good("csv", b"b")
    )
    assert records == 41
    assert {user for user, _ in around} - {b"mallory", b"m"} == {
        b"%s%d" % (tag, i) for tag in (b"a", b"b") for i in range(20)
    }


def test_pieces_of_csv_hold_whole_records(monkeypatch):
    """Any piece size, quoted line ends, long records: the same records, and those over the cap are told."""
    monkeypatch.setattr(tables_module, "MAX_RECORD_BYTES", 300)
    random = np.random.default_rng(2)
    for _ in range(300):
        records = []
        for _ in range(random.integers(0, 12)):
            body = b"".join(
                random.choice([b"ab", b'"\n"', b'"x,\r\n"', b'""""', b"z" * 40]) for _ in range(random.integers(0, 14))
            )
            records.append(b"u," + body + b"\n")
        data = b"".join(records)
        if records and random.random() < 0.5:
            data, records[-1] = data[:-1], records[-1][:-1]
        monkeypatch.setattr(tables_module, "RANGE_BYTES", int(random.integers(1, 400)))
        at = 0

        def chunks(size, data=data):
            nonlocal at
            at += size
            return data[at - size : at]

        found = list(tables_module._whole_records(chunks))
        assert b"".join(piece for piece in found if piece) == b"".join(one for one in records if len(one) <= 300)
        assert found.count(None) == sum(len(one) > 300 for one in records)


LOGICAL = {
    "at": ({"type": "long", "logicalType": "timestamp-millis"}, 2**60),
    "day": ({"type": "int", "logicalType": "date"}, 2**31 - 1),
    "id": ({"type": "string", "logicalType": "uuid"}, "none at all"),
    "some": (["null", {"type": "array", "items": {"type": "int", "logicalType": "date"}}], [2**31 - 1]),
}


@pytest.mark.parametrize("name", LOGICAL)
def test_an_avro_value_that_is_no_date(tmp_path, name):
    """It is legal, and whoever converts it fails; the records behind it were left out, and counted as one."""
    kind, value = LOGICAL[name]
    fields = [{"name": "user", "type": "string"}, {"name": "text", "type": "string"}, {"name": name, "type": kind}]
    harmless = "6ba7b810-9dad-11d1-80b4-00c04fd430c8" if name == "id" else [1] if name == "some" else 1
    rows = [{"user": f"u{row}", "text": "hello", name: value if row == 5 else harmless} for row in range(20)]
    data = io.BytesIO()
    fastavro.writer(data, {"type": "record", "name": "R", "fields": fields}, rows)
    documents, records, bad = read(tmp_path / "in.avro", "avro", data.getvalue())
    assert documents == collections.Counter((f"u{row}".encode(), b"hello") for row in range(20))
    assert (records, bad) == (20, [])


def test_an_avro_schema_that_holds_itself(tmp_path):
    """How deep its values go is up to users, and a reader that recurs dies of it: the file is refused."""
    fields = [{"name": "user", "type": "string"}, {"name": "text", "type": "string"}]
    fields += [{"name": "replies", "type": {"type": "array", "items": "R"}}]
    data = io.BytesIO()
    fastavro.writer(
        data, {"type": "record", "name": "R", "fields": fields}, [{"user": "u", "text": "a", "replies": []}]
    )
    with pytest.raises(tables_module.RecursiveSchema, match="not recursive"):
        read(tmp_path / "in.avro", "avro", data.getvalue())


def test_columns_of_short_words_that_become_long():
    """A dictionary column is decoded into 64-bit offsets: 2^31 bytes of text in one batch are no error."""
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, None]), pa.array(["u", "v"]))
    parsed = tables_module.read_columns([column], [column], 0)
    assert parsed.blocks[0].users.to_pylist() == [b"u", b"v", b"u"]
    assert pa.types.is_large_binary(tables_module._strings(column).type)
    numbers = pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array([17]))
    assert tables_module._strings(numbers).to_pylist() == [b"17", b"17"]


@pytest.mark.parametrize("odd", [None, [None], [7], ["a", None], [["a"]], 7, 2.5, b"a", {"a": 1}, [{"a": None}], True])
def test_an_avro_content_that_is_no_text(tmp_path, odd):
    """Whatever stands where text or tokens should: one bad record, and those behind it are read."""
    inner = [
        "null",
        "string",
        "long",
        {"type": "array", "items": "string"},
        {"type": "map", "values": ["null", "long"]},
    ]
    kinds = [*inner[:3], "double", "bytes", "boolean", {"type": "array", "items": inner}, inner[4]]
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "user", "type": "string"}, {"name": "text", "type": kinds}],
    }
    rows = [{"user": f"u{row}", "text": odd if row == 5 else "hello"} for row in range(20)]
    data = io.BytesIO()
    fastavro.writer(data, schema, rows)
    documents, records, bad = read(tmp_path / "in.avro", "avro", data.getvalue())
    assert documents == collections.Counter((f"u{row}".encode(), b"hello") for row in range(20) if row != 5)
    assert (records, len(bad)) == (20, 1)

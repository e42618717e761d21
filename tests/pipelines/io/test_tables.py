"""CSV, Parquet and Avro: each record by itself."""

import csv
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from helpers.records import avro, read, reasons_of, users_of


def test_a_line_end_inside_a_quoted_csv_value_makes_no_user(tmp_path):
    """One user's post that looks like 400 records, as any exporter quotes it, is one record of one user."""
    post = "hello\n" + "".join(f"x{i},alice smith has hiv\n" for i in range(400))
    out = io.StringIO()
    csv.writer(out).writerows([["user", "text"], ["mallory", post], ["bob", 'he said "hi", then left']])
    (tmp_path / "in.csv").write_text(out.getvalue(), newline="")
    parts = read(tmp_path / "in.csv", "csv")
    assert users_of(parts) == ["bob", "mallory"]
    assert reasons_of(parts) == []


def test_csv_rows_that_cannot_be_used(tmp_path):
    rows = b"# comment\nid,text,user\n1,plain,u1\n2,too few\n3,one,too,many\n4,bad \xff,u4\n5,no user,\n6,,u6\n"
    (tmp_path / "in.csv").write_bytes(rows)
    parts = read(tmp_path / "in.csv", "csv", skip_header_lines=1)
    assert users_of(parts) == ["u1", "u6"]
    assert reasons_of(parts) == ["bad_row", "bad_row", "bad_utf8", "missing_user"]
    assert sum(part.records for part in parts) == 6
    # Quotes that do not balance: nobody can tell what is quoted, and nothing is read.
    (tmp_path / "open.csv").write_bytes(b'user,text\na,"open\nvictim,hello\nb,x\n')
    parts = read(tmp_path / "open.csv", "csv")
    assert users_of(parts) == []
    assert set(reasons_of(parts)) == {"open_quote"}
    (tmp_path / "cr.csv").write_bytes(b"user,text\ra,x\rb,y\r")
    assert users_of(read(tmp_path / "cr.csv", "csv")) == []
    assert reasons_of(read(tmp_path / "cr.csv", "csv")) != []


def test_one_broken_string_spoils_its_own_record(tmp_path):
    """Bytes that are no UTF-8 in the strings of Parquet and Avro: that record is bad, and no other."""
    texts = pa.StringArray.from_buffers(3, pa.py_buffer(np.array([0, 1, 2, 3], np.int32)), pa.py_buffer(b"x\xffz"))
    pq.write_table(pa.table({"user": ["a", "b", "c"], "text": texts}), tmp_path / "in.parquet")
    parts = read(tmp_path / "in.parquet", "parquet")
    assert (users_of(parts), reasons_of(parts)) == (["a", "c"], ["bad_utf8"])
    rows = [{"user": f"u{i}", "text": "MARK" if i == 10 else "fine"} for i in range(100)]
    (tmp_path / "in.avro").write_bytes(avro(rows).replace(b"MARK", b"M\xff\xffK"))
    parts = read(tmp_path / "in.avro", "avro")
    assert (len(users_of(parts)), reasons_of(parts)) == (99, ["bad_utf8"])
    assert sum(part.records for part in parts) == 100


def test_a_value_in_a_column_of_another_kind_decides_nothing(tmp_path):
    """Texts, and lists of tokens beside them: which column counts follows from types, not from who has a value."""
    users, texts = ["a", "b", "c"], pa.array(["x", None, "z"], pa.string())
    nobody, one = (pa.array([None, None, last], pa.list_(pa.string())) for last in (None, ["q"]))
    for lists in (nobody, one):
        columns = {"user": users, "text": texts, "content": lists}
        pq.write_table(pa.table(columns), tmp_path / "texts.parquet")
        assert users_of(read(tmp_path / "texts.parquet", "parquet")) == ["a", "c"]
        columns = {"user": users, "text": lists, "content": texts}
        pq.write_table(pa.table(columns), tmp_path / "lists.parquet")
        assert users_of(read(tmp_path / "lists.parquet", "parquet")) == [user for user in users[2:] if lists is one]
    columns = {"user": users, "text": pa.nulls(3), "content": pa.array([["x"], None, ["z"]])}
    pq.write_table(pa.table(columns), tmp_path / "nothing.parquet")
    assert users_of(read(tmp_path / "nothing.parquet", "parquet")) == ["a", "c"]
    columns = {"user": users, "text": texts, "content": pa.array(["p", "q", "r"])}
    pq.write_table(pa.table(columns), tmp_path / "both.parquet")
    assert users_of(read(tmp_path / "both.parquet", "parquet")) == users

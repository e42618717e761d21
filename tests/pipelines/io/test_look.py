"""A look at the input before a run: what it finds, what it shows, and what it leaves alone."""

import bz2
import gzip
import io
import json
import re

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from helpers.comparisons import compare
from helpers.runs import GOOD, extract, jsonl

from dpngram.accounting import ParameterError
from dpngram.pipelines.io import look as looking
from dpngram.pipelines.io.input_formats import InputFormat
from dpngram.pipelines.io.look import LOOKED_RECORDS, json_columns, look_at_files
from dpngram.pipelines.io.parsing import Fields

TICKETS = [{"customer_id": f"c{i}", "created_at": "2020", "body": f"w{i % 5} w{i % 3}"} for i in range(300)]
PACK = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstandard.compress}


def delimited(rows, mark):
    lines = [mark.join(rows[0]), *(mark.join(row.values()) for row in rows)]
    return "".join(f"{line}\n" for line in lines).encode()


def parquet(rows):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue().to_pybytes()


def avro(rows):
    fields = [{"name": name, "type": "string"} for name in rows[0]]
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema({"type": "record", "name": "r", "fields": fields}), rows)
    return sink.getvalue()


WRITERS = {
    "jsonl": jsonl,
    "csv": lambda rows: delimited(rows, ","),
    "tsv": lambda rows: delimited(rows, "\t"),
    "parquet": parquet,
    "avro": avro,
}
NAMES = [f"{name}{packed}" for name in ("jsonl", "csv", "tsv") for packed in PACK] + ["parquet", "avro"]


def write(path, rows):
    name, _, packed = path.name.partition(".")[2].partition(".")
    path.write_bytes(PACK[f".{packed}" if packed else ""](WRITERS[name](rows)))
    return path


@pytest.fixture
def said(capsys):
    """The one line of an error."""

    def read():
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        return re.fullmatch(r"dpngram \w+: error: (.*)\n", error).group(1)

    return read


@pytest.mark.parametrize("name", NAMES)
def test_a_field_that_no_file_has(name, tmp_path, said):
    """In every format, packed or not, without --input_format: one line, nothing written, the key not used up."""
    path = write(tmp_path / f"tickets.{name}", TICKETS)
    key = tmp_path / "noise.key"
    flags = ["--input", path, "--noise_key", key, "--bad_records", tmp_path / "bad"]
    assert extract(tmp_path / "out", *flags, "--text_field", "body", "--user_field", "user") == 2
    if name.startswith("jsonl"):
        where = f"no field 'user' in the first {LOOKED_RECORDS} records of {path}; they have"
    else:
        where = f"no column 'user' in {path}; it has"
    assert said() == f"{where} customer_id, created_at, body (--user_field)"
    assert sorted(tmp_path.iterdir()) == [path]
    assert look(path, name.partition(".")[0], user=("customer_id",), text=("body",)) is None


def test_both_fields_and_the_default_names(tmp_path, said):
    path = write(tmp_path / "tickets.csv", TICKETS)
    assert extract(tmp_path / "out", "--input", path) == 2
    names = "no column 'user' or 'author' and no column 'text' or 'content'"
    assert said() == f"{names} in {path}; it has customer_id, created_at, body (--user_field, --text_field)"
    path = write(tmp_path / "posts.parquet", [{"author": "a", "content": "b"}])
    assert extract(tmp_path / "out", "--input", path, "--tokens_field", "words") == 2
    assert said() == f"no column 'words' in {path}; it has author, content (--tokens_field)"


def test_compare_looks_too(tmp_path, said):
    path = write(tmp_path / "tickets.parquet", TICKETS)
    assert compare(tmp_path / "out", "--input", path, "--text_field", "body") == 2
    assert said() == f"no column 'user' or 'author' in {path}; it has customer_id, created_at, body (--user_field)"
    assert not (tmp_path / "out").exists()


def look(path, name, **fields):
    """The error, or None."""
    files = path if isinstance(path, dict) else {str(path): path.stat().st_size}
    try:
        InputFormat(name=name, fields=Fields(**fields)).look_at(files)
    except ParameterError as error:
        return str(error)
    return None


def test_one_record_with_the_field_is_enough(tmp_path):
    """No user's record, however odd, stops a run that others could take part in."""
    odd = [
        b"[" * 5000,
        b"no json",
        b'"text"',
        b"{}",
        b'{"user": ' + b"9" * 5000 + b"}",
        b'{"a": "\xff"}',
        b"",
        b"\xef\xbb\xbf",
    ]
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\n".join([*odd, b'{"user": null, "text": null}', *odd]))
    assert look(path, "jsonl") is None
    path.write_bytes(b"\n".join([*odd, b'{"author": 1' + b"0" * 5000 + b', "content": 1.5}']))
    assert look(path, "jsonl") is None
    path.write_bytes(b"\n".join([*odd, b'{"user": "a"}', b'{"text": "b"}']))
    assert look(path, "jsonl") is None
    path.write_bytes(b"\n".join([*odd, b'{"user": "a"}']))
    assert "no field 'text' or 'content' in the first 7 records of" in look(path, "jsonl")


def test_a_long_record_stops_nothing(tmp_path, monkeypatch):
    """Where fewer than LOOKED_RECORDS fit into what is read, a file is refused only if it ends there."""
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"other": "' + b"x" * 300_000 + b'"}\n' + jsonl(GOOD))
    assert look(path, "jsonl") is None
    monkeypatch.setattr(looking, "_MOST_BYTES", 1 << 17)
    assert look(path, "jsonl") is None
    path.write_bytes(b'{"other": "' + b"x" * 300_000 + b'"}\n' + jsonl(TICKETS))
    assert look(path, "jsonl") is None
    monkeypatch.undo()
    assert "no field 'user'" in look(path, "jsonl")
    path.write_bytes(b"x" * 300_000)
    monkeypatch.setattr(looking, "_MOST_BYTES", 1 << 17)
    assert look(path, "csv") is None


def test_only_the_first_records(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_bytes(jsonl(TICKETS[:LOOKED_RECORDS]) + jsonl(GOOD))
    assert "no field 'user' or 'author'" in look(path, "jsonl")
    path.write_bytes(jsonl(TICKETS[: LOOKED_RECORDS - 1]) + jsonl(GOOD))
    assert look(path, "jsonl") is None


def test_names_that_users_wrote_are_not_shown(tmp_path):
    """Of JSON records only what half of them have; never a value; cut, and without what moves a terminal's cursor."""
    rows = [{"id": f"value{i}", "\x1b[31mred\n": 1, "k" * 100: 1, f"secret{i}": "x"} for i in range(10)]
    rows[0] |= {f"rare{i}": 1 for i in range(5)}
    (tmp_path / "in.jsonl").write_bytes(jsonl(rows))
    error = look(tmp_path / "in.jsonl", "jsonl", text=("id",))
    assert error.endswith(f"; they have id, ?[31mred?, {'k' * 80} (--user_field)")
    (tmp_path / "in.jsonl").write_bytes(jsonl([{f"a{i}": 1} for i in range(10)]))
    assert look(tmp_path / "in.jsonl", "jsonl").endswith("; they have no others in common (--user_field, --text_field)")
    (tmp_path / "in.jsonl").write_bytes(jsonl([{f"a{i}": 1 for i in range(25)}]))
    error = look(tmp_path / "in.jsonl", "jsonl", text=("a1",))
    assert error.startswith("no field 'user' or 'author' in the only record of")
    assert error.endswith("a18, a19 and 5 more (--user_field)")


def test_a_csv_file_without_a_header(tmp_path):
    """A user's record is in its place: what does not look like a name is not shown."""
    (tmp_path / "in.csv").write_text('name,4711,"my phone number is 555, call me soon",alice@example.org\n')
    error = look(tmp_path / "in.csv", "csv")
    assert error.endswith("; it has name and 3 more (--user_field, --text_field)")
    (tmp_path / "in.csv").write_bytes("user,text\n".encode("utf-16"))
    assert look(tmp_path / "in.csv", "csv").endswith(
        "it has 0 that do not look like names (--user_field, --text_field)"
    )
    (tmp_path / "in.tsv").write_text("17\t18\n")
    assert look(tmp_path / "in.tsv", "tsv").endswith(
        "it has 2 that do not look like names (--user_field, --text_field)"
    )


def test_lines_that_are_not_objects(tmp_path):
    path = tmp_path / "in.json"
    path.write_text(json.dumps(GOOD, indent=1))
    assert look(path, "jsonl") == f"no JSON object in the first lines of {path}: each line must be one (--input_format)"


def test_lines_to_skip(tmp_path):
    (tmp_path / "in.csv").write_text("about this file\nuser,text\na,b\n")
    (tmp_path / "in.jsonl").write_bytes(b'{"version": 1}\n' + jsonl(GOOD[:2]))
    for path, name in ((tmp_path / "in.csv", "csv"), (tmp_path / "in.jsonl", "jsonl")):
        form = InputFormat(name=name, skip_header_lines=1)
        form.look_at({str(path): 1})
    assert json_columns(str(tmp_path / "in.jsonl"), "uncompressed", 1).records == 2
    with pytest.raises(ParameterError, match="no column 'user' or 'author'"):
        InputFormat(name="csv").look_at({str(tmp_path / "in.csv"): 1})


CONTRADICTIONS = [
    ("a.parquet", jsonl(GOOD), "is not parquet: its first bytes are not those of parquet (--input_format)."),
    ("a.avro", parquet(GOOD), "is not avro, but parquet: its first bytes are not those of avro (--input_format)."),
    ("a.parquet.gz", gzip.compress(parquet(GOOD), mtime=0), "is not parquet, but gzip: its first bytes"),
    ("a.jsonl.gz", jsonl(GOOD), "is not gzip, though its name ends like that"),
    ("a.txt.bz2", jsonl(GOOD), "is not bzip2, though its name ends like that"),
    ("a.csv.zst", gzip.compress(b"user,text\n", mtime=0), "is not zstd, though its name ends like that"),
    ("a.jsonl", gzip.compress(jsonl(GOOD), mtime=0), "is packed with gzip: its name must end with .gz."),
    ("a.csv", bz2.compress(b"user,text\n"), "is packed with bzip2: its name must end with .bz2."),
    ("a.tsv", zstandard.compress(b"user\ttext\n"), "is packed with zstd: its name must end with .zst."),
    ("a.jsonl", parquet(GOOD), "is parquet, not jsonl (--input_format)."),
    ("a.csv", avro(GOOD), "is avro, not csv (--input_format)."),
]


@pytest.mark.parametrize(("name", "data", "message"), CONTRADICTIONS)
def test_first_bytes_that_contradict_the_name(name, data, message, tmp_path, said):
    (tmp_path / name).write_bytes(data)
    assert extract(tmp_path / "out", "--input", tmp_path / name) == 2
    assert f"{tmp_path / name} {message}" in said()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("head", [b"PAR1 ", b"Obj\x01", b"\x1f\x8b\x08", b"BZh91AY&SY", b"BZh"])
def test_the_first_bytes_of_plain_text_are_a_users(head, tmp_path):
    """One user's line must not stop a run; nor must a word that begins like a packed file."""
    (tmp_path / "a.txt").write_bytes(head + b"\nmore\nPAR1")
    assert look(tmp_path / "a.txt", "text") is None
    (tmp_path / "a.csv").write_bytes(b"BZh,user,text\n")
    assert look(tmp_path / "a.csv", "csv") is None


DAMAGED = {
    "a.jsonl.gz": b"\x1f\x8b\x08\x00 a secret",
    "a.csv.bz2": b"BZh91AY&SY a secret",
    "a.parquet": b"PAR1 a secret PAR1",
    "a.avro": b"Obj\x01 a secret",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file(name, tmp_path, said):
    """It is refused if nothing else could be read, and left to the run if another file could."""
    (tmp_path / name).write_bytes(DAMAGED[name])
    assert extract(tmp_path / "out", "--input", tmp_path / name) == 2
    error = said()
    form = name.split(".")[1]
    assert error.startswith(f"{tmp_path / name} cannot be read as {form}: it is damaged or not complete.")
    assert "secret" not in error
    whole = write(tmp_path / f"b.{form}", GOOD)
    assert look({str(tmp_path / name): 9, str(whole): 9}, form) is None


def test_what_came_before_the_damage_counts(tmp_path):
    packed = gzip.compress(jsonl(TICKETS * 300))
    (tmp_path / "in.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    assert "no field 'user' or 'author'" in look(tmp_path / "in.jsonl.gz", "jsonl")


def test_few_files_are_opened(tmp_path, monkeypatch):
    """A few of every suffix; one that is as it should be is enough for its suffix; empty ones say nothing."""
    seen, first_lines = [], looking._first_lines

    def count(path, *more):
        seen.append(path.rpartition("/")[2])
        return first_lines(path, *more)

    monkeypatch.setattr(looking, "_first_lines", count)
    for i in range(50):
        write(tmp_path / f"{i:02}.jsonl", TICKETS[:3])
    files = {str(path): path.stat().st_size for path in sorted(tmp_path.iterdir())}
    assert look(files, "jsonl") is not None
    assert seen == ["00.jsonl", "01.jsonl", "02.jsonl"]
    write(tmp_path / "01.jsonl", GOOD[:3])
    seen.clear()
    assert look(files, "jsonl") is None
    assert seen == ["00.jsonl", "01.jsonl"]
    seen.clear()
    packed = {str(write(tmp_path / f"{i}.jsonl.gz", TICKETS[:3])): 1 for i in range(5)}
    assert f"{tmp_path}/0.jsonl.gz" in look(files | packed, "jsonl")
    assert seen == ["00.jsonl", "01.jsonl", "0.jsonl.gz", "1.jsonl.gz", "2.jsonl.gz"]
    seen.clear()
    assert look(dict.fromkeys(files, 0), "jsonl") is None
    assert seen == []


def test_nothing_to_look_at(tmp_path):
    """Empty files, blank lines, plain text: the run decides."""
    for name, data in (("jsonl", b"\n \n"), ("text", b"\n"), ("text", b"a b")):
        (tmp_path / "in").write_bytes(data)
        assert look(tmp_path / "in", name) is None
    look_at_files({}, "jsonl", InputFormat(name="jsonl").reader.look, [])
